"""How far a stage of a job is, written to the store now and then; that of long work in a thread, too."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from service.errors import SAID
from service.jobs.model import JobStage
from service.jobs.store import SqlJobs
from service.spectral.subsets import OnDone

T = TypeVar("T")
logger = logging.getLogger(__name__)

LOG_AGAIN_S = 60.0  # a wait that comes and goes is logged this often at most


class Notes:
    """What jobs wait for, as their owners see it; the log has it, too."""

    def __init__(self, jobs: SqlJobs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock = clock
        self._logged: dict[str, tuple[str, float]] = {}  # by job

    async def note(self, job_id: str, text: str) -> None:
        """Say what a job waits for; gone with its next progress. Raises JobEndedError."""
        last, at = self._logged.get(job_id, ("", float("-inf")))
        if text != last or self._clock() - at >= LOG_AGAIN_S:
            self._logged[job_id] = text, self._clock()
            # What the LLM server said may repeat the prompt.
            logger.warning("job %s: %s", job_id, text.partition(SAID)[0])
        await self._jobs.note(job_id, text)

    def forget(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self._logged.pop(job_id, None)


class Progress:
    """Progress of one stage; writes are at least `every_s` apart."""

    def __init__(
        self,
        jobs: SqlJobs,
        job_id: str,
        stage: JobStage,
        total: int,
        *,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs, self._job_id, self._stage, self._total = jobs, job_id, stage, total
        self._every_s, self._clock = every_s, clock
        self._done = 0
        self._written = clock()

    async def begin(self, done: int = 0) -> None:
        """Show the stage, in the log, too."""
        logger.info("job %s: %s, %d of %d done", self._job_id, self._stage, done, self._total)
        await self._jobs.stage(self._job_id, self._stage, self._total, done)

    async def advance(self, by: int = 1) -> None:
        """Count units done. Raises JobEndedError when the run must stop."""
        self._done += by
        if self._clock() - self._written >= self._every_s:
            self._written = self._clock()
            await self._jobs.progress(self._job_id, self._done)


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
        # Not `await shown`, whose end by this cancelling looks like a cancelling of the caller.
        await asyncio.wait({shown})
        if not shown.cancelled() and (error := shown.exception()) is not None:
            logger.warning("progress was not shown to the end: %s", type(error).__name__)


async def _show(reached: asyncio.Queue[tuple[int, int]], stage: Callable[[int], Progress]) -> None:
    done, total = await reached.get()
    progress = stage(total)
    await progress.begin()
    while True:
        now, _ = await reached.get()
        await progress.advance(now - done)
        done = now
