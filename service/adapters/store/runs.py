"""What a run asks of the store: the claim, and writes that are fenced by it."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.store import codec
from service.adapters.store.active import ActiveCalibrations, current_id, log_activation, make_current
from service.adapters.store.calibrations import insert_calibration
from service.adapters.store.database import Database
from service.adapters.store.rows import read_rows
from service.adapters.store.tables import dev_rows, evaluations, jobs
from service.domain.calibration import Calibration
from service.domain.jobs.model import JobError, JobStage, Verdict
from service.domain.jobs.store import ActiveChangedError, ClaimedJob, Lease, LeaseLostError, StoredRow
from service.domain.models import Draw, Fingerprint

OPEN = jobs.c.state.in_(["queued", "running"])
REFUSED = dev_rows.c.refused.is_not(None)


class SqlRuns:
    """Implements `service.domain.jobs.store.JobStore`."""

    def __init__(self, database: Database, active: ActiveCalibrations) -> None:
        self._database = database
        self._active = active

    async def _one(self, condition: sa.ColumnElement[bool]) -> RowMapping | None:
        async with self._database.read() as connection:
            return (await connection.execute(sa.select(jobs).where(condition))).mappings().one_or_none()

    async def claim(
        self, job_id: str, owner: str, *, keys: Collection[str] | None = None
    ) -> ClaimedJob | None:
        """Take the job over from whoever ran it, set it running; None if unknown or finished.

        None, too, when it was posted under settings whose key is not among `keys`; None: any will do.
        """
        change = sa.update(jobs).where(jobs.c.id == job_id, OPEN)
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
            found = {"draws": codec.encode_draws(draws), "complete": complete, "refused": None}
            await connection.execute(row.values(found))

    async def refuse(self, lease: Lease, line: int, reason: str) -> None:
        """Store that the LLM server refused a row for good."""
        row = sa.update(dev_rows).where(dev_rows.c.job_id == lease.job_id, dev_rows.c.line == line)
        async with self._database.write() as connection:
            await self._fenced(connection, lease)
            await connection.execute(row.values(refused=reason))

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
        """Store calibration, report and verdicts, activate it if told to, end the job, in one transaction."""
        end = {"state": "succeeded", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        key, reason = calibration.fingerprint.key(), report.get("decision", {}).get("reason", "")
        try:
            async with self._database.write() as connection:
                done = {"done": jobs.c.total, "calibration_id": calibration.id, "activated": activate}
                told = {"decision": reason or None, "refused_rows": _refused_rows(lease)}
                await self._fenced(connection, lease, **done, **end, **told)
                if activate:
                    # After the fence, whose update takes the lock that `current_id` needs on SQLite.
                    await _still(compared_with, connection, key)
                await insert_calibration(connection, calibration, report, lease.job_id, num_rows)
                await _keep_verdicts(connection, lease, verdicts or {})
                if activate:
                    await make_current(connection, calibration.id, key, by=lease.job_id, reason=reason)
        except ActiveChangedError:
            await self._active.refresh()
            raise
        if activate:
            log_activation(calibration.id, lease.job_id, reason)
            await self._active.refresh()

    async def keep_evaluation(self, lease: Lease, results: dict[str, Any]) -> None:
        """Store the results of an evaluation, forget its rows, and end the job, in one transaction."""
        end = {"state": "succeeded", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        async with self._database.write() as connection:
            await self._fenced(connection, lease, done=jobs.c.total, **end)
            await connection.execute(sa.insert(evaluations).values(job_id=lease.job_id, results=results))
            await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == lease.job_id))

    async def fail(self, lease: Lease, error: JobError) -> None:
        """End the job with an error; rows and answers stay, for it may be retried."""
        end = {"state": "failed", "finished_at": datetime.now(UTC), "eta_s": None, "note": ""}
        told = {"error_code": error.code, "error_detail": error.detail, "refused_rows": _refused_rows(lease)}
        await self._write(lease, **told, **end)


def _refused_rows(lease: Lease) -> sa.ScalarSelect[int]:
    mine = (dev_rows.c.job_id == lease.job_id, REFUSED)
    return sa.select(sa.func.count()).where(*mine).scalar_subquery()


async def _keep_verdicts(connection: AsyncConnection, lease: Lease, verdicts: Mapping[int, Verdict]) -> None:
    if not verdicts:
        return
    row = (dev_rows.c.job_id == lease.job_id, dev_rows.c.line == sa.bindparam("at"))
    change = sa.update(dev_rows).where(*row).values(verdict=sa.bindparam("told"))
    told = [{"at": line, "told": asdict(verdict)} for line, verdict in verdicts.items()]
    await connection.execute(change, told)


async def _still(expected: str | None, connection: AsyncConnection, fingerprint_key: str) -> None:
    if await current_id(connection, fingerprint_key) != expected:
        raise ActiveChangedError
