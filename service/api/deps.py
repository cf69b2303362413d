"""What the routes work with: wired in app.py, found on the application's state."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from service.api.metrics import Metrics
from service.domain.models import GenerationRequest, Message, Sampling
from service.domain.scoring import Scorer


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request that says nothing gets. `messages_stop` are the stop strings of conversations."""

    num_samples: int
    sampling: Sampling
    messages_stop: tuple[str, ...]

    def request(
        self, *, prompt: str | None = None, messages: tuple[Message, ...] | None = None
    ) -> GenerationRequest:
        """Return the request of a caller that names only what to answer."""
        return GenerationRequest(self.num_samples, self.sampling, prompt=prompt, messages=messages)


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases and checks that the routes call.

    `checks`: by part name ("llm", "embedder", "store"), a call that returns when the part works and raises
    when it does not.
    """

    scorer: Scorer
    defaults: Defaults
    checks: dict[str, Callable[[], Awaitable[None]]]
    metrics: Metrics
    batch_concurrency: int


async def services(request: Request) -> Services:
    """Return the services of the application that got the request."""
    found: Services = request.app.state.services
    return found
