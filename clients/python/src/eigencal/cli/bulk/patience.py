"""What a failure means for a run of many questions: ask again, write it down, or stop."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import eigencal

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
ATTEMPTS = 5  # at one question that the service answers with errors that may pass
# A question that fails as if the service were away, while others are scored between its attempts:
PASSED_OVER = 10  # so often, and it is the question
FEW_TIMES = 2  # and nothing else came within the patience: the question, too


class Ends(Exception):
    """A question's error is its result."""


def is_of_the_service(error: eigencal.EigencalError) -> bool:
    """Tell whether every question fares so for now: nobody answers, no room, a part is down, a proxy."""
    if isinstance(error, eigencal.ApiError) and not error.problem and error.status in (502, 503, 504):
        return True
    gone = eigencal.ConnectionFailed | eigencal.ConnectionLost | eigencal.RateLimited | eigencal.Unavailable
    return isinstance(error, gone)


def is_of_all(error: eigencal.EigencalError) -> bool:
    """Tell whether no question can fare otherwise: the key is refused, or this is not the service."""
    return isinstance(error, eigencal.Unauthorized | eigencal.Forbidden | eigencal.UnexpectedAnswer)


@dataclass(slots=True)
class Patience:
    """How long the service may be away in one piece, seconds; shared by all questions of a run."""

    limit_s: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[float, float], float] = random.uniform
    scored: int = field(default=0, init=False)
    """Questions that were scored."""
    _away_since: float | None = field(default=None, init=False)

    def answered(self) -> None:
        """Note that a question was scored."""
        self.scored += 1
        self.heard()

    def heard(self) -> None:
        """Note that the service is there: it answered a question."""
        if self._away_since is not None:
            self.say(f"eigencal: the service is back after {self.clock() - self._away_since:.0f} s")
        self._away_since = None

    def wait_s(self, error: eigencal.EigencalError) -> float:
        """Return the seconds to wait for a service that is away. Raises `error` once it was for too long."""
        now = self.clock()
        if self._away_since is None:
            self._away_since = now
            self.say(f"eigencal: {error.detail.rstrip('. ')}. Waiting for it, {self.limit_s:g} s at most")
        left_s = self.limit_s - (now - self._away_since)
        if left_s <= 0:
            raise error
        # The longer it is away, the less often it is asked; and not by all questions at once.
        longest = min(LONGEST_WAIT_S, max(FIRST_WAIT_S, (now - self._away_since) / 2))
        wait_s = error.retry_after_s or self.jitter(longest / 2, longest)
        return min(wait_s, left_s)


@dataclass(slots=True)
class Attempts:
    """The attempts at one question."""

    patience: Patience
    _failed: int = field(default=0, init=False)
    _passed_over: int = field(default=0, init=False)
    _passed_since: float = field(default=0.0, init=False)
    _scored: int | None = field(default=None, init=False)

    def wait_s(self, error: eigencal.EigencalError) -> float:
        """Return the seconds to wait before the next one.

        Raises:
            Ends: there is none: the error is what became of the question.
            EigencalError: the run is over.
        """
        if is_of_all(error):
            raise error
        # A question on which connections break, over and over, may be what ends the service.
        if not is_of_the_service(error) or isinstance(error, eigencal.ConnectionLost):
            self._failed += 1
            if not error.retryable or self._failed >= ATTEMPTS:
                raise Ends from error
        if is_of_the_service(error):
            return self._wait_for_service_s(error)
        if isinstance(error, eigencal.ApiError):
            self.patience.heard()
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self._failed)

    def _wait_for_service_s(self, error: eigencal.EigencalError) -> float:
        """Return the seconds to wait where the service seems to be away.

        Raises:
            Ends: it is there, for others were scored meanwhile.
            EigencalError: it was away for too long.
        """
        if isinstance(error, eigencal.ConnectionFailed):  # nothing was sent: it is not the question
            return self.patience.wait_s(error)
        self._look_at_others()
        if self._is_passed_over(error):
            raise Ends from error
        try:
            wait_s = self.patience.wait_s(error)
        except eigencal.EigencalError:
            if self._passed_over >= FEW_TIMES:
                raise Ends from error
            raise
        # The more often it was passed over, the less often it is asked, within the patience.
        own_s = FIRST_WAIT_S * 2.0**self._passed_over if self._passed_over else 0.0
        return max(wait_s, min(own_s, LONGEST_WAIT_S, self.patience.limit_s))

    def _look_at_others(self) -> None:
        """Count whether others were scored since the last attempt."""
        scored = self.patience.scored
        if self._scored is not None and scored > self._scored:
            if not self._passed_over:
                self._passed_since = self.patience.clock()
            self._passed_over += 1
        self._scored = scored

    def _is_passed_over(self, error: eigencal.EigencalError) -> bool:
        """Tell whether it is this question that fails, and not the service."""
        if self._passed_over < FEW_TIMES:
            return False
        if self.patience.clock() - self._passed_since >= self.patience.limit_s:
            return True
        # Where there is no room, some questions are out of luck more often than others.
        is_full = isinstance(error, eigencal.RateLimited | eigencal.Overloaded)
        return self._passed_over >= PASSED_OVER and not is_full
