"""Whether a failed call is made once more, and after how long: arithmetic, no sleeping."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from eigencal import _errors as errors
from eigencal._calls.repeat import Repeat

FIRST_WAIT_S = 0.5
LONGEST_S = 1e6  # 11 days: sockets take no limit that is endless
DEADLINE_GRACE_S = 10.0  # after its deadline the service still embeds what came, and answers
# After these nothing was begun for certain.
_UNSEEN = (errors.ConnectionFailed, errors.RateLimited, errors.Overloaded)


@dataclass(slots=True)
class Attempts:
    """The attempts at one call. `ends_at` and `deadline_at` are of `clock`, in seconds."""

    repeat: Repeat
    retries: int
    longest_wait_s: float
    ends_at: float
    deadline_at: float | None = None
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[float, float], float] = random.uniform
    failed: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        repeat: Repeat,
        retries: int,
        longest_wait_s: float,
        timeout_s: float,
        deadline_ms: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> "Attempts":
        """Return the attempts of a call that begins now."""
        now = clock()
        deadline_at = None if deadline_ms is None else now + deadline_ms / 1000
        ends_at = now + timeout_s
        if deadline_at is not None:
            ends_at = min(ends_at, deadline_at + DEADLINE_GRACE_S)
        return cls(repeat, retries, longest_wait_s, ends_at, deadline_at, clock)

    def left_s(self) -> float:
        """Return the seconds that are left of the whole call; never 0, which would mean no limit."""
        return min(max(self.ends_at - self.clock(), 0.001), LONGEST_S)

    @property
    def over(self) -> bool:
        """Whether the time of the whole call is over."""
        return self.clock() >= self.ends_at

    def deadline_left_ms(self) -> int | None:
        """Return what is left of the deadline to send on, 1 ms at least; None without one."""
        if self.deadline_at is None:
            return None
        return max(1, round((self.deadline_at - self.clock()) * 1000))

    def went_on(self) -> None:
        """Begin to count anew: something came, so whatever was wrong is over."""
        self.failed = 0

    def wait_after(self, error: errors.EigencalError) -> float:
        """Return the seconds to wait before the next attempt. Raises `error` where there is none."""
        self.failed += 1
        # Counted first: with 0 retries the first failure is the last.
        if self.failed > self.retries or not _may_repeat(self.repeat, error):
            raise error
        wait_s = self._wait_s(error)
        # Past its deadline a score would be of no use to the caller, though the service may still answer.
        last = self.ends_at if self.deadline_at is None else min(self.ends_at, self.deadline_at)
        if self.clock() + wait_s >= last:
            raise error
        return wait_s

    def _wait_s(self, error: errors.EigencalError) -> float:
        # 2 ** 20 is over any bound, and no float overflows on the way.
        longest = min(self.longest_wait_s, FIRST_WAIT_S * 2.0 ** min(self.failed - 1, 20))
        told = error.retry_after_s
        if told is None or not math.isfinite(told):
            return self.jitter(longest / 2, longest)
        if told > self.longest_wait_s:
            raise error  # sooner than asked for would be refused again
        # Not all callers at the same moment, and none before it.
        return told + self.jitter(0.0, longest / 2)


def _may_repeat(repeat: Repeat, error: errors.EigencalError) -> bool:
    if isinstance(error, _UNSEEN):
        return True
    if repeat is Repeat.UNSEEN:
        return False
    if isinstance(error, errors.ApiError):
        return error.retryable and error.status in (502, 503, 504)
    return isinstance(error, errors.ConnectionLost)
