"""What scores, jobs and evaluations share: how answers are drawn by default; the live load."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from service.llm.port import GenerationRequest, Message, Sampling
from service.scoring.command import Target
from service.spectral.selective import CONFIDENCE

DEFAULT_TARGET_ERROR = 0.2
Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Efforts:
    """How many answers are drawn for each effort that a request may name."""

    low: int = 3
    medium: int = 8
    high: int = 20

    def num_samples(self, effort: Effort) -> int:
        """Return the number of answers."""
        return {"low": self.low, "medium": self.medium, "high": self.high}[effort]


@dataclass(frozen=True, slots=True)
class Serving:
    """How answers are drawn for a request that says nothing; a conversation with `messages_sampling`.

    `target_error`: the error that decisions keep, with this confidence; None: DEFAULT_TARGET_ERROR, where a
    calibration can decide.
    """

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling
    efforts: Efforts = Efforts()
    target_error: float | None = None
    confidence: float = CONFIDENCE

    def target(self, error: float | None = None, confidence: float | None = None) -> Target:
        """Return what a decision keeps: as a request names it, else as the settings do, else by default."""
        named = self.target_error if error is None else error
        return Target(
            DEFAULT_TARGET_ERROR if named is None else named,
            self.confidence if confidence is None else confidence,
            by_default=named is None and confidence is None,
        )

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


class LiveLoad:
    """How many live scores are under way: scoring counts them, jobs give way to them."""

    def __init__(self) -> None:
        self.under_way = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one score for as long as it takes."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
