"""Places, slots and threads that keys share: a busy key leaves room for the others.

Callers without keys count as one key, which may take all places. Only a reverse proxy can share the service
among those callers.
"""

import asyncio
import time
from asyncio import Future, get_running_loop
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Barrier
from typing import ParamSpec, TypeVar

from service.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")

# The key of the current request, as `Keys.admit` returns it; "" for callers without keys and for jobs.
OWNER = ContextVar("owner", default="")

# A key may hold up to this multiple of the free places: a single busy key gets four fifths of the places,
# each of two busy keys four ninths (Choudhury and Hahne, 1998). The last place is for a key that holds none.
SHARE = 4


class Places:
    """Limits the number of places that are held, in total and for each key."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size  # below 0 if the last holder took more than were free
        self._held = Counter[str]()

    def has_room(self, *, others: int = 0) -> bool:
        """Return True if the current key may take a place. others: places that count as taken, too."""
        free, owner = self.free - others, OWNER.get()
        held = self._held[owner]
        return free > 0 and (not owner or not held or held < SHARE * (free - 1))

    @contextmanager
    def held(self, number: int = 1) -> Iterator[None]:
        """Hold places for the current key. Call `has_room` first: this method does not."""
        owner = OWNER.get()
        self._held[owner] += number
        self.free -= number
        try:
            yield
        finally:
            self.free += number
            self._held[owner] -= number
            if not self._held[owner]:
                del self._held[owner]


class FairSemaphore:
    """A semaphore that serves waiting keys in turn, and the callers of a key in order. For one event loop."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[str, deque[Future[None]]] = {}

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def acquire(self) -> None:
        """Wait for a slot."""
        if self._free:
            self._free -= 1
            return
        turn: Future[None] = get_running_loop().create_future()
        line = self._waiting.setdefault(OWNER.get(), deque())
        line.append(turn)
        try:
            await turn
        except BaseException:
            if turn in line:
                line.remove(turn)
            elif not turn.cancelled():
                self.release()  # the caller was cancelled after it got its slot
            raise

    def release(self) -> None:
        """Give the slot to the next caller that waits."""
        while self._waiting:
            owner = next(iter(self._waiting))
            line = self._waiting.pop(owner)
            turn = line.popleft() if line else None
            if line:
                self._waiting[owner] = line  # behind the other keys
            if turn is not None and not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def started_pool(name: str, number: int) -> ThreadPoolExecutor:
    """Return a pool with all its threads running. By default, a pool starts threads as the load grows."""
    pool = ThreadPoolExecutor(number, thread_name_prefix=name)
    together = Barrier(number)
    for _ in range(number):
        pool.submit(together.wait)  # a pool starts another thread only if none is idle
    return pool


PIECE_S = 0.05  # length of a piece of long work; then the next caller takes a turn


class Threads:
    """A few threads for the work of callers, apart from all other threads. Keys take turns.

    Work that has not begun is dropped if its caller leaves. Running work keeps its thread until it is done,
    so long work is split into pieces.
    """

    def __init__(self, name: str, number: int = 2, *, max_waiting: int = 256) -> None:
        self._pool = started_pool(name, number)
        self._semaphore = FairSemaphore(number)
        self._waiting = Places(max_waiting)

    async def stop(self) -> None:
        """Wait for running work; idempotent."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of the work. Raises Overloaded if too many calls wait."""
        if not self._waiting.has_room():
            raise Overloaded("Too many computations wait for a thread.", retry_after_s=1.0)
        with self._waiting.held():
            await self._semaphore.acquire()
        try:
            running = get_running_loop().run_in_executor(
                self._pool, partial(copy_context().run, work, *args, **kwargs)
            )
        except BaseException:
            self._semaphore.release()
            raise
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    async def collect(self, items: Iterator[T]) -> list[T]:
        """Return all items of an iterator that computes them, one piece of the work in each turn."""
        computed, is_done = list[T](), False
        while not is_done:
            piece, is_done = await self.run(_piece, items)
            computed += piece
        return computed

    def _ended(self, running: "Future[T]") -> None:
        self._semaphore.release()
        if not running.cancelled():
            running.exception()  # asyncio would log an error that nobody reads, and the caller may have left


def _piece(items: Iterator[T]) -> tuple[list[T], bool]:
    """Return the items that are computed in `PIECE_S`, and True if they are the last."""
    piece, ends = list[T](), time.perf_counter() + PIECE_S
    for item in items:
        piece.append(item)
        if time.perf_counter() >= ends:
            return piece, False
    return piece, True
