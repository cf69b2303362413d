"""Jobs and their rows in SQL: taking in, reading, and the fenced writes of a run."""

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.store import codec, submission
from service.adapters.store.active import ActiveCalibrations, current_id, make_current
from service.adapters.store.calibrations import insert_calibration
from service.adapters.store.database import Database
from service.adapters.store.rows import read_rows
from service.adapters.store.tables import dev_rows, evaluations, jobs
from service.domain.calibration import Calibration
from service.domain.errors import Conflict
from service.domain.ids import new_id
from service.domain.jobs.model import CalibrateOptions, DevRow, Job, JobError, JobStage
from service.domain.jobs.setup import Setup, differing, setup_key
from service.domain.jobs.store import (
    ActiveChangedError,
    ClaimedJob,
    Lease,
    LeaseLostError,
    OpenJob,
    StoredRow,
)
from service.domain.models import Draw, Fingerprint

_OPEN = jobs.c.state.in_(["queued", "running"])
_FAILED = jobs.c.state == "failed"


class SqlJobs:
    """Implements `service.domain.jobs.store.JobStore`, and what a job queue needs beside it.

    `setup`: the settings of this service, to which jobs posted here are bound.
    """

    def __init__(self, database: Database, active: ActiveCalibrations, *, setup: Setup | None = None) -> None:
        self._database = database
        self._active = active
        self.setup = setup or Setup()

    async def check(self) -> None:
        """Return when jobs can be stored; raise StoreUnavailable when not."""
        await self._database.check()

    async def submit(
        self,
        rows: AsyncIterable[DevRow] | Iterable[DevRow],
        options: CalibrateOptions,
        key: str | None = None,
    ) -> tuple[Job, bool]:
        """Store rows and job in one transaction; return the job and whether it is new (see `JobQueue`)."""
        found = await self._by_key(key)
        if found is not None:
            return await self._same(found, rows, options), False
        job_id = new_id("job")
        try:
            async with self._database.write() as connection:
                await submission.insert_job(connection, job_id, options, key)
                await submission.insert_rows(connection, job_id, rows, options, self.setup)
        except IntegrityError:  # the key was taken meanwhile: before any row was read
            found = await self._by_key(key)
            if found is None:
                raise
            return await self._same(found, rows, options), False
        return await self._existing(job_id), True

    async def _by_key(self, key: str | None) -> RowMapping | None:
        return None if key is None else await self._one(jobs.c.idempotency_key == key)

    async def _same(
        self,
        found: RowMapping,
        rows: AsyncIterable[DevRow] | Iterable[DevRow],
        options: CalibrateOptions,
    ) -> Job:
        if await submission.digest_of(rows, options) != found["content_hash"]:
            raise Conflict("This Idempotency-Key was used for another file or other options.")
        return codec.decode_job(found)

    async def _one(self, condition: sa.ColumnElement[bool]) -> RowMapping | None:
        async with self._database.read() as connection:
            return (await connection.execute(sa.select(jobs).where(condition))).mappings().one_or_none()

    async def _existing(self, job_id: str) -> Job:
        found = await self._one(jobs.c.id == job_id)
        if found is None:
            raise LookupError(job_id)
        return codec.decode_job(found)

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""
        found = await self._one(jobs.c.id == job_id)
        return None if found is None else codec.decode_job(found)

    async def latest(self, limit: int = 100) -> list[Job]:
        """Return the latest jobs, latest first."""
        query = sa.select(jobs).order_by(jobs.c.id.desc()).limit(limit)
        async with self._database.read() as connection:
            return [codec.decode_job(r) for r in (await connection.execute(query)).mappings()]

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a job that is open or has failed, forget its rows; raises Conflict when it has succeeded."""
        change = sa.update(jobs).where(jobs.c.id == job_id, sa.or_(_OPEN, _FAILED))
        ended = {"state": "cancelled", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        async with self._database.write() as connection:
            changed = (await connection.execute(change.values(ended))).rowcount
            if changed:
                await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == job_id))
        job = await self.get(job_id)
        if job is not None and job.state != "cancelled":
            raise Conflict(f"The job has {job.state} already.")
        return job

    async def retry(self, job_id: str) -> OpenJob | None:
        """Queue a job that failed, with the answers it has; None if unknown. See `JobQueue.retry`."""
        found = await self._one(jobs.c.id == job_id)
        if found is None:
            return None
        bound = await self._rebound(found)
        change = sa.update(jobs).where(jobs.c.id == job_id, _FAILED)
        ended = dict.fromkeys(("stage", "finished_at", "error_code", "error_detail"))
        async with self._database.write() as connection:
            changed = await connection.execute(change.values(ended | bound | {"state": "queued"}))
            if changed.rowcount != 1:
                raise Conflict(f"The job is {found['state']}: only one that has failed can be retried.")
            kept = sa.select(sa.func.count()).where(dev_rows.c.job_id == job_id)
            if (await connection.execute(kept)).scalar_one() != found["num_rows"]:
                raise Conflict("The rows of this job were not kept: post them again under a new key.")
        return OpenJob(job_id, bound["setup_key"])

    async def _rebound(self, found: RowMapping) -> dict[str, Any]:
        """Return the settings that a job goes on under: the present ones, which must fit its answers."""
        posted: dict[str, Any] | None = found["setup"]
        present = self.setup.parts(draws=True if posted is None else posted["draws"])
        differs = differing(posted or present, present)
        if differs and found["fingerprint"] is not None:
            raise Conflict(
                "This job has answers that were drawn under other settings, and cannot go on where these "
                f"differ: {', '.join(differs)}."
            )
        return {"setup": present, "setup_key": setup_key(present)}

    async def setup_of(self, job_id: str) -> dict[str, Any] | None:
        """Return the settings that a job was posted under; None where they are not known."""
        found = await self._one(jobs.c.id == job_id)
        return None if found is None else found["setup"]

    async def open_jobs(self) -> list[OpenJob]:
        """Return the jobs that have not finished, oldest first."""
        query = sa.select(jobs.c.id, jobs.c.setup_key).where(_OPEN).order_by(jobs.c.id)
        async with self._database.read() as connection:
            return [OpenJob(*row) for row in await connection.execute(query)]

    async def claim(
        self, job_id: str, owner: str, *, keys: Collection[str] | None = None
    ) -> ClaimedJob | None:
        """Take the job over, set it running; None if unknown, finished, or bound to other settings."""
        change = sa.update(jobs).where(jobs.c.id == job_id, _OPEN)
        if keys is not None:
            change = change.where(sa.or_(jobs.c.setup_key.in_(keys), jobs.c.setup_key.is_(None)))
        started = sa.func.coalesce(jobs.c.started_at, sa.literal(datetime.now(UTC), jobs.c.started_at.type))
        taken = {"state": "running", "owner": owner, "epoch": jobs.c.epoch + 1, "started_at": started}
        columns = (jobs.c.epoch, jobs.c.options, jobs.c.num_rows, jobs.c.fingerprint)
        async with self._database.write() as connection:
            found = (
                (await connection.execute(change.values(taken).returning(*columns))).mappings().one_or_none()
            )
        if found is None:
            return None
        return ClaimedJob(
            Lease(job_id, owner, found["epoch"]),
            codec.decode_options(found["options"]),
            found["num_rows"],
            codec.decode_fingerprint(found["fingerprint"]),
        )

    async def _fenced(self, connection: AsyncConnection, lease: Lease, **values: object) -> None:
        mine = (jobs.c.id == lease.job_id, jobs.c.epoch == lease.epoch, jobs.c.state == "running")
        # The epoch to itself: a write that changes nothing but dev rows has to lock the job, too.
        change = sa.update(jobs).where(*mine).values(epoch=jobs.c.epoch, **values)
        if (await connection.execute(change)).rowcount != 1:
            raise LeaseLostError(lease.job_id)

    async def _write(self, lease: Lease, **values: object) -> None:
        async with self._database.write() as connection:
            await self._fenced(connection, lease, **values)

    async def progress(
        self, lease: Lease, stage: JobStage, done: int, total: int, eta_s: float | None, note: str
    ) -> None:
        """Store how far the run is."""
        await self._write(lease, stage=stage, done=done, total=total, eta_s=eta_s, note=note)

    async def bind(self, lease: Lease, fingerprint: Fingerprint) -> None:
        """Store what the answers are drawn with."""
        await self._write(lease, fingerprint=codec.encode_fingerprint(fingerprint))

    async def fingerprint(self, job_id: str) -> Fingerprint | None:
        """Return what `bind` stored."""
        found = await self._one(jobs.c.id == job_id)
        return None if found is None else codec.decode_fingerprint(found["fingerprint"])

    def stored_rows(self, job_id: str, *, incomplete_only: bool = False) -> AsyncIterator[StoredRow]:
        """Yield the rows in file order, a page at a time."""
        return read_rows(self._database, job_id, incomplete_only=incomplete_only)

    async def keep_draws(self, lease: Lease, line: int, draws: Sequence[Draw], *, complete: bool) -> None:
        """Store all answers of a row drawn so far, committed on return."""
        row = sa.update(dev_rows).where(dev_rows.c.job_id == lease.job_id, dev_rows.c.line == line)
        async with self._database.write() as connection:
            await self._fenced(connection, lease)
            await connection.execute(row.values(draws=codec.encode_draws(draws), complete=complete))

    async def succeed(
        self,
        lease: Lease,
        calibration: Calibration,
        report: dict[str, Any],
        num_rows: int,
        *,
        activate: bool,
        compared_with: str | None = None,
    ) -> None:
        """Store calibration and report, activate it if told to, and end the job, in one transaction."""
        end = {"state": "succeeded", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        key = calibration.fingerprint.key()
        try:
            async with self._database.write() as connection:
                done = {"done": jobs.c.total, "calibration_id": calibration.id}
                await self._fenced(connection, lease, **done, **end)
                if activate:
                    await _still(compared_with, connection, key)
                await insert_calibration(connection, calibration, report, lease.job_id, num_rows)
                if activate:
                    await make_current(connection, calibration.id, key)
        except ActiveChangedError:
            await self._active.refresh()
            raise
        if activate:
            await self._active.refresh()

    async def keep_evaluation(self, lease: Lease, results: dict[str, Any]) -> None:
        """Store the results of an evaluation, forget its rows, and end the job, in one transaction."""
        end = {"state": "succeeded", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        async with self._database.write() as connection:
            await self._fenced(connection, lease, done=jobs.c.total, **end)
            await connection.execute(sa.insert(evaluations).values(job_id=lease.job_id, results=results))
            await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == lease.job_id))

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results of an evaluation."""
        query = sa.select(evaluations.c.results).where(evaluations.c.job_id == job_id)
        async with self._database.read() as connection:
            found: dict[str, Any] | None = (await connection.execute(query)).scalar_one_or_none()
        return found

    async def fail(self, lease: Lease, error: JobError) -> None:
        """End the job with an error; rows and answers stay, for it may be retried."""
        end = {"state": "failed", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        await self._write(lease, error_code=error.code, error_detail=error.detail, **end)


async def _still(expected: str | None, connection: AsyncConnection, fingerprint_key: str) -> None:
    if await current_id(connection, fingerprint_key) != expected:
        raise ActiveChangedError
