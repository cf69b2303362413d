"""How the service draws answers when a request says nothing: callers, jobs and evaluations start from it."""

from dataclasses import dataclass

from service.domain.models import GenerationRequest, Message, Sampling


@dataclass(frozen=True, slots=True)
class Serving:
    """The number of answers, and how they are drawn: a conversation with `messages_sampling`."""

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling

    def request(
        self,
        *,
        prompt: str | None = None,
        messages: tuple[Message, ...] | None = None,
        num_samples: int | None = None,
        priority: int = 0,
    ) -> GenerationRequest:
        """Return the request of a caller that names only what to answer; exactly one of the first two."""
        return GenerationRequest(
            num_samples=self.num_samples if num_samples is None else num_samples,
            sampling=self.sampling if messages is None else self.messages_sampling,
            prompt=prompt,
            messages=messages,
            priority=priority,
        )
