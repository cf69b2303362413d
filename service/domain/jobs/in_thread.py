"""Long work in a thread, shown from the event loop, and broken off once nobody waits for it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from service.domain.errors import StoreUnavailable
from service.domain.jobs.progress import Progress
from service.domain.jobs.store import LeaseLostError

T = TypeVar("T")
OnDone = Callable[[int, int], None]  # units done, units to do


class BrokenOffError(Exception):
    """Ends work in its thread, which cannot be cancelled."""


async def in_thread(work: Callable[[OnDone], T], stage: Callable[[int], Progress]) -> T:
    """Return what `work` returns; the stage, made for the units to do, begins with its first report.

    When the caller is cancelled, the next report of the work raises BrokenOffError there.
    """
    loop, reached = asyncio.get_running_loop(), asyncio.Queue[tuple[int, int]]()
    over = threading.Event()

    def report(done: int, total: int) -> None:
        if over.is_set():
            raise BrokenOffError
        loop.call_soon_threadsafe(reached.put_nowait, (done, total))

    shown = asyncio.create_task(_show(reached, stage))
    try:
        return await asyncio.to_thread(work, report)
    finally:
        over.set()
        shown.cancel()
        with contextlib.suppress(asyncio.CancelledError, StoreUnavailable, LeaseLostError):
            await shown


async def _show(reached: asyncio.Queue[tuple[int, int]], stage: Callable[[int], Progress]) -> None:
    done, total = await reached.get()
    shown = stage(total)
    await shown.begin()
    while True:
        now, _ = await reached.get()
        await shown.advance(now - done)
        done = now
