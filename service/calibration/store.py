"""Calibrations in SQL, immutable, with their reports and rows. The active ones are also kept in memory."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import (
    SERVICE,
    Activation,
    Calibration,
    CalibrationRecord,
    Curvature,
    Fingerprint,
    JudgedRows,
    Method,
    Origin,
    Selector,
)
from service.calibration.rows import ROW, DevRow, draws_from_json, draws_to_json
from service.errors import StoreUnavailable
from service.llm.samples import supplied_draws, totals
from service.lru import LRU
from service.spectral.conformal import ConformalReference
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap
from service.store.database import (
    Database,
    activations,
    calibrations,
    conformal_references,
    dev_rows,
    reports,
)

logger = logging.getLogger(__name__)
ON_REQUEST = "Activated on request."
ROLLED_BACK = "Rolled back on request: it was active before."
MAX_REMEMBERED = 32  # up to 3 MB each at d = 768
_LOCK = 0x65696766  # advisory lock of activations; the migrations have the number before
_ROWS_AT_ONCE = 100


class _Body(BaseModel):
    """The column `body` of a calibration: all of it except its id, its time and its reference."""

    method: Method
    fingerprint: Fingerprint
    num_samples: int
    parameters: dict[int, DepolarizedMap]
    eps: float
    name: str
    evidence: dict[int, EvidenceMap]
    selectors: dict[int, Selector]
    recommended: int | None = None
    origin: Origin = "own"
    curvatures: dict[str, dict[int, Curvature]] = {}
    judged: dict[int, JudgedRows] = {}


def _decoded(stored: RowMapping) -> Calibration:
    """Return a calibration, with its reference if the query has the column `reference`."""
    body = _Body.model_validate(stored["body"])
    return Calibration(
        id=stored["id"],
        created_at=stored["created_at"],
        reference=_reference(stored.get("reference")),
        **dict(body),
    )


class _Report(BaseModel):
    """The parts of a report that pages need."""

    version: int
    calibration: dict[str, Any]
    data: dict[str, Any]
    projection: dict[str, Any]
    decision: dict[str, Any]
    opening: dict[str, Any]


def _report(stored: RowMapping) -> dict[str, Any]:
    _Report.model_validate(stored["report"])
    return dict(stored["report"])


def _encode_reference(reference: ConformalReference) -> bytes:
    file = io.BytesIO()
    np.savez(file, questions=reference.questions, lengths=reference.lengths, judged=reference.judged)
    return file.getvalue()


def _reference(content: bytes | None) -> ConformalReference | None:
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as arrays:
        return ConformalReference(**arrays)


async def make_current(
    connection: AsyncConnection, calibration_id: str, fingerprint_key: str, *, by: str, reason: str
) -> str | None:
    """Make a calibration the current one of its fingerprint. Return the id of the previous one, maybe itself.

    Activations run one at a time, so that a larger number is never visible before a smaller one: replicas
    poll the largest. On SQLite the write lock ensures this; the first change takes it.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # The old one is ended first: the unique index never allows two current ones, not even for a statement.
    is_current = sa.and_(activations.c.fingerprint_key == fingerprint_key, activations.c.current)
    ended = sa.update(activations).where(is_current, activations.c.calibration_id != calibration_id)
    ended = ended.values(current=False).returning(activations.c.calibration_id)
    replaced: str | None = (await connection.execute(ended)).scalar_one_or_none()
    if (await connection.execute(sa.select(activations.c.id).where(is_current))).first() is not None:
        return calibration_id
    values = {
        "calibration_id": calibration_id,
        "fingerprint_key": fingerprint_key,
        "current": True,
        "by": by,
        "reason": reason,
        "replaced": replaced,
        "activated_at": datetime.now(UTC),
    }
    await connection.execute(sa.insert(activations).values(values))
    return replaced


def log_activation(calibration_id: str, by: str, reason: str) -> None:
    """Log an activation, after its commit."""
    # Escaped: the name of a key may contain any characters, including line feeds.
    logger.info("calibration %s was activated by %r: %s", calibration_id, by, reason)


async def insert_calibration(
    connection: AsyncConnection,
    calibration: Calibration,
    report: dict[str, Any],
    job_id: str | None,
    num_rows: int,
) -> None:
    """Insert a calibration and its report."""
    ece = {name: part["ece"] for name, part in report.get("projection", {}).items()}
    values = {
        "id": calibration.id,
        "job_id": job_id,
        "fingerprint_key": calibration.fingerprint.key(),
        "body": _Body.model_validate(calibration, from_attributes=True).model_dump(mode="json"),
        "num_rows": num_rows,
        "projection_ece": ece.get(calibration.method),
        "raw_projection_ece": ece.get("raw"),
        "created_at": calibration.created_at,
    }
    await connection.execute(sa.insert(calibrations).values(values))
    if calibration.reference is not None:
        content = _encode_reference(calibration.reference)
        kept = {"calibration_id": calibration.id, "content": content}
        await connection.execute(sa.insert(conformal_references).values(kept))
    await connection.execute(sa.insert(reports).values(calibration_id=calibration.id, report=report))


def with_reference() -> sa.Select[Any]:
    """Return the query for whole calibrations with their references, as scores need them."""
    columns = (calibrations, conformal_references.c.content.label("reference"))
    return sa.select(*columns).select_from(calibrations.outerjoin(conformal_references))


def _records() -> sa.Select[Any]:
    current = sa.and_(activations.c.calibration_id == calibrations.c.id, activations.c.current)
    kept = sa.exists().where(dev_rows.c.job_id == calibrations.c.job_id)
    columns = (calibrations, activations.c.activated_at, kept.label("data_kept"))
    return sa.select(*columns).select_from(calibrations.outerjoin(activations, current))


def _record(stored: RowMapping) -> CalibrationRecord:
    same = {name: stored[name] for name in ("activated_at", "job_id")}
    # SQLite stores any value in any column.
    same["num_rows"] = int(stored["num_rows"])
    for name in ("projection_ece", "raw_projection_ece"):
        same[name] = None if stored[name] is None else float(stored[name])
    active, data_kept = stored["activated_at"] is not None, bool(stored["data_kept"])
    return CalibrationRecord(calibration=_decoded(stored), active=active, data_kept=data_kept, **same)


class SqlCalibrations:
    """The stored calibrations. Every async method raises StoreUnavailable if the store cannot be reached.

    The current calibration of each fingerprint is kept in memory. Activations by other replicas are noticed
    by polling the largest activation number every `poll_s` seconds. While the store is down, the last known
    calibrations are served. `own_keys` returns the fingerprint keys of the present set-up, which are listed
    first in `list_active`.
    """

    def __init__(
        self,
        database: Database,
        *,
        poll_s: float = 0.5,
        own_keys: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._database = database
        self._poll_s = poll_s
        self._own_keys = own_keys
        self._version: int | None = None
        self._refreshing = asyncio.Lock()  # of two concurrent refreshes the older could end last
        self._by_key: dict[str, Calibration] = {}
        self._seen = LRU[str, Calibration](MAX_REMEMBERED)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the active calibrations and start polling."""
        await self.refresh()
        self._task = asyncio.create_task(self._poll(), name="active-calibrations")

    async def stop(self) -> None:
        """Stop polling. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return the active calibration of a fingerprint, from memory."""
        return self._by_key.get(fingerprint_key)

    def any_active(self) -> list[Calibration]:
        """Return all active calibrations, latest activated first, from memory."""
        return list(self._by_key.values())

    def num_activations(self) -> int:
        """Return the number of activations so far, from memory. They are numbered from 1."""
        return self._version or 0

    async def refresh(self) -> None:
        """Load the active calibrations if there was an activation since the last refresh."""
        current = activations.c.calibration_id == calibrations.c.id
        query = with_reference().join(activations, current).where(activations.c.current)
        query = query.order_by(activations.c.id.desc())
        async with self._refreshing:
            async with self._database.read() as connection:
                latest = (await connection.execute(sa.select(sa.func.max(activations.c.id)))).scalar() or 0
            if latest != self._version:
                active = await self._database.readable(query, calibrations, _decoded)
                self._by_key = {calibration.fingerprint.key(): calibration for calibration in active}
                self._version = latest

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.refresh()
            except StoreUnavailable:
                continue  # already logged; the last known calibrations are served
            except Exception:
                logger.exception("the active calibrations cannot be read")

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return a calibration by id; from memory if it was used recently, since it never changes.

        Scores wait for this call, so it waits only briefly for a database that does not answer.
        """
        active = (calibration for calibration in self._by_key.values() if calibration.id == calibration_id)
        stored = next(active, None) or self._seen.get(calibration_id)
        if stored is None:
            stored = await self._database.soon(self._read(calibration_id))
        if stored is not None:
            self._seen.put(calibration_id, stored)
        return stored

    async def _read(self, calibration_id: str) -> Calibration | None:
        query = with_reference().where(calibrations.c.id == calibration_id)
        return await self._database.row(query, calibrations, _decoded)

    async def bundled(self, fingerprint_key: str) -> Calibration | None:
        """Return the latest calibration of a fingerprint on the bundled questions, or None."""
        query = sa.select(calibrations).where(calibrations.c.fingerprint_key == fingerprint_key)
        query = query.order_by(calibrations.c.created_at.desc())
        stored = await self._database.readable(query, calibrations, _decoded)
        return next((calibration for calibration in stored if calibration.origin == "bundled"), None)

    async def list_all(self) -> list[CalibrationRecord]:
        """Return all calibrations, latest first."""
        query = _records().order_by(calibrations.c.created_at.desc(), calibrations.c.id.desc())
        return await self._database.readable(query, calibrations, _record)

    async def record(self, calibration_id: str) -> CalibrationRecord | None:
        """Return a calibration with its activation, job and figures; None if there is no such calibration."""
        query = _records().where(calibrations.c.id == calibration_id)
        return await self._database.row(query, calibrations, _record)

    async def list_active(self) -> list[CalibrationRecord]:
        """Return the active calibrations, the service's own set-up first, then the latest activated first."""
        query = _records().where(activations.c.current).order_by(activations.c.id.desc())
        own, records = self._own_keys(), await self._database.readable(query, calibrations, _record)
        return sorted(records, key=lambda record: _rank(record.calibration, own))

    async def activate(self, calibration_id: str, *, by: str = "") -> CalibrationRecord | None:
        """Activate a calibration, at once on this replica. Return None if there is no such calibration."""
        record = await self.record(calibration_id)
        if record is None:
            return None
        earlier = sa.select(activations.c.id).where(activations.c.calibration_id == calibration_id).limit(1)
        async with self._database.read() as connection:
            was_active = (await connection.execute(earlier)).first() is not None
        reason = ROLLED_BACK if was_active else ON_REQUEST
        async with self._database.write() as connection:
            key = record.calibration.fingerprint.key()
            replaced = await make_current(connection, calibration_id, key, by=by, reason=reason)
        if replaced != calibration_id:
            log_activation(calibration_id, by, reason)
        await self.refresh()
        return await self.record(calibration_id)

    async def history(self) -> list[Activation]:
        """Return every activation, newest first."""
        query = sa.select(activations).order_by(activations.c.id.desc())
        return await self._database.readable(query, activations, Activation.model_validate)

    async def report(self, calibration_id: str) -> dict[str, Any] | None:
        """Return the report made when it was fitted."""
        query = sa.select(reports).where(reports.c.calibration_id == calibration_id)
        return await self._database.row(query, reports, _report)

    async def rows(self, calibration_id: str) -> AsyncIterator[DevRow]:
        """Yield the rows of the fit, with `samples` and `logprobs` as drawn; nothing once they are deleted.

        A row that cannot be read is skipped, as in `Database.readable`.
        """
        record = await self.record(calibration_id)
        if record is not None and record.job_id is not None:
            async for stored in read_rows(self._database, record.job_id, self._database.readable):
                texts = tuple(d.text for d in stored.draws)
                sent = replace(stored, samples=texts, logprobs=totals(stored.draws))
                yield replace(sent, draws=(), complete=False, refused=None)

    async def forget_data(self, calibration_id: str) -> bool:
        """Delete the rows (prompts, references, answers). Return False if there is no such calibration."""
        this = calibrations.c.id == calibration_id
        job_id = sa.select(calibrations.c.job_id).where(this).scalar_subquery()
        async with self._database.write() as connection:
            await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == job_id))
            existing_id = (await connection.execute(sa.select(calibrations.c.id).where(this))).scalar()
        # After the commit: SQLite can empty its log only while nobody writes.
        await self._database.forget()
        return existing_id is not None


def _rank(calibration: Calibration, own_keys: Collection[str]) -> int:
    if calibration.fingerprint.key() in own_keys:
        return 0
    return 1 if calibration.fingerprint.source == SERVICE else 2


# The fields of a row that have their own columns.
IN_COLUMNS = {"line", "samples", "logprobs", "verdict", "draws", "complete", "refused", "replies"}


def encode_row(row: DevRow) -> dict[str, Any]:
    """Return the columns of a new row."""
    supplied = row.samples is not None
    return {
        "line": row.line,
        "content": ROW.dump_python(row, exclude=IN_COLUMNS, exclude_defaults=True),
        "draws": draws_to_json(supplied_draws(row.samples or (), row.logprobs)),
        "supplied": supplied,
        "complete": supplied,
    }


def decode_row(stored: RowMapping) -> DevRow:
    """Return a stored row. Its `samples` are the uploaded ones."""
    draws = draws_from_json(stored["draws"])
    content = stored["content"] | {name: stored[name] for name in ("line", "verdict", "complete", "refused")}
    content |= {"replies": stored["replies"] or {}}
    if stored["supplied"]:
        content |= {"samples": [draw.text for draw in draws], "logprobs": totals(draws)}
    return replace(ROW.validate_python(content), draws=draws)


async def read_rows(
    database: Database, job_id: str, read: Callable[..., Awaitable[list[DevRow]]]
) -> AsyncIterator[DevRow]:
    """Yield the rows in file order, without a connection between pages.

    `read`: `Database.rows`, which raises for a damaged row, or `Database.readable`, which skips it.
    """
    query = sa.select(dev_rows).where(dev_rows.c.job_id == job_id).order_by(dev_rows.c.line)
    async with database.read() as connection:
        lines = (await connection.execute(query.with_only_columns(dev_rows.c.line))).scalars().all()
    for begin in range(0, len(lines), _ROWS_AT_ONCE):
        page = lines[begin : begin + _ROWS_AT_ONCE]
        for row in await read(query.where(dev_rows.c.line.between(page[0], page[-1])), dev_rows, decode_row):
            yield row
