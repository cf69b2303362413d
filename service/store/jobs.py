"""What a run asks of the store: the claim, and writes that are fenced by it."""

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import Calibration
from service.errors import Conflict, InvalidRequest
from service.ids import new_id
from service.jobs.intake import digest_of
from service.jobs.model import (
    CalibrateOptions,
    Correction,
    DevRow,
    Job,
    JobError,
    JobStage,
    Setup,
    Verdict,
    differing,
    setup_key,
)
from service.jobs.store import ActiveChangedError, ClaimedJob, Lease, LeaseLostError, OpenJob, StoredRow
from service.llm.port import Draw, Fingerprint
from service.store import codec
from service.store.active import ActiveCalibrations, current_id, log_activation, make_current
from service.store.calibrations import insert_calibration
from service.store.database import Database
from service.store.rows import insert_job, insert_rows, read_rows
from service.store.tables import dev_rows, evaluations, jobs

OPEN = jobs.c.state.in_(["queued", "running"])
REFUSED = dev_rows.c.refused.is_not(None)


class SqlRuns:
    """Implements `service.jobs.store.JobStore`."""

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


# Jobs in SQL: taking in, reading, ending and trying again.

_FAILED = jobs.c.state == "failed"
NOT_KEPT = "The rows of this job were not kept: post them again under a new key."


class SqlJobs(SqlRuns):
    """What a job queue needs of the store, beside what its runs do.

    `setup`: the settings of this service, to which jobs posted here are bound.
    """

    def __init__(self, database: Database, active: ActiveCalibrations, *, setup: Setup | None = None) -> None:
        super().__init__(database, active)
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
                await insert_job(connection, job_id, options, key)
                await insert_rows(connection, job_id, rows, options, self.setup)
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
        if await digest_of(rows, options) != found["content_hash"]:
            raise Conflict("This Idempotency-Key was used for another file or other options.")
        return codec.decode_job(found)

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
        change = sa.update(jobs).where(jobs.c.id == job_id, sa.or_(OPEN, _FAILED))
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
        """Queue a job that failed, or a new one for refused rows; None if unknown. See `JobQueue.retry`."""
        found = await self._one(jobs.c.id == job_id)
        if found is None:
            return None
        bound = await self._rebound(found)
        if found["state"] == "succeeded" and found["refused_rows"]:
            # Another job: the rows of this one are those that its calibration was fitted on.
            return await self._successor(found, bound)
        change = sa.update(jobs).where(jobs.c.id == job_id, _FAILED)
        ended = dict.fromkeys(("stage", "finished_at", "error_code", "error_detail"))
        async with self._database.write() as connection:
            again = ended | bound | {"state": "queued", "refused_rows": 0}
            changed = await connection.execute(change.values(again))
            if changed.rowcount != 1:
                raise Conflict(
                    f"The job is {found['state']}: only one that has failed, or that lacks answers to some "
                    "of its rows, can be retried."
                )
            # After the update, under its lock: rows may be forgotten by a cancel until then.
            kept = sa.select(sa.func.count()).where(dev_rows.c.job_id == job_id)
            if (await connection.execute(kept)).scalar_one() != found["num_rows"]:
                raise Conflict(NOT_KEPT)
        return OpenJob(job_id, bound["setup_key"])

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> OpenJob | None:
        """Queue a job on the same rows and answers with corrected verdicts. See `JobQueue.correct`."""
        found = await self._one(jobs.c.id == job_id)
        if found is None:
            return None
        return await self._successor(found, await self._rebound(found), corrections, options)

    async def _successor(
        self,
        found: RowMapping,
        bound: Mapping[str, Any],
        corrections: Sequence[Correction] = (),
        options: Mapping[str, Any] | None = None,
    ) -> OpenJob:
        """Queue a job with the rows and answers of one that succeeded.

        It asks for what is missing, unless there are corrections. Raises Conflict, InvalidRequest.
        """
        job_id = new_id("job")
        copied = {name: found[name] for name in ("kind", "fingerprint", "num_rows", "content_hash")}
        begun = {
            "id": job_id,
            "state": "queued",
            "total": found["num_rows"],
            "done": 0,
            "epoch": 0,
            "note": "",
        }
        told = {"options": found["options"] | dict(options or {}), "created_at": datetime.now(UTC)}
        rows = sa.select(
            sa.literal(job_id),
            dev_rows.c.line,
            dev_rows.c.content,
            dev_rows.c.draws,
            sa.true() if corrections else dev_rows.c.complete,
            dev_rows.c.refused if corrections else sa.null(),
        ).where(dev_rows.c.job_id == found["id"])
        columns = ["job_id", "line", "content", "draws", "complete", "refused"]
        async with self._database.write() as connection:
            await connection.execute(sa.insert(jobs).values(copied | begun | told | dict(bound)))
            copy = await connection.execute(sa.insert(dev_rows).from_select(columns, rows))
            if copy.rowcount != found["num_rows"]:
                raise Conflict(NOT_KEPT)
            await _correct(connection, job_id, corrections)
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
        query = sa.select(jobs.c.id, jobs.c.setup_key).where(OPEN).order_by(jobs.c.id)
        async with self._database.read() as connection:
            return [OpenJob(*row) for row in await connection.execute(query)]

    async def evaluation(self, job_id: str) -> dict[str, Any] | None:
        """Return the results of an evaluation."""
        query = sa.select(evaluations.c.results).where(evaluations.c.job_id == job_id)
        async with self._database.read() as connection:
            found: dict[str, Any] | None = (await connection.execute(query)).scalar_one_or_none()
        return found


async def _correct(connection: AsyncConnection, job_id: str, corrections: Sequence[Correction]) -> None:
    """Write the verdicts into the rows. Raises InvalidRequest for a row that is not there."""
    if not corrections:
        return
    query = sa.select(dev_rows.c.line, dev_rows.c.content).where(dev_rows.c.job_id == job_id)
    content = {row.line: row.content for row in await connection.execute(query)}
    line_of = {found["id"]: line for line, found in content.items() if found["id"] is not None}
    changed: dict[int, dict[str, Any]] = {}
    for position, one in enumerate(corrections):
        line = one.line if one.id is None else line_of.get(one.id)
        if line is None or line not in content:
            field, said = ("line", one.line) if one.id is None else ("id", one.id)
            told = f"no row of this calibration has the {field} {said!r}"
            raise InvalidRequest(f"{told}.", [{"loc": ["body", "rows", position, field], "msg": told}])
        if line in changed and changed[line]["correct"] != one.correct:
            told = f"two verdicts on one row, of line {line}"
            raise InvalidRequest(f"{told}.", [{"loc": ["body", "rows", position], "msg": told}])
        changed[line] = content[line] | {"correct": one.correct}
    row = (dev_rows.c.job_id == job_id, dev_rows.c.line == sa.bindparam("at"))
    change = sa.update(dev_rows).where(*row).values(content=sa.bindparam("said"))
    await connection.execute(change, [{"at": line, "said": said} for line, said in changed.items()])
