"""How far a run is, written to the store now and then; that of long work in a thread, too."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from service.domain.errors import StoreUnavailable
from service.domain.jobs.model import JobStage
from service.domain.jobs.store import JobStore, Lease, LeaseLostError
from service.spectral.subsets import OnDone

T = TypeVar("T")
logger = logging.getLogger(__name__)

NOTE_AGAIN_S = 60.0  # a wait that comes and goes is told to the log this often at most


class Progress:
    """Progress of one stage. Writes are at least `every_s` apart, but for the first and for changed notes."""

    def __init__(
        self,
        store: JobStore,
        lease: Lease,
        stage: JobStage,
        total: int,
        *,
        done: int = 0,
        every_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._lease, self._stage = store, lease, stage
        self._total, self._done, self._done_before = total, done, done
        self._every_s, self._clock = every_s, clock
        self._began = clock()
        self._written = float("-inf")
        self._note = ""
        self._logged, self._logged_at = "", float("-inf")

    async def begin(self) -> None:
        """Show the stage, in the log, too."""
        logger.info("job %s: %s, %d of %d done", self._lease.job_id, self._stage, self._done, self._total)
        await self._write()

    async def advance(self, by: int = 1) -> None:
        """Count units done. Raises LeaseLostError when the run must stop."""
        self._done += by
        changed, self._note = bool(self._note), ""
        if changed or self._clock() - self._written >= self._every_s:
            await self._write()

    async def note(self, text: str) -> None:
        """Say what the run waits for; gone with the next unit done."""
        if text != self._note:
            self._note = text
            self._log(text)
            await self._write()

    def _log(self, text: str) -> None:
        now = self._clock()
        if text != self._logged or now - self._logged_at >= NOTE_AGAIN_S:
            self._logged, self._logged_at = text, now
            logger.warning("job %s: %s", self._lease.job_id, text)

    def eta_s(self) -> float | None:
        """Return the seconds left at this run's own pace so far; None before its first unit."""
        here = self._done - self._done_before
        if here <= 0:
            return None
        return (self._total - self._done) * (self._clock() - self._began) / here

    async def _write(self) -> None:
        self._written = self._clock()
        eta = self.eta_s()
        await self._store.progress(self._lease, self._stage, self._done, self._total, eta, self._note)


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
