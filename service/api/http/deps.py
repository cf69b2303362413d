"""What the routes work with: wired in the factory, found on the application's state."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from service.api.http.error_log import ErrorLog
from service.api.http.metrics import Metrics
from service.api.http.upload_threads import UploadThreads
from service.domain.devdata.reader import UploadLimits
from service.domain.jobs.model import CalibrationStore, JobQueue
from service.domain.scoring.scorer import Scorer
from service.domain.serving import Serving


def no_page(_: object) -> str:
    """Return an empty page."""
    return ""


@dataclass(frozen=True, slots=True)
class Pages:
    """What makes HTML pages of what is sent as JSON: the root path, a report (may take seconds), a list."""

    home: Callable[[Mapping[str, Any]], str] = no_page
    report: Callable[[Mapping[str, Any]], str] = no_page
    calibrations: Callable[[Sequence[Mapping[str, Any]]], str] = no_page


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases, ports and checks that the routes call.

    `serving`: how answers are drawn when a request says nothing. `checks`: by component ("llm", "embedder",
    "store"), a call that returns when it works and raises when it does not. `limits`: of uploads.
    """

    scorer: Scorer
    serving: Serving
    jobs: JobQueue
    calibrations: CalibrationStore
    checks: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)
    batch_concurrency: int = 1
    limits: UploadLimits = field(default_factory=UploadLimits)
    threads: UploadThreads = field(default_factory=UploadThreads)
    errors: ErrorLog = field(default_factory=ErrorLog)
    pages: Pages = field(default_factory=Pages)


async def services(request: Request) -> Services:
    """Return the services of the application that got the request."""
    found: Services = request.app.state.services
    return found


ServicesDep = Annotated[Services, Depends(services)]
