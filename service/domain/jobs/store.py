"""What the calibration pipeline asks of the store. Every write of a run is fenced by its lease."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.domain.calibration import Calibration
from service.domain.jobs.model import CalibrateOptions, DevRow, JobError, JobStage, Verdict
from service.domain.models import Draw, Fingerprint


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
