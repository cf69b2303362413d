"""The queue of calls to an LLM server: it bounds running and waiting calls, and refuses the rest.

Calls wait in the order of their arrival, and keys take turns. Calls of jobs count as if they had arrived
later, so they let live calls pass, but not for ever. Samples that only score a chat answer are refused while
an answer waits, so they are the first to be dropped under load. Jobs are few (see `JOBS_SHARE` in `app`) and
never refused.
"""

import itertools
from asyncio import Future, get_running_loop, timeout_at
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from service.errors import DeadlineExceeded, Overloaded
from service.llm.prompt import Priority
from service.sharing import OWNER, Places

LATE_S = {Priority.LIVE: 0.0, Priority.BESIDE: 0.0, Priority.JOB: 30.0}
NO_ROOM_BESIDE = "Other answers wait for the LLM, so none are drawn to score this one."


class CallQueue:
    """Runs `slots` calls at once and lets `max_waiting` more wait; further requests are refused.

    An instance belongs to one event loop.
    """

    def __init__(self, slots: int, max_waiting: int) -> None:
        self.slots = self.free = slots
        self.max_waiting = max_waiting
        self._admitted = {priority: Places(slots + max_waiting) for priority in Priority}
        self._numbers = itertools.count()
        # The calls that wait: when each is due, the number of its arrival, its priority, key and future.
        self._line: list[tuple[float, int, Priority, str, Future[None]]] = []
        self._served: dict[str, int] = {}  # when each key had its last turn, as a number of `_numbers`

    @property
    def num_running(self) -> int:
        """Return the number of calls with a permit."""
        return self.slots - self.free

    @property
    def num_waiting(self) -> int:
        """Return the number of calls waiting for a permit, including the calls of jobs."""
        return sum(map(self._waiting, Priority))

    @contextmanager
    def admitted(self, priority: Priority, calls: int = 1) -> Iterator[None]:
        """Count the calls of a request in the context. Raises Overloaded if there is no room for it.

        An admitted request may wait with all of its calls. Keys share the places.
        """
        live, beside = self._admitted[Priority.LIVE], self._admitted[Priority.BESIDE]
        if priority == Priority.LIVE and not live.has_room():
            raise Overloaded("Too many requests wait for the LLM.")
        if priority == Priority.BESIDE and (
            self._waiting(Priority.LIVE) or not beside.has_room(others=live.size - live.free)
        ):
            raise Overloaded(NO_ROOM_BESIDE)
        with self._admitted[priority].held(calls):
            yield

    @asynccontextmanager
    async def permit(self, priority: Priority, ends: float) -> AsyncIterator[ExitStack]:
        """Wait for the right to one call, until `ends` on the loop's clock, and hold it in the context.

        Closing the stack that it yields returns the permit early. Raises DeadlineExceeded at `ends`, and
        Overloaded for samples beside an answer while a live call waits.
        """
        if self.free:
            self.free -= 1
        else:
            await self._turn(priority, ends)
        with ExitStack() as held:
            held.callback(self._pass_on)
            yield held

    def _waiting(self, priority: Priority) -> int:
        return sum(of == priority and not turn.done() for _, _, of, _, turn in self._line)

    async def _turn(self, priority: Priority, ends: float) -> None:
        self._line = [call for call in self._line if not call[-1].done()]
        if priority == Priority.BESIDE and self._waiting(Priority.LIVE):
            raise Overloaded(NO_ROOM_BESIDE)
        if priority == Priority.LIVE:
            for _, _, of, _, other in self._line:
                if of == Priority.BESIDE:
                    other.set_exception(Overloaded(NO_ROOM_BESIDE))
        loop = get_running_loop()
        turn: Future[None] = loop.create_future()
        # Due halfway to its end at the latest, so that a call of a job still runs.
        due = min(loop.time() + LATE_S[priority], (loop.time() + ends) / 2)
        self._line.append((due, next(self._numbers), priority, OWNER.get(), turn))
        try:
            async with timeout_at(ends):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # the permit arrived while the caller left
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    "No answer came in time: too many requests wait for the LLM."
                ) from None
            raise

    def _pass_on(self) -> None:
        self._line = [call for call in self._line if not call[-1].done()]
        if not self._line:
            self._served.clear()
            self.free += 1
            return
        _, _, priority, _, _ = min(self._line)
        of_priority = [call for call in self._line if call[2] == priority]
        _, _, _, owner, turn = min(of_priority, key=lambda call: (self._served.get(call[3], -1), call))
        self._served[owner] = next(self._numbers)
        turn.set_result(None)
