"""The admission queue before an LLM server: so many calls at once, so many queued, refusal past that.

Requests are admitted whole, calls are served one by one: a request whose server gives one answer a call is
never refused half way because of its own calls. Live requests wait in one queue, jobs in another. Jobs are
few (see `calibration_max_concurrency`) and never refused; while both wait, they get one slot in `JOBS_EVERY`
that falls free, so that neither starves the other.
"""

import asyncio
import statistics
from asyncio import get_running_loop
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from service.errors import DeadlineExceeded, EigencalError, Overloaded

JOBS_EVERY = 8
RECENT = 64  # calls whose times the estimates rest on
MAX_REMEMBERED = 100_000
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0
TOO_LATE = "Too many requests wait for the LLM to answer this one before its deadline."


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request. `ends`: until when its calls may wait and run, on the loop's clock.

    `has_deadline`: the end is the caller's own deadline. `calls`: how many it makes at first. `coming`: those
    that have been admitted and are not queued yet. `served`: one of them has had a slot.
    """

    ends: float
    has_deadline: bool = False
    live: bool = True
    calls: int = 1
    coming: int = 0
    served: bool = False

    def expired(self) -> DeadlineExceeded:
        """Return the error for a call that has not ended in time."""
        if self.has_deadline:
            return DeadlineExceeded("No answer came before the deadline.")
        return DeadlineExceeded("The LLM server did not answer in time.")


@dataclass(eq=False, slots=True)
class _Waiting:
    queued: QueuedRequest
    permit: asyncio.Future["Permit"]


@dataclass(eq=False, slots=True)
class Permit:
    """The right to one call, held until `release`; `begun` is on the loop's clock."""

    queue: "AdmissionQueue"
    begun: float

    def release(self, *, answered: bool) -> None:
        """Give the slot to the next call, once this one's connection is closed. `answered`: it was of use."""
        self.queue.take_back(self, answered)


class AdmissionQueue:
    """`slots` calls at once; no request is admitted while `max_waiting` live calls wait. One event loop's."""

    def __init__(self, slots: int, max_waiting: int) -> None:
        self._slots = slots
        self._max_waiting = max_waiting
        self._held: dict[Permit, None] = {}  # the longest held first
        self._live: deque[_Waiting] = deque()
        self._jobs: deque[_Waiting] = deque()
        self._coming = 0
        self._given = 0
        self._times: deque[float] = deque(maxlen=RECENT)
        self._told: deque[float] = deque(maxlen=MAX_REMEMBERED)  # when those who were refused come back

    @property
    def free(self) -> int:
        """Return how many calls could begin now."""
        return self._slots - len(self._held)

    @contextmanager
    def admitted(self, queued: QueuedRequest) -> Iterator[None]:
        """Count the calls of a request until they are queued. Raises Overloaded, at once."""
        if queued.live:
            self._refuse(queued)
            queued.coming = queued.calls
            self._coming += queued.coming
        try:
            yield
        finally:
            self._coming -= queued.coming
            queued.coming = 0

    async def permit(self, queued: QueuedRequest) -> Permit:
        """Return a permit when it is this call's turn.

        Raises TimeoutError at the request's end, and Overloaded when too little of its time was left.
        """
        if queued.coming:  # at first; a later call of the request had not been counted
            queued.coming -= 1
            self._coming -= 1
        if self.free:
            return self._hold(queued)
        async with asyncio.timeout_at(queued.ends):
            return await self._wait(_Waiting(queued, get_running_loop().create_future()))

    def take_back(self, permit: Permit, answered: bool) -> None:
        """End the holding of a permit and give it to whose turn it is."""
        if answered:
            self._times.append(get_running_loop().time() - permit.begun)
        del self._held[permit]
        while self.free and (self._live or self._jobs):
            self._give(self._next())

    async def _wait(self, waiting: _Waiting) -> Permit:
        queue = self._live if waiting.queued.live else self._jobs
        queue.append(waiting)
        try:
            return await waiting.permit
        except asyncio.CancelledError:
            if waiting in queue:
                queue.remove(waiting)
            elif not waiting.permit.cancelled() and waiting.permit.exception() is None:
                waiting.permit.result().release(answered=False)  # it came as the caller went
            raise

    def _next(self) -> _Waiting:
        self._given += 1
        jobs_turn = self._jobs and (not self._live or self._given % JOBS_EVERY == 0)
        return (self._jobs if jobs_turn else self._live).popleft()

    def _give(self, waiting: _Waiting) -> None:
        if waiting.permit.done():  # its caller has gone
            return
        if self._live and waiting.queued.has_deadline and not self._worth(waiting.queued, 0.0):
            waiting.permit.set_exception(self._too_late(waiting.queued))
        else:
            waiting.permit.set_result(self._hold(waiting.queued))

    def _too_late(self, queued: QueuedRequest) -> EigencalError:
        if queued.served:  # some of its answers have come: it is no longer refused
            return queued.expired()
        return Overloaded(TOO_LATE, retry_after_s=self._retry_after_s())

    def _hold(self, queued: QueuedRequest) -> Permit:
        queued.served = True
        permit = Permit(self, get_running_loop().time())
        self._held[permit] = None
        return permit

    def _refuse(self, queued: QueuedRequest) -> None:
        ahead = self._ahead()
        if ahead >= self._max_waiting:
            raise Overloaded("Too many requests wait for the LLM.", retry_after_s=self._retry_after_s())
        if ahead >= 0 and queued.has_deadline and not self._worth(queued, self._wait_s(ahead)):
            raise self._too_late(queued)

    def _ahead(self) -> int:
        """Return how many live calls wait before one that comes now; below 0: so many slots are free."""
        return len(self._live) + self._coming - self.free

    def _worth(self, queued: QueuedRequest, wait_s: float) -> bool:
        """Tell whether a call that begins after so long has the time that the quicker ones take.

        While others wait, a slot is not spent on an answer that nobody will be there to read.
        """
        quick_s = statistics.quantiles(self._times)[0] if len(self._times) > 1 else 0.0  # the lower quarter
        return queued.ends - get_running_loop().time() - wait_s >= quick_s

    def _retry_after_s(self) -> float:
        """Return when to come back: after the queue, and after half of those who were told so before.

        All at once they would only be refused again, and a thousand refusals a second keep us from scoring.
        """
        now = get_running_loop().time()
        while self._told and self._told[0] <= now:
            self._told.popleft()
        each_s = statistics.median(self._times) / self._slots if self._times else 0.0
        wait_s = self._wait_s(max(0, self._ahead())) + len(self._told) / 2 * each_s
        wait_s = min(MAX_RETRY_S, max(MIN_RETRY_S, wait_s))
        self._told.append(now + wait_s)
        return wait_s

    def _wait_s(self, ahead: int) -> float:
        """Return how long a call waits behind so many, if each takes the recent median.

        One that has taken longer already is thought to take as long again past it: a hung server's queue
        does not look short.
        """
        if not self._times:
            return 0.0
        typical, now = statistics.median(self._times), get_running_loop().time()
        rounds, place = divmod(ahead, self._slots)
        begun = next((permit.begun for permit in islice(self._held, place, None)), now)
        return abs(begun + typical - now) + rounds * typical
