"""What a monitoring system is told of each score."""

from contextvars import ContextVar
from typing import Protocol

from service.domain.scoring.model import Score

# The caller's `traceparent` (W3C Trace Context), for all that is done for its request, in other tasks, too.
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")


class ScoreEvents(Protocol):
    """Tells of scores elsewhere; no call waits, and none raises."""

    async def start(self) -> None:
        """Begin to send."""

    async def stop(self) -> None:
        """Send what is left, if that goes soon; idempotent."""

    def scored(self, score: Score) -> None:
        """Tell of a score."""

    def failed(self, code: str) -> None:
        """Tell of an error instead of a score."""


class NoEvents:
    """Tells nobody."""

    async def start(self) -> None:
        """Nothing to begin."""

    async def stop(self) -> None:
        """Nothing is left."""

    def scored(self, score: Score) -> None:
        """Do nothing."""

    def failed(self, code: str) -> None:
        """Do nothing."""
