"""The admission queue of an LLM server: it bounds running and waiting calls, and refuses the rest.

A request is admitted with all of its calls. Calls wait by priority. Samples that only score a chat answer are
refused while an answer waits, so they are the first to be dropped under load. Jobs are few (see `JOBS_SHARE`
in `app`) and never refused. While other calls wait, jobs get one free permit in `JOBS_EVERY`, so that neither
starves the other. Within a priority, API keys share the places and take turns.
"""

from asyncio import Future, get_running_loop, timeout_at
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from service.errors import DeadlineExceeded, Overloaded
from service.llm.port import Priority
from service.sharing import FairQueue, Places

JOBS_EVERY = 8  # under load, every eighth permit goes to a job
RECENT = 64
NO_ANSWER_IN_TIME = "No answer came in time: too many requests wait for the LLM."
NO_ROOM_BESIDE = "Other answers wait for the LLM, so none are drawn to score this one."


class Permit:
    """The right to one call, until `release`."""

    def __init__(self, queue: "AdmissionQueue", ended: Callable[[], None] = lambda: None) -> None:
        self._queue: AdmissionQueue | None = queue
        self._ended = ended

    def release(self) -> None:
        """Pass the permit on to the next call; idempotent."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.pass_on()
            self._ended()


class AdmissionQueue:
    """Runs `slots` calls at once and lets `max_waiting` more wait; further requests are refused.

    An instance belongs to one event loop.
    """

    def __init__(self, slots: int, max_waiting: int) -> None:
        self.slots = self.free = slots
        self.max_waiting = max_waiting
        self._admitted = {priority: Places(slots + max_waiting) for priority in Priority}
        self._lines = {priority: FairQueue[Future[None]]() for priority in Priority}
        self._num_passed_on = 0
        # Of the latest successful draws, without jobs and comparisons.
        self.took_s: deque[float] = deque(maxlen=RECENT)

    @property
    def num_running(self) -> int:
        """Return the number of calls with a permit."""
        return self.slots - self.free

    @property
    def num_waiting(self) -> int:
        """Return the number of calls that wait for a permit, including jobs."""
        return sum(map(len, self._lines.values()))

    @contextmanager
    def admitted(self, priority: Priority, calls: int = 1) -> Iterator[None]:
        """Count the calls of a request while the context is open. Raises Overloaded without waiting."""
        live, beside = self._admitted[Priority.LIVE], self._admitted[Priority.BESIDE]
        if priority == Priority.LIVE and not live.has_room():
            raise Overloaded("Too many requests wait for the LLM.")
        num_live = live.size - live.free
        if priority == Priority.BESIDE and (
            self._lines[Priority.LIVE] or not beside.has_room(others=num_live)
        ):
            raise Overloaded(NO_ROOM_BESIDE)
        with self._admitted[priority].held(calls):
            yield

    @asynccontextmanager
    async def one_call(self, max_wait_s: float) -> AsyncIterator[Permit]:
        """Yield a permit for a live request with one call. Raises Overloaded and DeadlineExceeded."""
        with ExitStack() as counted:
            counted.enter_context(self.admitted(Priority.LIVE))
            await self._turn(Priority.LIVE, get_running_loop().time() + max_wait_s)
            permit = Permit(self, counted.close)
            counted.callback(permit.release)
            yield permit

    async def permit(self, priority: Priority, ends: float) -> Permit:
        """Wait for a permit for a call that must end by `ends`, a time of the event loop's clock.

        Raises DeadlineExceeded at `ends`. Raises Overloaded, except for jobs, if the permit came so late that
        the remaining time is shorter than recent calls took.
        """
        has_waited = await self._turn(priority, ends)
        left_s = ends - get_running_loop().time()
        if has_waited and left_s < 0:  # in a busy loop the permit and the timeout may arrive together
            self.pass_on()
            raise DeadlineExceeded(NO_ANSWER_IN_TIME)
        # The answer would be too late, so the permit goes to a call that has the time.
        if has_waited and priority != Priority.JOB and left_s < self._most_s():
            self.pass_on()
            raise Overloaded("Too little time is left before the deadline: too many calls wait for the LLM.")
        return Permit(self)

    def pass_on(self) -> None:
        """Give a permit to the next waiting call, or free it."""
        self._num_passed_on += 1
        jobs = self._lines[Priority.JOB]
        while (others := self._lines[Priority.LIVE] or self._lines[Priority.BESIDE]) or jobs:
            is_jobs_turn = jobs and (not others or self._num_passed_on % JOBS_EVERY == 0)
            waiting = (jobs if is_jobs_turn else others).popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self.free += 1

    def _most_s(self) -> float:
        """Return the 98 % quantile of recent durations in seconds, at most twice the 90 % quantile."""
        took, last = sorted(self.took_s), len(self.took_s) - 1
        return min(took[int(0.98 * last)], 2 * took[int(0.9 * last)]) if took else 0.0

    async def _turn(self, priority: Priority, ends: float) -> bool:
        """Take a free permit, or wait for one; return True if the call has waited."""
        if self.free:
            self.free -= 1
            return False
        line, beside = self._lines[priority], self._lines[Priority.BESIDE]
        if priority == Priority.BESIDE and self._lines[Priority.LIVE]:
            raise Overloaded(NO_ROOM_BESIDE)
        if priority == Priority.LIVE:
            for future in beside:
                if not future.done():
                    future.set_exception(Overloaded(NO_ROOM_BESIDE))
            beside.clear()
        waiting: Future[None] = get_running_loop().create_future()
        line.append(waiting)
        try:
            async with timeout_at(ends):
                await waiting
        except BaseException as error:
            if waiting in line:
                line.remove(waiting)
            elif not waiting.cancelled() and waiting.exception() is None:
                self.pass_on()  # the permit arrived while the caller left
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(NO_ANSWER_IN_TIME) from None
            raise
        return True
