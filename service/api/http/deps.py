"""What the routes work with: wired in app.py, found on the application's state."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from service.api.http.error_log import ErrorLog
from service.api.http.metrics import Metrics
from service.domain.models import GenerationRequest, Message, Sampling
from service.domain.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request that says nothing gets; a conversation is drawn with `messages_sampling`."""

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling

    def request(
        self, *, prompt: str | None = None, messages: tuple[Message, ...] | None = None
    ) -> GenerationRequest:
        """Return the request of a caller that names only what to answer."""
        sampling = self.sampling if messages is None else self.messages_sampling
        return GenerationRequest(self.num_samples, sampling, prompt=prompt, messages=messages)


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases and checks that the routes call.

    `checks`: by part name ("llm", "embedder", "store"), a call that returns when the part works and raises
    when it does not. `render_home`: the page of the root path, from its JSON.
    """

    scorer: Scorer
    defaults: Defaults
    checks: dict[str, Callable[[], Awaitable[None]]]
    metrics: Metrics
    batch_concurrency: int
    errors: ErrorLog = field(default_factory=ErrorLog)
    render_home: Callable[[Mapping[str, Any]], str] = lambda _: ""


async def services(request: Request) -> Services:
    """Return the services of the application that got the request."""
    found: Services = request.app.state.services
    return found
