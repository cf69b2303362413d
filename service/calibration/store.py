"""Calibrations in SQL: immutable, with their reports and rows; which are active is known in memory, too."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
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
    Fingerprint,
    Method,
    Selector,
    Unit,
)
from service.calibration.rows import ROW, DevRow, draws_from_json, draws_to_json
from service.embedding.port import supplied_draws, totals
from service.errors import StoreUnavailable
from service.lru import LRU
from service.spectral.conformal import ConformalReference
from service.spectral.correctness_model import AGREEMENT, FEATURES_OF_CLAIMS, FEATURES_OF_TOKENS
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
_LOCK = 0x65696766  # the number after the lock of the migrations
_ROWS_AT_ONCE = 100


class _Body(BaseModel):
    """What a calibration is, other than its id, its time and its reference, as its column holds it."""

    method: Method
    fingerprint: Fingerprint
    num_samples: int
    parameters: dict[int, DepolarizedMap]
    eps: float
    name: str
    evidence: dict[int, EvidenceMap]
    selectors: dict[int, Selector]
    recommended: int | None = None


def _decoded(stored: RowMapping) -> Calibration:
    """Return a calibration; its reference where the query has read it as `reference`."""
    body = _Body.model_validate(stored["body"])
    body.selectors = _readable(body.selectors, body.fingerprint.unit)
    return Calibration(
        id=stored["id"],
        created_at=stored["created_at"],
        reference=_reference(stored.get("reference")),
        **dict(body),
    )


def _readable(selectors: Mapping[int, Selector], unit: Unit) -> dict[int, Selector]:
    """Return the selectors with features that scores have: models of before 0.4.0 took others."""
    known = {AGREEMENT} if unit == "answer" else {*FEATURES_OF_CLAIMS, *FEATURES_OF_TOKENS}
    kept = dict[int, Selector]()
    for number, selector in selectors.items():
        with_tokens = selector.with_tokens
        if with_tokens is not None and not known.issuperset(with_tokens.model.features):
            with_tokens = None
        if known.issuperset(selector.model.features):
            kept[number] = replace(selector, with_tokens=with_tokens)
    return kept


class _Report(BaseModel):
    """What pages need of every report."""

    version: int
    calibration: dict[str, Any]
    data: dict[str, Any]
    served: list[Any]
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
        # Those of before 0.4.0 hold no judged answers.
        return ConformalReference(**arrays)


async def make_current(
    connection: AsyncConnection, calibration_id: str, fingerprint_key: str, *, by: str, reason: str
) -> str | None:
    """Make a calibration the current one of its fingerprint; return the id of the one that was, maybe itself.

    One activation at a time, so that a larger number is never visible before a smaller one: replicas poll the
    largest. On SQLite the write lock sees to that, which the first change takes.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # The old one goes first: the unique index never lets two be current, not even for a statement.
    mine = sa.and_(activations.c.fingerprint_key == fingerprint_key, activations.c.current)
    ended = sa.update(activations).where(mine, activations.c.calibration_id != calibration_id)
    ended = ended.values(current=False).returning(activations.c.calibration_id)
    replaced: str | None = (await connection.execute(ended)).scalar_one_or_none()
    if (await connection.execute(sa.select(activations.c.id).where(mine))).first() is not None:
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
    """Log that a calibration came into force, once that is committed."""
    # Escaped: the name of a key may hold anything, line feeds included.
    logger.info("calibration %s was activated by %r: %s", calibration_id, by, reason)


async def insert_calibration(
    connection: AsyncConnection,
    calibration: Calibration,
    report: dict[str, Any],
    job_id: str | None,
    num_rows: int,
) -> None:
    """Insert a calibration and its report."""
    served = (row for row in report.get("served", ()) if row["map"] == calibration.method)
    values = {
        "id": calibration.id,
        "job_id": job_id,
        "fingerprint_key": calibration.fingerprint.key(),
        "body": _Body.model_validate(calibration, from_attributes=True).model_dump(mode="json"),
        "num_rows": num_rows,
        "projection_ece": next((row["projection_ece"] for row in served), None),
        "created_at": calibration.created_at,
    }
    await connection.execute(sa.insert(calibrations).values(values))
    if calibration.reference is not None:
        content = _encode_reference(calibration.reference)
        kept = {"calibration_id": calibration.id, "content": content}
        await connection.execute(sa.insert(conformal_references).values(kept))
    await connection.execute(sa.insert(reports).values(calibration_id=calibration.id, report=report))


def with_reference() -> sa.Select[Any]:
    """Return the query of whole calibrations, as scores need them."""
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
    ece = stored["projection_ece"]
    same |= {"num_rows": int(stored["num_rows"]), "projection_ece": None if ece is None else float(ece)}
    active, data_kept = stored["activated_at"] is not None, bool(stored["data_kept"])
    return CalibrationRecord(calibration=_decoded(stored), active=active, data_kept=data_kept, **same)


class SqlCalibrations:
    """The calibrations; every method that waits raises StoreUnavailable when the store is out of reach.

    The current one of each fingerprint is kept in memory. A poll of the latest activation's number, every
    `poll_s`, brings what other replicas did; while the store is down the last known go on being served.
    `own_keys` returns the fingerprint keys of the present set-up: those come first in `list_active`.
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
        self._refreshing = asyncio.Lock()  # of two at a time the one that read first might end last
        self._by_key: dict[str, Calibration] = {}
        self._seen = LRU[str, Calibration](MAX_REMEMBERED)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what is active and begin to poll."""
        await self.refresh()
        self._task = asyncio.create_task(self._poll(), name="active-calibrations")

    async def stop(self) -> None:
        """End the poll; idempotent."""
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
        """Return how many activations there ever were, as far as is known: they are numbered from 1."""
        return self._version or 0

    async def refresh(self) -> None:
        """Load the active calibrations if any activation has happened since."""
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
                continue  # it was logged; the last known go on being served
            except Exception:
                logger.exception("the active calibrations cannot be read")

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return a calibration by id; from memory when it was used lately, since it never changes.

        On the path of a score: a database that does not answer is not waited for long.
        """
        active = (one for one in self._by_key.values() if one.id == calibration_id)
        known = next(active, None) or self._seen.get(calibration_id)
        if known is None:
            known = await self._database.soon(self._read(calibration_id))
        if known is not None:
            self._seen.put(calibration_id, known)
        return known

    async def _read(self, calibration_id: str) -> Calibration | None:
        query = with_reference().where(calibrations.c.id == calibration_id)
        return await self._database.row(query, calibrations, _decoded)

    async def list_all(self) -> list[CalibrationRecord]:
        """Return all calibrations, latest first."""
        query = _records().order_by(calibrations.c.created_at.desc(), calibrations.c.id.desc())
        return await self._database.readable(query, calibrations, _record)

    async def record(self, calibration_id: str) -> CalibrationRecord | None:
        """Return a calibration with its activation, job and figures; None if there is no such calibration."""
        query = _records().where(calibrations.c.id == calibration_id)
        return await self._database.row(query, calibrations, _record)

    async def list_active(self) -> list[CalibrationRecord]:
        """Return one calibration per fingerprint, the service's own set-up first, then latest activated."""
        query = _records().where(activations.c.current).order_by(activations.c.id.desc())
        own, records = self._own_keys(), await self._database.readable(query, calibrations, _record)
        return sorted(records, key=lambda record: _rank(record.calibration, own))

    async def activate(self, calibration_id: str, *, by: str = "") -> CalibrationRecord | None:
        """Make this the active calibration of its fingerprint, at once on this replica; None if unknown."""
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
        """Yield the rows it was fitted on, answers and `logprobs` as drawn; none once forgotten.

        A row that cannot be read is skipped, as in `Database.readable`.
        """
        record = await self.record(calibration_id)
        if record is not None and record.job_id is not None:
            async for stored in read_rows(self._database, record.job_id, self._database.readable):
                texts = tuple(d.text for d in stored.draws)
                sent = replace(stored, samples=texts, logprobs=totals(stored.draws))
                yield replace(sent, draws=(), complete=False, refused=None)

    async def forget_data(self, calibration_id: str) -> bool:
        """Delete its rows (prompts, references, answers) for good; False if there is no such calibration."""
        this = calibrations.c.id == calibration_id
        job_id = sa.select(calibrations.c.job_id).where(this).scalar_subquery()
        async with self._database.write() as connection:
            await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == job_id))
            known = (await connection.execute(sa.select(calibrations.c.id).where(this))).scalar()
        # After the commit: the log can be emptied only once nobody writes.
        await self._database.forget()
        return known is not None


def _rank(calibration: Calibration, own_keys: Collection[str]) -> int:
    if calibration.fingerprint.key() in own_keys:
        return 0
    return 1 if calibration.fingerprint.source == SERVICE else 2


# Of a row: what columns of their own hold.
IN_COLUMNS = {"line", "samples", "logprobs", "verdict", "draws", "complete", "refused", "compared"}


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
    """Return a stored row; its `samples` are those it was uploaded with."""
    draws = draws_from_json(stored["draws"])
    content = stored["content"] | {name: stored[name] for name in ("line", "verdict", "complete", "refused")}
    content |= {"compared": stored["compared"] or {}}
    if stored["supplied"]:
        content |= {"samples": [one.text for one in draws], "logprobs": totals(draws)}
    return replace(ROW.validate_python(content), draws=draws)


async def read_rows(
    database: Database, job_id: str, read: Callable[..., Awaitable[list[DevRow]]]
) -> AsyncIterator[DevRow]:
    """Yield the rows in file order; no connection is held between pages.

    `read`: `Database.rows` or `Database.readable`, which treat a damaged row in two ways.
    """
    query = sa.select(dev_rows).where(dev_rows.c.job_id == job_id).order_by(dev_rows.c.line)
    async with database.read() as connection:
        lines = (await connection.execute(query.with_only_columns(dev_rows.c.line))).scalars().all()
    for begin in range(0, len(lines), _ROWS_AT_ONCE):
        page = lines[begin : begin + _ROWS_AT_ONCE]
        for row in await read(query.where(dev_rows.c.line.between(page[0], page[-1])), dev_rows, decode_row):
            yield row
