"""The admission queue before an LLM server: so many calls at once, so many queued, refusal past that.

Requests are admitted whole, calls are served one by one: a request whose server gives one answer a call is
never refused half way because of its own calls. Calls wait by priority. Draws beside an answer are refused as
soon as an answer waits: under load they are what is given up first. Jobs are few (see
`calibration_max_concurrency`) and never refused; while others wait, they get one permit in `JOBS_EVERY` that
falls free, so that neither starves the other.
"""

import statistics
from asyncio import Future, get_running_loop, timeout_at
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from service.errors import DeadlineExceeded, Overloaded
from service.llm.port import Priority

JOBS_EVERY = 8
RECENT = 64  # calls whose times the estimates rest on
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0
MAX_REMEMBERED = 100_000
NO_ROOM_BESIDE = "Answers wait for the LLM: none are drawn beside one to score it."


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request. `ends`: until when its calls may wait and run, on the loop's clock.

    `calls`: that it makes at first. `coming`: those of them that have been admitted and are not queued yet.
    `only_waits`: it has to begin by its end, however long it takes then.
    """

    ends: float
    priority: Priority = Priority.LIVE
    calls: int = 1
    coming: int = 0
    only_waits: bool = False


@dataclass(eq=False, slots=True)
class Permit:
    """The right to one call, held until `release`; `begun` is on the loop's clock."""

    queue: "AdmissionQueue"
    begun: float
    of: QueuedRequest
    is_held: bool = True

    def release(self, *, answered: bool) -> None:
        """Pass the permit on to the next call; idempotent. `answered`: the time that it took is typical."""
        if self.is_held:
            self.is_held = False
            self.queue.take_back(self.of, get_running_loop().time() - self.begun if answered else None)


class AdmissionQueue:
    """`slots` calls at once; no live request is admitted while `max_waiting` such calls wait.

    Of one event loop.
    """

    def __init__(self, slots: int, max_waiting: int) -> None:
        self.slots = self.free = slots
        self.max_waiting = max_waiting
        self._lines: dict[Priority, deque[tuple[Future[None], QueuedRequest]]]
        self._lines = {priority: deque() for priority in Priority}
        self._coming = 0
        self._num_passed_on = 0
        self._times: deque[float] = deque(maxlen=RECENT)  # of all calls: by them a wait is estimated
        self._draw_times: deque[float] = deque(maxlen=RECENT)  # of those that have to be over by an end
        self._returning: deque[float] = deque(maxlen=MAX_REMEMBERED)  # when refused callers come back

    @property
    def num_running(self) -> int:
        """Return how many calls have a permit."""
        return self.slots - self.free

    @property
    def num_waiting(self) -> int:
        """Return how many calls wait for one, those of jobs included."""
        return sum(map(len, self._lines.values()))

    @contextmanager
    def admitted(self, queued: QueuedRequest) -> Iterator[None]:
        """Count the calls of a request until they are queued. Raises Overloaded, at once."""
        if queued.priority != Priority.JOB:
            self._refuse_if_full(queued)
            queued.coming = queued.calls
            self._coming += queued.coming
        try:
            yield
        finally:
            self._coming -= queued.coming
            queued.coming = 0

    @asynccontextmanager
    async def one_call(self, max_wait_s: float) -> AsyncIterator[Permit]:
        """Yield the permit of a live request of one call. Raises Overloaded, and DeadlineExceeded."""
        queued = QueuedRequest(get_running_loop().time() + max_wait_s, only_waits=True)
        with self.admitted(queued):
            permit = await self.permit(queued)
        try:
            yield permit
        finally:  # whoever had a good answer has released it: the time of no other is typical
            permit.release(answered=False)

    async def permit(self, queued: QueuedRequest) -> Permit:
        """Return a permit when it is this call's turn. Raises DeadlineExceeded at the request's end."""
        if queued.coming:  # at first; a later call of the request had not been counted
            queued.coming -= 1
            self._coming -= 1
        if self.free:
            self.free -= 1
        else:
            await self._turn(queued)
        return Permit(self, get_running_loop().time(), queued)

    def take_back(self, of: QueuedRequest, took_s: float | None) -> None:
        """Give a permit to the next call that waits. `took_s`: of the call that had it, if answered."""
        if took_s is not None:
            self._times.append(took_s)
            if not of.only_waits:
                self._draw_times.append(took_s)
        jobs = self._lines[Priority.JOB]
        while (others := self._lines[Priority.LIVE] or self._lines[Priority.BESIDE]) or jobs:
            self._num_passed_on += 1
            is_jobs_turn = jobs and (not others or self._num_passed_on % JOBS_EVERY == 0)
            waiting, queued = (jobs if is_jobs_turn else others).popleft()
            left_s = queued.ends - get_running_loop().time()
            if waiting.done() or left_s <= 0:  # its caller has gone, or its own timer is about to tell it
                continue
            if not (is_jobs_turn or queued.only_waits) and others and left_s < self._quick_s():
                waiting.set_exception(self._too_late())
                continue
            waiting.set_result(None)
            return
        self.free += 1

    async def _turn(self, queued: QueuedRequest) -> None:
        waiting: Future[None] = get_running_loop().create_future()
        queue = self._lines[queued.priority]
        if queued.priority == Priority.BESIDE and self._lines[Priority.LIVE]:
            raise Overloaded(NO_ROOM_BESIDE)
        queue.append((waiting, queued))
        if queued.priority == Priority.LIVE:
            for beside, _ in self._lines[Priority.BESIDE]:
                if not beside.done():
                    beside.set_exception(Overloaded(NO_ROOM_BESIDE))
            self._lines[Priority.BESIDE].clear()
        try:
            async with timeout_at(queued.ends):
                await waiting
        except BaseException as error:
            if (waiting, queued) in queue:
                queue.remove((waiting, queued))
            elif not waiting.cancelled() and waiting.exception() is None:
                self.take_back(queued, None)  # the permit came as the caller went
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    "No answer came in time: too many requests wait for the LLM."
                ) from None
            raise

    def _refuse_if_full(self, queued: QueuedRequest) -> None:
        live, beside = len(self._lines[Priority.LIVE]), len(self._lines[Priority.BESIDE])
        is_beside = queued.priority == Priority.BESIDE
        ahead = live + beside * is_beside + self._coming - self.free  # below 0: so many permits are free
        if ahead < 0:
            return
        if is_beside and (live or ahead >= self.max_waiting):
            raise Overloaded(NO_ROOM_BESIDE)  # nobody comes back for them alone
        typical_s = statistics.median(self._times) if self._times else 0.0
        wait_s = (ahead + 1) * typical_s / self.slots
        takes_s = statistics.median(self._draw_times) if self._draw_times and not queued.only_waits else 0.0
        left_s = queued.ends - get_running_loop().time()
        if ahead >= self.max_waiting:
            raise Overloaded("Too many requests wait for the LLM.", retry_after_s=self.retry_after_s())
        if left_s < wait_s + takes_s:
            raise self._too_late()

    def _too_late(self) -> Overloaded:
        """Return the error for a request to which a permit is not given: nobody would read its answer."""
        reason = "Too many requests wait for the LLM to answer this one before its deadline."
        return Overloaded(reason, retry_after_s=self.retry_after_s())

    def _quick_s(self) -> float:
        """Return what the quicker calls take: the lower quartile."""
        return statistics.quantiles(self._draw_times)[0] if len(self._draw_times) > 1 else 0.0

    def retry_after_s(self) -> float:
        """Return when to come back: after the queue, and after half of those who were told so before.

        All at once they would only be refused again, and a thousand refusals a second keep us from scoring.
        """
        now = get_running_loop().time()
        while self._returning and self._returning[0] <= now:
            self._returning.popleft()
        typical_s = statistics.median(self._times) if self._times else 0.0
        waiting = len(self._lines[Priority.LIVE]) + self._coming
        ahead = max(0, waiting - self.free + 1) + len(self._returning) / 2
        wait_s = ahead * typical_s / self.slots
        wait_s = min(MAX_RETRY_S, max(MIN_RETRY_S, wait_s))
        self._returning.append(now + wait_s)
        return wait_s
