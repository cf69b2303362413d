"""What the calibration pipeline asks of the store. Every write of a run is fenced by its lease."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from service.calibration.calibration import Calibration
from service.errors import StoreUnavailable
from service.jobs.model import CalibrateOptions, DevRow, JobError, JobStage, Verdict
from service.llm.port import Draw, Fingerprint
from service.spectral.subsets import OnDone


class ActiveChangedError(Exception):
    """Another calibration became the active one since the two were compared: compare again.

    No EigencalError: no caller of the API ever sees it.
    """


class LeaseLostError(Exception):
    """Another run has claimed the job, or it was cancelled: the run that hears this must stop.

    No EigencalError: no caller of the API ever sees it.
    """


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for a job. Each claim raises the epoch; writes of an older epoch are refused."""

    job_id: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job as its run finds it. `fingerprint`: what earlier runs drew answers with, None before any."""

    lease: Lease
    options: CalibrateOptions
    num_rows: int
    fingerprint: Fingerprint | None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A dev row and its answers: those it came with (then `complete`), or those drawn so far.

    `refused`: what the LLM server said that refused it for good; None unless it did.
    """

    row: DevRow
    draws: tuple[Draw, ...]
    complete: bool
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that has not finished.

    `setup_key`: of the settings that it was posted under (`setup.py`), None for jobs of releases
    that did not keep them.
    """

    job_id: str
    setup_key: str | None = None


class JobStore(Protocol):
    """Rows, progress and results of jobs.

    Methods that take a lease raise LeaseLostError and change nothing when it is no longer the latest or the
    job has finished. All raise StoreUnavailable when the store cannot be reached.
    """

    async def progress(
        self, lease: Lease, stage: JobStage, done: int, total: int, eta_s: float | None, note: str
    ) -> None:
        """Store how far the run is."""

    async def bind(self, lease: Lease, fingerprint: Fingerprint) -> None:
        """Store what the answers are drawn with, before the first is kept."""

    async def fingerprint(self, job_id: str) -> Fingerprint | None:
        """Return what `bind` stored."""

    def stored_rows(self, job_id: str, *, incomplete_only: bool = False) -> AsyncIterator[StoredRow]:
        """Yield the rows in file order, a bounded number in memory."""

    async def keep_draws(self, lease: Lease, line: int, draws: Sequence[Draw], *, complete: bool) -> None:
        """Store all answers of a row drawn so far, committed on return; it is not refused then."""

    async def refuse(self, lease: Lease, line: int, reason: str) -> None:
        """Store that the LLM server refused a row for good; it keeps its answers and stays incomplete."""

    async def succeed(
        self,
        lease: Lease,
        calibration: Calibration,
        report: dict[str, Any],
        num_rows: int,
        *,
        activate: bool,
        compared_with: str | None = None,
        verdicts: Mapping[int, Verdict] | None = None,
    ) -> None:
        """Store calibration, report and verdicts, activate it if told to, end the job, in one transaction.

        `verdicts`: by line of the row. Raises ActiveChangedError, and changes nothing, when it is to be
        activated but the active calibration of its fingerprint is not `compared_with` (an id; None: none was
        active).
        """

    async def keep_evaluation(self, lease: Lease, results: dict[str, Any]) -> None:
        """Store the results of an evaluation, forget its rows, and end the job, in one transaction."""

    async def fail(self, lease: Lease, error: JobError) -> None:
        """End the job with an error; its rows and the answers drawn so far stay, for it may be retried."""


# How far a run is, written to the store now and then; that of long work in a thread, too.

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
