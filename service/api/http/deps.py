"""What the routes work with: wired in the factory, found on the application's state."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from service.api.http.error_log import ErrorLog
from service.api.http.metrics import Metrics
from service.domain.scoring.scorer import Scorer
from service.domain.serving import Serving


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases and checks that the routes call.

    `serving`: how answers are drawn when a request says nothing. `checks`: by component ("llm", "embedder",
    "store"), a call that returns when it works and raises when it does not. `render_home`: the page of the
    root path, from its JSON.
    """

    scorer: Scorer
    serving: Serving
    checks: dict[str, Callable[[], Awaitable[None]]]
    metrics: Metrics
    batch_concurrency: int
    errors: ErrorLog = field(default_factory=ErrorLog)
    render_home: Callable[[Mapping[str, Any]], str] = lambda _: ""


async def services(request: Request) -> Services:
    """Return the services of the application that got the request."""
    found: Services = request.app.state.services
    return found
