"""Jobs and their rows in SQL. A job that has ended accepts no writes, which ends a stray run.

A frozen replica that wakes up may run the same job as the peer that took it over. A repeated write changes
nothing, or raises JobEndedError.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar, get_args

import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import Calibration, Fingerprint
from service.calibration.rows import MIN_USABLE_ROWS, DevRow, Verdict, draws_to_json
from service.calibration.store import (
    SqlCalibrations,
    decode_row,
    encode_row,
    insert_calibration,
    log_activation,
    make_current,
    read_rows,
)
from service.errors import SERVER_MESSAGE, Conflict, InvalidDevData, InvalidRequest, StoreUnavailable
from service.ids import new_id
from service.jobs.model import (
    Correction,
    Job,
    JobError,
    JobOptions,
    JobStage,
    JobState,
    Setup,
    differing,
)
from service.llm.ask import Reply
from service.llm.prompt import shape_hash
from service.llm.samples import Draw
from service.store.database import Database, activations, dev_rows, jobs

T = TypeVar("T")
logger = logging.getLogger(__name__)

OPEN = jobs.c.state.in_(["queued", "running"])
NOT_KEPT = "The rows of this job were not kept: post them again under a new key."
_FAILED = jobs.c.state == "failed"
_ROWS_AT_ONCE = 200
# Returns equal values for rows that the service would draw alike.
GenerationKey = Callable[[DevRow], Hashable]


class _Options(BaseModel):
    name: str


class _Setup(BaseModel):
    draws: bool


class _Columns(BaseModel):
    """Columns of a job that are read without conversion."""

    options: _Options
    setup: _Setup
    fingerprint: dict[str, Any] | None
    num_rows: int
    refused_rows: int


_FINGERPRINT = TypeAdapter[Fingerprint | None](Fingerprint | None)


def _checked(stored: RowMapping) -> RowMapping:
    _Columns.model_validate(dict(stored))
    return stored


class JobEndedError(Exception):
    """The job was cancelled or has ended, so its run must stop.

    Not an EigencalError, since callers of the API never see it.
    """


class ReplacedError(Exception):
    """Another calibration was activated after the comparison, so the job must compare again."""


async def once_stored(write: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Return the result of a write, retried every `wait_s` seconds while the store is unavailable."""
    while True:
        try:
            return await write()
        except StoreUnavailable:
            await asyncio.sleep(wait_s)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A running job. `fingerprint`: of the drawn answers; None before the first."""

    id: str
    options: JobOptions
    num_rows: int
    fingerprint: Fingerprint | None


def _running(stored: RowMapping) -> RunningJob:
    fingerprint = _FINGERPRINT.validate_python(stored["fingerprint"])
    return RunningJob(stored["id"], JobOptions(**stored["options"]), stored["num_rows"], fingerprint)


class SqlJobs:
    """Jobs, their rows and their progress. Every method raises StoreUnavailable if the store is unreachable.

    `setup`: the settings of this service. Jobs posted here are bound to them.
    """

    def __init__(
        self,
        database: Database,
        calibrations: SqlCalibrations,
        *,
        setup: Setup | None = None,
    ) -> None:
        self._database = database
        self._calibrations = calibrations
        self.setup = setup or Setup()

    # Operations of callers of the API.

    async def submit(
        self,
        rows: Iterable[DevRow],
        options: JobOptions,
        key: str | None = None,
        generation_key: GenerationKey = lambda _: None,
    ) -> tuple[Job, bool]:
        """Store rows and a job for them in one transaction. Return the job, and True if it is new.

        If iterating over `rows` raises, nothing is stored. The rows are read in threads while the transaction
        is open, so they must come from a local source (a spooled file), not from a slow sender. They are
        hashed on the way: the same key with the same rows and options returns the existing job.
        `generation_key`: equal for rows that are drawn alike. Raises Conflict (same key, other content) and
        InvalidDevData (see `Intake.check`).
        """
        job_id, intake, rest = new_id("job"), Intake(options, generation_key), iter(rows)
        values = {
            "id": job_id,
            "kind": "calibrate",
            "options": options.model_dump(exclude_none=True),
            "idempotency_key": key,
        }
        try:
            async with self._database.write() as connection:
                await connection.execute(sa.insert(jobs).values(values))
                while columns := await asyncio.to_thread(intake.columns, rest, _ROWS_AT_ONCE):
                    batch = [{"job_id": job_id} | row for row in columns]
                    await connection.execute(sa.insert(dev_rows), batch)
                intake.check()
                setup = self.setup.parts(draws=intake.draws)
                stored = {
                    "setup": setup,
                    "setup_key": shape_hash(**setup),
                    "num_rows": intake.num_rows,
                    "total": intake.num_rows,
                    "content_hash": intake.digest(),
                }
                await connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(stored))
        except IntegrityError:  # the key is taken; no row was read yet
            earlier = await self._one(jobs.c.idempotency_key == key, _checked)
            if earlier is None:
                raise
            while await asyncio.to_thread(intake.columns, rest, _ROWS_AT_ONCE):
                pass
            if intake.digest() != earlier["content_hash"]:
                raise Conflict("This Idempotency-Key was used for another file or other options.") from None
            return self._shown(earlier), False
        job = await self.get(job_id)
        assert job is not None
        return job, True

    async def _one(self, condition: sa.ColumnElement[bool], decode: Callable[[RowMapping], T]) -> T | None:
        return await self._database.row(sa.select(jobs).where(condition), jobs, decode)

    async def get(self, job_id: str) -> Job | None:
        """Return a job."""
        job = await self._one(jobs.c.id == job_id, self._shown)
        if job is not None:
            await self._noticed([job])
        return job

    async def latest(self, limit: int = 100) -> list[Job]:
        """Return the latest jobs, newest first."""
        query = sa.select(jobs).order_by(jobs.c.id.desc()).limit(limit)
        latest = await self._database.readable(query, jobs, self._shown)
        await self._noticed(latest)
        return latest

    async def _noticed(self, shown: Sequence[Job]) -> None:
        """Make sure that a caller who sees `activated` gets scores with that calibration from here."""
        if any(job.activated for job in shown):
            await self._calibrations.refresh()

    def _shown(self, stored: RowMapping) -> Job:
        note, error = stored["note"], None
        posted_under = stored["setup"]
        ours = self.setup.keys()
        if stored["state"] in ("queued", "running") and stored["setup_key"] not in ours:
            differs = differing(posted_under, self.setup.parts(draws=posted_under["draws"]))
            note = (
                "Waits for a service with the settings that it was posted under, or is run by one. Here "
                f"these settings differ: {', '.join(differs)}."
            )
        elif stored["state"] == "queued":
            note = "Waits for its turn: each replica runs one job at a time."
        if stored["error_code"]:
            error = JobError(code=stored["error_code"], detail=stored["error_detail"])
        path, made = f"/jobs/{stored['id']}", f"/calibrations/{stored['calibration_id']}"
        links = {"self": path}
        if stored["state"] == "succeeded":
            links |= {"calibration": made, "report": f"{made}/report"}
        columns = {name: stored[name] for name in Job.model_fields if name in stored} | {"note": note}
        return Job(**columns, name=stored["options"]["name"], error=error, eta_s=_eta_s(stored), links=links)

    async def by_state(self) -> dict[JobState, int]:
        """Return the number of jobs by state, for all replicas and settings."""
        query = sa.select(jobs.c.state, sa.func.count().label("number")).group_by(jobs.c.state)

        async def counted() -> dict[JobState, int]:
            async with self._database.read() as connection:
                return {row.state: row.number for row in await connection.execute(query)}

        return dict.fromkeys(get_args(JobState), 0) | await self._database.soon(counted())

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel an open or failed job and delete its rows. Raises Conflict if it has succeeded."""
        change = sa.update(jobs).where(jobs.c.id == job_id, sa.or_(OPEN, _FAILED))
        async with self._database.write() as connection:
            changed = (await connection.execute(change.values(_ended("cancelled")))).rowcount
            if changed:
                await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == job_id))
        job = await self.get(job_id)
        if job is not None and job.state != "cancelled":
            raise Conflict(f"The job has {job.state} already.")
        return job

    async def retry(self, job_id: str) -> str | None:
        """Continue a job with its answers so far and return the id of the job that runs; None if unknown.

        A failed job continues itself. For a job that succeeded with refused rows, a new job asks for the
        missing answers. A job without drawn answers is bound to the present settings. Raises Conflict if
        nothing is missing, if the rows were not kept, or if answers were drawn under other settings.
        """
        job = await self._one(jobs.c.id == job_id, _checked)
        if job is None:
            return None
        setup = self._present_setup(job)
        if job["state"] == "succeeded" and job["refused_rows"]:
            # A new job, since the calibration of this one was fitted on the rows as they are.
            return await self._successor(job, setup)
        change = sa.update(jobs).where(jobs.c.id == job_id, _FAILED)
        ended = dict.fromkeys(("stage", "finished_at", "error_code", "error_detail"))
        async with self._database.write() as connection:
            again = ended | setup | {"state": "queued", "refused_rows": 0}
            changed = await connection.execute(change.values(again))
            if changed.rowcount != 1:
                raise Conflict(
                    f"The job is {job['state']}: only a job that has failed, or that lacks answers to some "
                    "of its rows, can be retried."
                )
            # After the update, under its lock: until then a cancellation may delete the rows.
            rows = sa.update(dev_rows).where(dev_rows.c.job_id == job_id).values(refused=None)
            if (await connection.execute(rows)).rowcount != job["num_rows"]:
                raise Conflict(NOT_KEPT)
        return job_id

    async def correct(
        self, job_id: str, corrections: Sequence[Correction], options: Mapping[str, Any]
    ) -> str | None:
        """Queue a job on the rows and answers of a job that succeeded, with corrected verdicts.

        `options`: changes to its `JobOptions`. Nothing is drawn. Return the new job's id, None if there is no
        such job. Raises InvalidRequest for a row that the job does not have, and Conflict as in `retry`.
        """
        job = await self._one(jobs.c.id == job_id, _checked)
        if job is None:
            return None
        setup, rows = self._present_setup(job), await self.rows(job_id)
        if len(rows) != job["num_rows"]:
            raise Conflict(NOT_KEPT)
        return await self._successor(job, setup, _corrected(rows, corrections), options)

    async def _successor(
        self,
        job: RowMapping,
        setup: Mapping[str, Any],
        corrected: Sequence[DevRow] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Queue a job with the rows and answers of a job that succeeded.

        `corrected`: the rows with changed verdicts. If there are none, the job draws missing answers.
        """
        job_id, columns = new_id("job"), ("line", "content", "draws", "supplied", "replies")
        same = {name: job[name] for name in ("kind", "fingerprint", "num_rows", "content_hash")}
        new = {"id": job_id, "options": job["options"] | dict(options or {}), "total": job["num_rows"]}
        rows = sa.select(
            sa.literal(job_id),
            *(dev_rows.c[name] for name in columns),
            sa.true() if corrected else dev_rows.c.complete,
            dev_rows.c.refused if corrected else sa.null(),
        ).where(dev_rows.c.job_id == job["id"])
        copy = sa.insert(dev_rows).from_select(["job_id", *columns, "complete", "refused"], rows)
        async with self._database.write() as connection:
            await connection.execute(sa.insert(jobs).values(same | new | dict(setup)))
            if (await connection.execute(copy)).rowcount != job["num_rows"]:
                raise Conflict(NOT_KEPT)
            if corrected:
                this = (dev_rows.c.job_id == job_id, dev_rows.c.line == sa.bindparam("at"))
                change = sa.update(dev_rows).where(*this).values(content=sa.bindparam("corrected"))
                changes = [{"at": row.line, "corrected": encode_row(row)["content"]} for row in corrected]
                await connection.execute(change, changes)
        return job_id

    def _present_setup(self, job: RowMapping) -> dict[str, Any]:
        """Return the present settings for a job to continue under.

        Raises Conflict if the job has answers drawn under other settings.
        """
        setup = self.setup.parts(draws=job["setup"]["draws"])
        differs = differing(job["setup"], setup)
        if differs and job["fingerprint"] is not None:
            raise Conflict(
                "This job has answers that were drawn under other settings, so it cannot continue. These "
                f"settings differ: {', '.join(differs)}."
            )
        return {"setup": setup, "setup_key": shape_hash(**setup)}

    async def open_jobs(self) -> dict[str, str]:
        """Return the setup keys of this service's unfinished jobs, by job id, oldest first."""
        ours = jobs.c.setup_key.in_(self.setup.keys())
        query = sa.select(jobs.c.id, jobs.c.setup_key).where(OPEN, ours).order_by(jobs.c.id)
        async with self._database.read() as connection:
            return {row.id: row.setup_key for row in await connection.execute(query)}

    # Operations of the run of a job. Writes raise JobEndedError if the job is not running.

    async def begin(self, job_id: str) -> None:
        """Set a job running. Raises JobEndedError."""
        now = sa.literal(datetime.now(UTC), jobs.c.started_at.type)
        started = {"state": "running", "started_at": sa.func.coalesce(jobs.c.started_at, now)}
        waiting = sa.update(jobs).where(jobs.c.id == job_id, jobs.c.state == "queued")
        async with self._database.write() as connection:
            await connection.execute(waiting.values(started))
            await _write(connection, job_id)

    async def running(self, job_id: str) -> RunningJob:
        """Return a running job. Raises JobEndedError."""
        job = await self._one(sa.and_(jobs.c.id == job_id, jobs.c.state == "running"), _running)
        if job is None:
            raise JobEndedError(job_id)
        return job

    async def stage(self, job_id: str, stage: JobStage, total: int, done: int = 0) -> None:
        """Store and log that a stage begins. The remaining time is estimated from its pace from now on."""
        logger.info("job %s: %s, %d of %d done", job_id, stage, done, total)
        now = datetime.now(UTC)
        pace = {"stage_began_at": now, "stage_began_done": done, "progressed_at": now}
        await self._write(job_id, stage=stage, done=done, total=total, note="", **pace)

    async def progress(self, job_id: str, done: int) -> None:
        """Store the progress of the stage and clear the note."""
        await self._write(job_id, done=done, note="", progressed_at=datetime.now(UTC))

    async def note(self, job_id: str, text: str) -> None:
        """Store the reason for a wait, until the next progress. Log the note if it is new."""
        change = sa.update(jobs).where(jobs.c.id == job_id, jobs.c.state == "running", jobs.c.note != text)
        async with self._database.write() as connection:
            is_new = (await connection.execute(change.values(note=text))).rowcount == 1
            await _write(connection, job_id)
        if is_new:
            # The message of the LLM server may repeat the prompt.
            logger.warning("job %s: %s", job_id, text.partition(SERVER_MESSAGE)[0])

    async def _write(self, job_id: str, **values: object) -> None:
        async with self._database.write() as connection:
            await _write(connection, job_id, **values)

    async def bind(self, job_id: str, fingerprint: Fingerprint) -> Fingerprint:
        """Store the fingerprint of the answers unless there is one. Return the stored fingerprint."""
        unbound = sa.update(jobs).where(
            jobs.c.id == job_id, jobs.c.state == "running", jobs.c.fingerprint.is_(None)
        )
        async with self._database.write() as connection:
            await connection.execute(unbound.values(fingerprint=asdict(fingerprint)))
        return (await self.running(job_id)).fingerprint or fingerprint

    async def rows(self, job_id: str) -> list[DevRow]:
        """Return the rows in file order."""
        return [row async for row in read_rows(self._database, job_id, self._database.rows)]

    async def row(self, job_id: str, line: int) -> DevRow:
        """Return one row. Raises JobEndedError if there is none: cancelled jobs have no rows."""
        query = sa.select(dev_rows).where(dev_rows.c.job_id == job_id, dev_rows.c.line == line)
        row = await self._database.row(query, dev_rows, decode_row)
        if row is None:
            raise JobEndedError(job_id)
        return row

    async def missing_lines(self, job_id: str, *, refused: bool = False) -> list[int]:
        """Return the lines of the rows that lack answers, in file order.

        `refused`: True for rows that the LLM server refused, False for all other rows.
        """
        lacking = (dev_rows.c.job_id == job_id, sa.not_(dev_rows.c.complete))
        is_refused = dev_rows.c.refused.is_not(None) if refused else dev_rows.c.refused.is_(None)
        query = sa.select(dev_rows.c.line).where(*lacking, is_refused).order_by(dev_rows.c.line)
        async with self._database.read() as connection:
            return list((await connection.execute(query)).scalars())

    async def keep_draws(self, job_id: str, line: int, draws: Sequence[Draw], *, complete: bool) -> None:
        """Store the answers of a row drawn so far, committed on return, unless the row is complete."""
        row = sa.update(dev_rows).where(
            dev_rows.c.job_id == job_id, dev_rows.c.line == line, sa.not_(dev_rows.c.complete)
        )
        values = {"draws": draws_to_json(draws), "complete": complete}
        async with self._database.write() as connection:
            new = await connection.execute(row.where(dev_rows.c.refused.is_(None)).values(values))
            # A refused row already counts as done. It stays refused until it has all of its answers.
            answered = values | ({"refused": None} if complete else {})
            await connection.execute(row.where(dev_rows.c.refused.is_not(None)).values(answered))
            done = jobs.c.done + new.rowcount if complete else jobs.c.done
            await _write(connection, job_id, done=done, note="", progressed_at=datetime.now(UTC))

    async def keep_replies(self, job_id: str, line: int, replies: Mapping[str, Reply]) -> None:
        """Add an LLM's replies to questions about the answers of a row. Raises JobEndedError."""
        is_row = sa.and_(dev_rows.c.job_id == job_id, dev_rows.c.line == line)
        async with self._database.write() as connection:
            await _write(connection, job_id)
            kept = await connection.scalar(sa.select(dev_rows.c.replies).where(is_row))
            all_replies = {**(kept or {}), **replies}
            await connection.execute(sa.update(dev_rows).where(is_row).values(replies=all_replies))

    async def refuse(self, job_id: str, line: int, reason: str) -> None:
        """Store that the LLM server refused a row. The row keeps its answers and stays incomplete."""
        row = sa.update(dev_rows).where(
            dev_rows.c.job_id == job_id,
            dev_rows.c.line == line,
            sa.not_(dev_rows.c.complete),
            dev_rows.c.refused.is_(None),
        )
        async with self._database.write() as connection:
            changed = (await connection.execute(row.values(refused=reason))).rowcount
            await _write(connection, job_id, done=jobs.c.done + changed, progressed_at=datetime.now(UTC))

    async def succeed(
        self,
        job_id: str,
        calibration: Calibration,
        report: dict[str, Any],
        num_rows: int,
        *,
        activate: bool,
        compared_at: int = 0,
        verdicts: Mapping[int, Verdict] | None = None,
    ) -> None:
        """Store calibration, report and verdicts, activate it if asked to, end the job, in one transaction.

        `verdicts`: by line of the row. Raises ReplacedError, and changes nothing, if it is to be activated
        but another one of its fingerprint was, after the first `compared_at` activations.
        """
        key, reason = calibration.fingerprint.key(), report.get("decision", {}).get("reason", "")
        verdict = report.get("opening", {}).get("verdict", "")
        outcome = {
            "calibration_id": calibration.id,
            "activated": activate,
            "decision": f"{verdict} {reason}".strip() or None,
        }
        end = _ended("succeeded") | {"done": jobs.c.total, "refused_rows": _refused_rows(job_id)}
        async with self._database.write() as connection:
            await _write(connection, job_id, **outcome, **end)
            await insert_calibration(connection, calibration, report, job_id, num_rows)
            await _keep_verdicts(connection, job_id, verdicts or {})
            if activate:
                await make_current(connection, calibration.id, key, by=job_id, reason=reason)
                is_newer = sa.and_(activations.c.fingerprint_key == key, activations.c.id > compared_at)
                newer = sa.select(sa.func.count()).where(is_newer)
                if (await connection.execute(newer)).scalar_one() > 1:
                    raise ReplacedError
        if activate:
            log_activation(calibration.id, job_id, reason)
            await self._calibrations.refresh()

    async def fail(self, job_id: str, error: JobError) -> None:
        """End the job with an error. Its rows and answers are kept for a retry."""
        reason = {"error_code": error.code, "error_detail": error.detail}
        await self._write(job_id, **reason, **_ended("failed"), refused_rows=_refused_rows(job_id))


def _ended(state: JobState) -> dict[str, Any]:
    return {"state": state, "finished_at": datetime.now(UTC), "note": ""}


async def _write(connection: AsyncConnection, job_id: str, **values: object) -> None:
    """Change a running job. Raises JobEndedError."""
    change = sa.update(jobs).where(jobs.c.id == job_id, jobs.c.state == "running")
    # The id is set to itself, so that a write without values also checks that the job is running.
    if (await connection.execute(change.values(id=jobs.c.id, **values))).rowcount != 1:
        raise JobEndedError(job_id)


def _refused_rows(job_id: str) -> sa.ScalarSelect[int]:
    refused = (dev_rows.c.job_id == job_id, dev_rows.c.refused.is_not(None))
    return sa.select(sa.func.count()).where(*refused).scalar_subquery()


async def _keep_verdicts(connection: AsyncConnection, job_id: str, verdicts: Mapping[int, Verdict]) -> None:
    if not verdicts:
        return
    row = (dev_rows.c.job_id == job_id, dev_rows.c.line == sa.bindparam("at"))
    change = sa.update(dev_rows).where(*row).values(verdict=sa.bindparam("judged"))
    await connection.execute(
        change, [{"at": line, "judged": asdict(verdict)} for line, verdict in verdicts.items()]
    )


def _corrected(rows: Sequence[DevRow], corrections: Sequence[Correction]) -> list[DevRow]:
    """Return the corrected rows. Raises InvalidRequest for a row that does not exist."""
    by_line = {row.line: row for row in rows}
    by_id = {row.id: row for row in rows if row.id is not None}
    changed: dict[int, DevRow] = {}
    for position, correction in enumerate(corrections):
        row = by_line.get(correction.line or 0) if correction.id is None else by_id.get(correction.id)
        if row is None:
            field, value = ("line", correction.line) if correction.id is None else ("id", correction.id)
            reason = f"no row of this calibration has the {field} {value!r}"
            raise InvalidRequest(f"{reason}.", [{"loc": ["body", "rows", position, field], "msg": reason}])
        if row.line in changed and changed[row.line].correct != correction.correct:
            reason = f"two verdicts on one row, line {row.line}"
            raise InvalidRequest(f"{reason}.", [{"loc": ["body", "rows", position], "msg": reason}])
        changed[row.line] = replace(row, correct=correction.correct)
    return list(changed.values())


def _eta_s(stored: RowMapping) -> float | None:
    """Return the seconds left at the stage's pace so far; None before its first unit."""
    if stored["state"] != "running" or stored["stage_began_at"] is None:
        return None
    done = stored["done"] - stored["stage_began_done"]
    if done <= 0:
        return None
    spent: timedelta = stored["progressed_at"] - stored["stage_began_at"]
    return float((stored["total"] - stored["done"]) * spent.total_seconds() / done)


class Intake:
    """Counts, hashes and checks the rows of a job while they are stored."""

    def __init__(self, options: JobOptions, generation_key: GenerationKey) -> None:
        self.num_rows = 0
        self._options = options
        self._generation_key = generation_key
        self._hash = hashlib.sha256(
            json.dumps(options.model_dump(exclude_defaults=True), sort_keys=True).encode()
        )
        self._usable: set[int] = set()
        self._without_logprobs = 0
        # The first row of each kind: with and without supplied answers, and by generation key.
        self._sources: dict[bool, DevRow] = {}
        self._drawn_alike: dict[Hashable, DevRow] = {}

    @property
    def draws(self) -> bool:
        """Whether the job asks the LLM: for missing answers, or for the model that drew the supplied ones."""
        return False in self._sources or self._options.drawn_by == "service"

    def digest(self) -> str:
        """Return the hash of options and rows without default values, so that new fields do not change it.

        Uploads with the same idempotency key count as equal if their digests are equal.
        """
        return self._hash.hexdigest()

    def columns(self, rows: Iterator[DevRow], most: int) -> list[dict[str, Any]]:
        """Read and hash the next rows, at most `most`, and return their columns; empty after the last row."""
        return [self._columns(row) for row in islice(rows, most)]

    def _columns(self, row: DevRow) -> dict[str, Any]:
        supplied, columns, options = row.samples is not None, encode_row(row), self._options
        self.num_rows += 1
        self._hash.update(json.dumps(columns, sort_keys=True).encode() + b"\n")
        self._sources.setdefault(supplied, row)
        self._without_logprobs += supplied and row.logprobs is None
        if not supplied or options.drawn_by == "service":
            self._drawn_alike.setdefault(self._generation_key(row), row)
        if row.usable(options.unit) and (
            not supplied or len(row.samples or ()) >= (options.num_samples or 0)
        ):
            # Copies of a question count once. Among thousands of rows no two hashes are equal by chance.
            self._usable.add(hash(row.wording))
        return columns

    def check(self) -> None:
        """Raise InvalidDevData unless one calibration can be fitted on these rows."""
        options, usable = self._options, len(self._usable)
        if usable < MIN_USABLE_ROWS:
            raise InvalidDevData(
                f"{usable} of {self.num_rows} rows are usable "
                f"({'a reference' if options.unit == 'answer' else 'claims with verdicts'}, and at least as "
                "many samples as asked for if samples are given; copies of a question count once); a fit "
                f"needs at least {MIN_USABLE_ROWS}."
            )
        if len(self._sources) == 2 and options.drawn_by != "service":
            reason = "all rows must carry samples or none, unless `drawn_by` is `service`"
            raise self._unlike(reason, self._sources.values())
        if options.method == "evidence" and self._without_logprobs:
            raise InvalidDevData(
                f"{self._without_logprobs} rows with samples lack `logprobs`, which the method `evidence` "
                "needs; `auto` does without."
            )
        if len(self._drawn_alike) > 1:
            reason = "prompts, and conversations with and without a system message, are drawn in several ways"
            raise self._unlike(reason, self._drawn_alike.values())

    def _unlike(self, reason: str, rows: Iterable[DevRow]) -> InvalidDevData:
        errors = [
            {"line": row.line, "field": None, "reason": reason, "loc": ["file", row.line], "msg": reason}
            for row in rows
        ]
        places = ", ".join(f"file {row.line}" for row in rows)
        return InvalidDevData(
            f"Answers of one calibration must all be drawn alike, but {reason}: the first of each kind are "
            f"{places}. Post each kind by itself.",
            errors,
        )
