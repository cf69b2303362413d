"""Places and turns that callers share, key by key: a busy key leaves room for the others.

The keys of callers who need none count as one, which may take all places: sharing out between those callers
is the reverse proxy's.
"""

import asyncio
import time
from asyncio import Future, get_running_loop
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar

from service.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")

# The key of the request under way, as `owner_of` returns it; "" where none is needed, and for jobs.
OWNER = ContextVar("owner", default="")

# A key may hold this many times as many places as stay free: a key alone gets four places in five, each of
# two busy keys four in nine (Choudhury and Hahne, 1998). Only a key that holds none takes the last place.
SHARE = 4


class Places:
    """Bounds the sum of the sizes that are held, over all keys and for each key."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held = Counter[str]()

    @property
    def free(self) -> int:
        """Return how many places are free; below 0 after a large one was taken."""
        return self.size - self._held.total()

    def has_room(self, *, others: int = 0) -> bool:
        """Return True if the present key may take a place. others: places that are held elsewhere."""
        free, owner = self.free - others, OWNER.get()
        held = self._held[owner]
        return free > 0 and (not owner or not held or held < SHARE * (free - 1))

    @contextmanager
    def held(self, number: int = 1) -> Iterator[None]:
        """Hold places for the present key. Ask `has_room` before."""
        owner = OWNER.get()
        self._held[owner] += number
        try:
            yield
        finally:
            self._held[owner] -= number
            if not self._held[owner]:
                del self._held[owner]


class Line(Generic[T]):
    """A queue that serves the keys in turn, and the items of each key in the order of their coming."""

    def __init__(self) -> None:
        self._by_owner: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def __iter__(self) -> Iterator[T]:
        for line in self._by_owner.values():
            yield from line

    def append(self, item: T) -> None:
        """Add an item of the present key."""
        self._by_owner.setdefault(OWNER.get(), deque()).append(item)

    def popleft(self) -> T:
        """Remove and return the next item. Raises StopIteration for an empty line."""
        owner = next(iter(self._by_owner))
        line = self._by_owner.pop(owner)
        item = line.popleft()
        if line:
            self._by_owner[owner] = line  # behind the other keys
        return item

    def remove(self, item: T) -> None:
        """Remove an item that is in the line."""
        owner = next(owner for owner, line in self._by_owner.items() if item in line)
        self._by_owner[owner].remove(item)
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def clear(self) -> None:
        """Remove all items."""
        self._by_owner.clear()


class Turns:
    """Lets `slots` callers in at once, and then the keys in turn. Of one event loop."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._line = Line[Future[None]]()

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pass_on()

    async def take(self) -> None:
        """Return when it is the caller's turn, which lasts until `pass_on`."""
        if self._free:
            self._free -= 1
            return
        waiting: Future[None] = get_running_loop().create_future()
        self._line.append(waiting)
        try:
            await waiting
        except BaseException:
            if waiting in self._line:
                self._line.remove(waiting)
            elif not waiting.cancelled():
                self.pass_on()  # the turn came as the caller went
            raise

    def pass_on(self) -> None:
        """Give the turn to the next caller that waits."""
        while self._line:
            waiting = self._line.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1


PIECE_S = 0.05  # of long work: then the next caller takes a turn


class Threads:
    """A few threads for the work of callers alone: nothing else waits for them, and keys take turns.

    Work that has not begun ends with its caller. Work under way keeps its thread until it is done, so long
    work goes in pieces.
    """

    def __init__(self, name: str, number: int = 2, *, max_waiting: int = 256) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._turns = Turns(number)
        self._waiting = Places(max_waiting)

    async def stop(self) -> None:
        """Wait for the work under way; idempotent."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the work returns. Raises Overloaded when too much waits."""
        if not self._waiting.has_room():
            raise Overloaded("Too many computations wait for a thread.", retry_after_s=1.0)
        with self._waiting.held():
            await self._turns.take()
        try:
            running = get_running_loop().run_in_executor(self._pool, partial(work, *args, **kwargs))
        except BaseException:
            self._turns.pass_on()
            raise
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    async def collect(self, items: Iterator[T]) -> list[T]:
        """Return all items of an iterator that computes them, a piece of the work at each turn."""
        found, is_done = list[T](), False
        while not is_done:
            piece, is_done = await self.run(_piece, items)
            found += piece
        return found

    def _ended(self, running: "Future[T]") -> None:
        self._turns.pass_on()
        if not running.cancelled():
            running.exception()  # the caller may have left


def _piece(items: Iterator[T]) -> tuple[list[T], bool]:
    """Return the items that `PIECE_S` is enough for, and whether they were the last."""
    found, ends = list[T](), time.perf_counter() + PIECE_S
    for item in items:
        found.append(item)
        if time.perf_counter() >= ends:
            return found, False
    return found, True
