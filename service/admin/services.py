"""Dependencies of the operators' routes: the services built in `app`, and the ids in paths."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from service.admin.uploads import UploadThreads
from service.calibration.calibration import Fingerprint
from service.calibration.files import UploadLimits
from service.calibration.store import SqlCalibrations
from service.errors import NotFound
from service.jobs.runner import DurableJobs
from service.scoring.metrics import Metrics
from service.scoring.score import Serving
from service.sharing import Threads


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases and checks that the operators' routes call.

    `serving`: the default way to draw answers. `checks`: by component ("llm", "embedder", "store"), a call
    that returns if the component works and raises if not. `limits`: of uploads. `computing`: threads that
    compute scores and pages. `report_page`: renders a report as HTML; may take seconds. `applies_now`:
    returns True if a calibration with this fingerprint fits the present set-up. `unreadable`: returns the
    stored rows that cannot be read.
    """

    serving: Serving
    jobs: DurableJobs
    calibrations: SqlCalibrations
    checks: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)
    limits: UploadLimits = field(default_factory=UploadLimits)
    threads: UploadThreads = field(default_factory=UploadThreads)
    computing: Threads = field(default_factory=lambda: Threads("pages"))
    report_page: Callable[[Mapping[str, Any]], str] = lambda _: ""
    applies_now: Callable[[Fingerprint], bool] = lambda _: False
    unreadable: Callable[[], list[str]] = list


async def services(request: Request) -> Services:
    """Return the services of the request's application."""
    built: Services = request.app.state.admin
    return built


ServicesDep = Annotated[Services, Depends(services)]


_ID = re.compile(r"(job|cal)_[0-9A-Z]{26}\Z")


def no_job() -> NotFound:
    """Return the error for an unknown job."""
    return NotFound("No job has this id.")


def no_calibration() -> NotFound:
    """Return the error for an unknown calibration."""
    return NotFound("No calibration has this id.")


async def _job_id(job_id: Annotated[str, Path(description="Id of a job.")]) -> str:
    # Refused by its form: a database may fail on characters that no id has.
    if not _ID.match(job_id):
        raise no_job()
    return job_id


async def _calibration_id(calibration_id: Annotated[str, Path(description="Id of a calibration.")]) -> str:
    if not _ID.match(calibration_id):
        raise no_calibration()
    return calibration_id


JobId = Annotated[str, Depends(_job_id)]
CalibrationId = Annotated[str, Depends(_calibration_id)]
