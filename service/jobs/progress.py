"""How far a stage of a job is, written to the store now and then; that of long work in a thread, too."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from service.errors import StoreUnavailable
from service.jobs.model import JobStage
from service.jobs.store import SqlJobs
from service.spectral.subsets import OnDone

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Progress:
    """Progress of one stage; writes are at least `every_s` apart."""

    def __init__(
        self, jobs: SqlJobs, job_id: str, stage: JobStage, total: int, *, every_s: float = 0.5
    ) -> None:
        self._jobs, self._job_id, self._stage, self._total = jobs, job_id, stage, total
        self._every_s = every_s
        self._done = 0
        self._written = time.monotonic()

    async def begin(self, done: int = 0) -> None:
        """Show the stage, in the log, too."""
        logger.info("job %s: %s, %d of %d done", self._job_id, self._stage, done, self._total)
        await self._jobs.stage(self._job_id, self._stage, self._total, done)

    async def advance(self, by: int = 1) -> None:
        """Count units done. Raises JobEndedError when the run must stop."""
        self._done += by
        if time.monotonic() - self._written >= self._every_s:
            self._written = time.monotonic()
            await self._jobs.progress(self._job_id, self._done)


class BrokenOffError(Exception):
    """Ends work in its thread, which cannot be cancelled."""


async def in_thread(work: Callable[[OnDone], T], stage: Callable[[int], Progress]) -> T:
    """Return what `work` returns; the stage, made for the units to do, begins with its first report.

    When the caller is cancelled, or the job has ended (JobEndedError), the next report of the work raises
    BrokenOffError there. A store that fails meanwhile costs no more than what would have been shown.
    """
    loop, reached = asyncio.get_running_loop(), asyncio.Queue[tuple[int, int]]()
    over = threading.Event()

    def report(done: int, total: int) -> None:
        if over.is_set():
            raise BrokenOffError
        loop.call_soon_threadsafe(reached.put_nowait, (done, total))

    working = asyncio.ensure_future(asyncio.to_thread(work, report))
    shown = asyncio.create_task(_show(reached, stage))
    try:
        await asyncio.wait({working, shown}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else shown.result()
    finally:
        over.set()
        for task in (working, shown):
            task.cancel()
        # Not `await shown`, whose end by this cancelling looks like a cancelling of the caller.
        await asyncio.wait({working, shown})


async def _show(reached: asyncio.Queue[tuple[int, int]], stage: Callable[[int], Progress]) -> NoReturn:
    done, total = await reached.get()
    progress = stage(total)
    with contextlib.suppress(StoreUnavailable):
        await progress.begin()
    while True:
        now, _ = await reached.get()
        with contextlib.suppress(StoreUnavailable):
            await progress.advance(now - done)
        done = now
