"""Jobs and calibrations in memory: for tests, and for trying the service without a database."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from service.calibration.calibration import Activation, CalibrateOptions, Calibration, CalibrationRecord
from service.calibration.rows import MIN_USABLE_ROWS, DevRow
from service.errors import Conflict, InvalidDevData
from service.ids import new_id
from service.jobs.model import Correction, Job
from service.llm.port import SERVICE
from tests.support.kept import Alone, MemoryKept
from tests.support.keys import MemoryKeys


class MemoryJobs:
    """Implements `JobQueue`. Nothing runs the jobs: `change` plays the part of a run."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._rows: dict[str, list[DevRow]] = {}
        self._by_key: dict[str, tuple[str, str]] = {}
        self._evaluations: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Condition()

    async def submit(
        self,
        rows: AsyncIterable[DevRow] | Iterable[DevRow],
        options: CalibrateOptions,
        *,
        idempotency_key: str | None = None,
    ) -> tuple[Job, bool]:
        """Keep the rows and a queued job."""
        kept = [row async for row in rows] if isinstance(rows, AsyncIterable) else list(rows)
        digest = hashlib.sha256(json.dumps([asdict(options), *map(asdict, kept)]).encode()).hexdigest()
        if idempotency_key in self._by_key:
            return self._same(self._by_key[idempotency_key], digest), False
        _check(kept, options)
        now = datetime.now(UTC)
        job = Job(new_id("job"), options.kind, "queued", now, name=options.name, total=len(kept))
        if idempotency_key is not None:
            self._by_key[idempotency_key] = (job.id, digest)
        self._jobs[job.id], self._rows[job.id] = job, kept
        return job, True

    def _same(self, known: tuple[str, str], digest: str) -> Job:
        job_id, known_digest = known
        if digest != known_digest:
            raise Conflict("This Idempotency-Key was used for another file or other options.")
        return self._jobs[job_id]

    def rows_of(self, job_id: str) -> list[DevRow]:
        """Return the rows of a job; none once it was cancelled."""
        return self._rows.get(job_id, [])

    async def change(self, job_id: str, **values: Any) -> Job:
        """Change a job as its run would, and wake those who watch it."""
        async with self._changed:
            self._jobs[job_id] = replace(self._jobs[job_id], **values)
            self._changed.notify_all()
        return self._jobs[job_id]

    async def keep_evaluation(self, job_id: str, results: dict[str, Any]) -> None:
        """End a job as an evaluation does."""
        self._evaluations[job_id] = results
        self._rows.pop(job_id, None)
        await self.change(job_id, state="succeeded", finished_at=datetime.now(UTC))

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results of an evaluation."""
        return self._evaluations.get(job_id)

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""
        return self._jobs.get(job_id)

    async def latest(self, *, limit: int = 100) -> list[Job]:
        """Return the latest jobs, latest first."""
        return list(reversed(self._jobs.values()))[:limit]

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job and forget its rows."""
        job = self._jobs.get(job_id)
        if job is None or job.state == "cancelled":
            return job
        if job.state == "succeeded":
            raise Conflict(f"The job has {job.state} already.")
        self._rows.pop(job_id, None)
        return await self.change(job_id, state="cancelled", finished_at=datetime.now(UTC))

    async def retry(self, job_id: str) -> Job | None:
        """Queue a job that failed."""
        job = self._jobs.get(job_id)
        if job is None:
            return None
        if job.state != "failed":
            raise Conflict(f"The job is {job.state}: only one that has failed can be retried.")
        return await self.change(job_id, state="queued", stage=None, error=None, finished_at=None)

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> Job | None:
        """Keep a queued job on the same rows with corrected verdicts."""
        if job_id not in self._jobs:
            return None
        right = {(one.line, one.id): one.correct for one in corrections}
        rows = [
            replace(row, correct=right.get((row.line, None), right.get((None, row.id), row.correct)))
            for row in self.rows_of(job_id)
        ]
        job, _ = await self.submit(rows, CalibrateOptions(**options))
        return job

    async def events(self, job_id: str) -> AsyncIterator[Job]:
        """Yield the job now and whenever it has changed."""
        job = self._jobs.get(job_id)
        while job is not None:
            yield job
            if job.finished:
                return
            seen = job
            async with self._changed:
                await self._changed.wait_for(lambda: self._jobs[job_id] != seen)  # noqa: B023  awaited here
                job = self._jobs[job_id]


class MemoryCalibrations:
    """Implements `service.jobs.model.CalibrationStore`."""

    def __init__(self) -> None:
        self._records: dict[str, CalibrationRecord] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, list[DevRow]] = {}
        self._active: list[str] = []  # latest activated first
        self._history: list[Activation] = []  # newest first

    async def add(
        self,
        calibration: Calibration,
        report: dict[str, Any],
        *,
        job_id: str | None = None,
        num_rows: int = 0,
        rows: Iterable[DevRow] = (),
    ) -> None:
        """Store a calibration with its report and rows."""
        if calibration.id in self._records:
            raise Conflict("A calibration of this id exists.")
        kept = list(rows)
        self._records[calibration.id] = CalibrationRecord(
            calibration, False, None, job_id, num_rows or len(kept), bool(kept)
        )
        self._reports[calibration.id], self._rows[calibration.id] = report, kept

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return the active calibration of a fingerprint."""
        return next((c for c in self.any_active() if c.fingerprint.key() == fingerprint_key), None)

    def any_active(self) -> list[Calibration]:
        """Return all active calibrations, latest activated first."""
        return [self._records[found].calibration for found in self._active]

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return a calibration by id."""
        record = self._records.get(calibration_id)
        return None if record is None else record.calibration

    async def list_all(self) -> list[CalibrationRecord]:
        """Return all calibrations, latest first."""
        return sorted(self._records.values(), key=lambda r: r.calibration.created_at, reverse=True)

    async def record(self, calibration_id: str) -> CalibrationRecord | None:
        """Return a calibration with what is known around it."""
        return self._records.get(calibration_id)

    async def list_active(self) -> list[CalibrationRecord]:
        """Return one calibration per fingerprint, the service's own first, then latest activated."""
        found = [self._records[calibration_id] for calibration_id in self._active]
        return sorted(found, key=lambda r: r.calibration.fingerprint.source != SERVICE)

    async def activate(self, calibration_id: str, *, by: str = "") -> CalibrationRecord | None:
        """Make this the active calibration of its fingerprint."""
        chosen = self._records.get(calibration_id)
        if chosen is None or chosen.active:
            return chosen
        key = chosen.calibration.fingerprint.key()
        before = self.active(key)
        replaced = None if before is None else before.id
        made = Activation(calibration_id, datetime.now(UTC), by, "Activated as asked.", replaced, key)
        self._history.insert(0, made)
        if before is not None:
            self._active.remove(before.id)
            self._records[before.id] = replace(self._records[before.id], active=False, activated_at=None)
        self._active.insert(0, calibration_id)
        self._records[calibration_id] = replace(chosen, active=True, activated_at=datetime.now(UTC))
        return self._records[calibration_id]

    def num_activations(self) -> int:
        """Return how many activations there ever were."""
        return len(self._history)

    async def history(self) -> list[Activation]:
        """Return every activation, newest first."""
        return list(self._history)

    async def report(self, calibration_id: str) -> dict[str, Any] | None:
        """Return the report made when it was fitted."""
        return self._reports.get(calibration_id)

    async def rows(self, calibration_id: str) -> AsyncIterator[DevRow]:
        """Yield the rows it was fitted on."""
        for row in self._rows.get(calibration_id, []):
            yield row

    async def forget_data(self, calibration_id: str) -> bool:
        """Delete its rows for good."""
        record = self._records.get(calibration_id)
        if record is not None:
            self._records[calibration_id] = replace(record, data_kept=False)
            self._rows[calibration_id] = []
        return record is not None


def _check(rows: list[DevRow], options: CalibrateOptions) -> None:
    asked = options.num_samples or 2
    usable = sum(r.usable() and (r.samples is None or len(r.samples) >= asked) for r in rows)
    supplied = sum(row.samples is not None for row in rows)
    if usable < MIN_USABLE_ROWS:
        raise InvalidDevData(
            f"{usable} of {len(rows)} rows are usable; at least {MIN_USABLE_ROWS} are needed."
        )
    if 0 < supplied < len(rows) and options.drawn_by != "service":
        raise InvalidDevData("Rows with and without samples need `drawn_by` to be `service`.")


class MemoryStore:
    """All in one, as the application wants them; nothing outlives the process."""

    def __init__(self) -> None:
        self.jobs = MemoryJobs()
        self.calibrations = MemoryCalibrations()
        self.kept = MemoryKept()
        self.keys = MemoryKeys()
        self.peers = Alone()

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def check(self) -> None:
        """Find nothing wrong."""
