"""The admission queue before an LLM server: so many calls at once, so many queued, refusal past that.

Requests are admitted whole, calls are served one by one: a request whose server gives one answer a call is
never refused half way because of its own calls. Live requests wait in one queue, jobs in another. Jobs are
few (see `calibration_max_concurrency`) and never refused; while both wait, they get one permit in
`JOBS_EVERY` that falls free, so that neither starves the other.
"""

import statistics
from asyncio import Future, get_running_loop, timeout_at
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.errors import DeadlineExceeded, Overloaded

JOBS_EVERY = 8
RECENT = 64  # calls whose times the estimates rest on
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0
MAX_REMEMBERED = 100_000


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request. `ends`: until when its calls may wait and run, on the loop's clock.

    `live`: somebody waits for it, it is no job's. `calls`: that it makes at first. `coming`: those of them
    that have been admitted and are not queued yet.
    """

    ends: float
    live: bool = True
    calls: int = 1
    coming: int = 0


@dataclass(eq=False, slots=True)
class Permit:
    """The right to one call, held until `release`; `begun` is on the loop's clock."""

    queue: "AdmissionQueue"
    begun: float

    def release(self, *, answered: bool) -> None:
        """Pass the permit on to the next call. `answered`: the time that this one took is typical."""
        self.queue.take_back(get_running_loop().time() - self.begun if answered else None)


class AdmissionQueue:
    """`slots` calls at once; no request is admitted while `max_waiting` live calls wait. One event loop's."""

    def __init__(self, slots: int, max_waiting: int) -> None:
        self._slots = self.free = slots
        self._max_waiting = max_waiting
        self._live: deque[tuple[Future[None], QueuedRequest]] = deque()
        self._jobs: deque[tuple[Future[None], QueuedRequest]] = deque()
        self._coming = 0
        self._num_passed_on = 0
        self._times: deque[float] = deque(maxlen=RECENT)
        self._returning: deque[float] = deque(maxlen=MAX_REMEMBERED)  # when refused callers come back

    @property
    def num_running(self) -> int:
        """Return how many calls have a permit."""
        return self._slots - self.free

    @property
    def num_waiting(self) -> int:
        """Return how many calls wait for one, those of jobs included."""
        return len(self._live) + len(self._jobs)

    @contextmanager
    def admitted(self, queued: QueuedRequest) -> Iterator[None]:
        """Count the calls of a request until they are queued. Raises Overloaded, at once."""
        if queued.live:
            self._refuse_if_full(queued)
            queued.coming = queued.calls
            self._coming += queued.coming
        try:
            yield
        finally:
            self._coming -= queued.coming
            queued.coming = 0

    async def permit(self, queued: QueuedRequest) -> Permit:
        """Return a permit when it is this call's turn. Raises DeadlineExceeded at the request's end."""
        if queued.coming:  # at first; a later call of the request had not been counted
            queued.coming -= 1
            self._coming -= 1
        if self.free:
            self.free -= 1
        else:
            await self._turn(queued)
        return Permit(self, get_running_loop().time())

    def take_back(self, took_s: float | None) -> None:
        """Give a permit to the next call that waits. `took_s`: of the call that had it, if answered."""
        if took_s is not None:
            self._times.append(took_s)
        while self._live or self._jobs:
            self._num_passed_on += 1
            is_jobs_turn = self._jobs and (not self._live or self._num_passed_on % JOBS_EVERY == 0)
            waiting, queued = (self._jobs if is_jobs_turn else self._live).popleft()
            if waiting.done():  # its caller has gone
                continue
            left_s = queued.ends - get_running_loop().time()
            if queued.live and self._live and left_s < self._quick_s():
                waiting.set_exception(self._too_late())
                continue
            waiting.set_result(None)
            return
        self.free += 1

    async def _turn(self, queued: QueuedRequest) -> None:
        waiting: Future[None] = get_running_loop().create_future()
        queue = self._live if queued.live else self._jobs
        queue.append((waiting, queued))
        try:
            async with timeout_at(queued.ends):
                await waiting
        except BaseException as error:
            if (waiting, queued) in queue:
                queue.remove((waiting, queued))
            elif not waiting.cancelled() and waiting.exception() is None:
                self.take_back(None)  # the permit came as the caller went
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    "No answer came in time: too many requests wait for the LLM."
                ) from None
            raise

    def _refuse_if_full(self, queued: QueuedRequest) -> None:
        ahead = len(self._live) + self._coming - self.free  # below 0: so many permits are free
        if ahead < 0:
            return
        typical_s = statistics.median(self._times) if self._times else 0.0
        wait_s = (ahead + 1) * typical_s / self._slots
        left_s = queued.ends - get_running_loop().time()
        if ahead >= self._max_waiting:
            raise Overloaded("Too many requests wait for the LLM.", retry_after_s=self._retry_after_s())
        if left_s < wait_s + typical_s:
            raise self._too_late()

    def _too_late(self) -> Overloaded:
        """Return the error for a request to which a permit is not given: nobody would read its answer."""
        reason = "Too many requests wait for the LLM to answer this one before its deadline."
        return Overloaded(reason, retry_after_s=self._retry_after_s())

    def _quick_s(self) -> float:
        """Return what the quicker calls take: the lower quartile."""
        return statistics.quantiles(self._times)[0] if len(self._times) > 1 else 0.0

    def _retry_after_s(self) -> float:
        """Return when to come back: after the queue, and after half of those who were told so before.

        All at once they would only be refused again, and a thousand refusals a second keep us from scoring.
        """
        now = get_running_loop().time()
        while self._returning and self._returning[0] <= now:
            self._returning.popleft()
        typical_s = statistics.median(self._times) if self._times else 0.0
        ahead = max(0, len(self._live) + self._coming - self.free + 1) + len(self._returning) / 2
        wait_s = ahead * typical_s / self._slots
        wait_s = min(MAX_RETRY_S, max(MIN_RETRY_S, wait_s))
        self._returning.append(now + wait_s)
        return wait_s
