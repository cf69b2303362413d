"""Calibrations in SQL: immutable, with their reports and rows; which are active is known in memory, too."""

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import Activation, Calibration, CalibrationRecord, Decider, Parameters
from service.calibration.fingerprint import SERVICE, Fingerprint
from service.calibration.rows import DevRow, StoredRow, Verdict, draws_from_json
from service.embedding.outcomes import totals
from service.errors import Conflict, StoreUnavailable
from service.llm.port import Message
from service.lru import LRU
from service.spectral.conformal import ConformalReference
from service.spectral.evidence import EvidenceMap
from service.store.database import Database
from service.store.tables import activations, calibrations, conformal_references, dev_rows, reports

logger = logging.getLogger(__name__)
ASKED = "Activated as asked."
MAX_REMEMBERED = 32  # up to 3 MB each at d = 768
_LOCK = 0x65696766  # the number after the lock of the migrations
_ROWS_AT_ONCE = 100


def encode_calibration(calibration: Calibration) -> dict[str, Any]:
    """Return the JSON of what a calibration is, other than its id, its time and its reference."""
    return {
        "method": calibration.method,
        "fingerprint": asdict(calibration.fingerprint),
        "num_samples": calibration.num_samples,
        "parameters": {str(m): asdict(one) for m, one in sorted(calibration.parameters.items())},
        "eps": calibration.eps,
        "name": calibration.name,
        "evidence": {str(m): asdict(one) for m, one in sorted(calibration.evidence.items())},
        "deciders": {str(m): one.stored() for m, one in sorted(calibration.deciders.items())},
    }


def decode_calibration(found: RowMapping) -> Calibration:
    """Return a calibration; its reference where the query has read it as `reference`."""
    body = found["body"]
    return Calibration(
        id=found["id"],
        method=body["method"],
        fingerprint=Fingerprint(**body["fingerprint"]),
        num_samples=body["num_samples"],
        parameters={int(m): Parameters(**one) for m, one in body["parameters"].items()},
        created_at=found["created_at"],
        eps=body["eps"],
        name=body["name"],
        evidence={int(m): EvidenceMap(**one) for m, one in body["evidence"].items()},
        deciders={int(m): Decider.of(one) for m, one in body["deciders"].items()},
        reference=_reference(found.get("reference")),
    )


def _encode_reference(reference: ConformalReference) -> bytes:
    file = io.BytesIO()
    np.savez(file, questions=reference.questions, lengths=reference.lengths)
    return file.getvalue()


def _reference(content: bytes | None) -> ConformalReference | None:
    if content is None:
        return None
    with np.load(io.BytesIO(content)) as arrays:
        return ConformalReference(arrays["questions"], arrays["lengths"])


async def make_current(
    connection: AsyncConnection, calibration_id: str, fingerprint_key: str, *, by: str, reason: str
) -> bool:
    """Make a calibration the current one of its fingerprint; False where it was. See `Activation`.

    One activation at a time, so that a larger number is never visible before a smaller one: replicas poll the
    largest. On SQLite the write lock sees to that.
    """
    mine = sa.and_(activations.c.fingerprint_key == fingerprint_key, activations.c.current)
    # The old one goes first: the unique index never lets two be current, not even for a statement. First of
    # all, too: on SQLite a change takes the lock under which `current_id` may be asked.
    other = activations.c.calibration_id != calibration_id
    await _one_at_a_time(connection)
    ended = sa.update(activations).where(mine, other).values(current=False)
    replaced = (await connection.execute(ended.returning(activations.c.calibration_id))).scalar_one_or_none()
    if await current_id(connection, fingerprint_key) is not None:
        return False
    values: dict[str, Any] = {
        "calibration_id": calibration_id,
        "fingerprint_key": fingerprint_key,
        "current": True,
    }
    values |= {"by": by, "reason": reason, "replaced": replaced, "activated_at": datetime.now(UTC)}
    await connection.execute(sa.insert(activations).values(values))
    return True


def log_activation(calibration_id: str, by: str, reason: str) -> None:
    """Log that a calibration came into force, once that is committed."""
    # Escaped: the name of a key may hold anything, line feeds included.
    logger.info("calibration %s was activated by %r: %s", calibration_id, by, reason)


async def current_id(connection: AsyncConnection, fingerprint_key: str) -> str | None:
    """Return the id of the current calibration, which stays so until this transaction ends.

    On SQLite the transaction must have changed something before, which takes the write lock.
    """
    await _one_at_a_time(connection)
    mine = activations.c.fingerprint_key == fingerprint_key
    query = sa.select(activations.c.calibration_id).where(mine, activations.c.current)
    current: str | None = (await connection.execute(query)).scalar_one_or_none()
    return current


async def _one_at_a_time(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


class ActiveCalibrations:
    """The current calibration of each fingerprint.

    A poll of the latest activation's number, every `poll_s`, brings what other replicas did; while the store
    is down the last known go on being served. `refresh` brings a local change at once.
    """

    def __init__(self, database: Database, *, poll_s: float = 0.5) -> None:
        self._database = database
        self._poll_s = poll_s
        self._version: int | None = None
        self._by_key: dict[str, Calibration] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what is active and begin to poll. Raises StoreUnavailable."""
        await self.refresh()
        self._task = asyncio.create_task(self._poll(), name="active-calibrations")

    async def stop(self) -> None:
        """End the poll; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return the active calibration of a fingerprint."""
        return self._by_key.get(fingerprint_key)

    def any_active(self) -> list[Calibration]:
        """Return all active calibrations, latest activated first."""
        return list(self._by_key.values())

    @property
    def num_activations(self) -> int:
        """How many activations there ever were, as far as is known: they are numbered from 1."""
        return self._version or 0

    def known(self, calibration_id: str) -> Calibration | None:
        """Return an active calibration by its id."""
        return next((c for c in self._by_key.values() if c.id == calibration_id), None)

    async def refresh(self) -> None:
        """Load the active calibrations if any activation has happened since. Raises StoreUnavailable."""
        async with self._database.read() as connection:
            latest = (await connection.execute(sa.select(sa.func.max(activations.c.id)))).scalar() or 0
            if latest != self._version:
                self._by_key = {c.fingerprint.key(): c for c in await _load(connection)}
                self._version = latest

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.refresh()
            except StoreUnavailable:
                continue  # it was logged; the last known go on being served
            except Exception:
                # Such as a row of a newer version, which this one cannot read: it must not stop following.
                logger.exception("the active calibrations cannot be read")


def with_reference() -> sa.Select[Any]:
    """Return the query of whole calibrations, as scores need them."""
    columns = (calibrations, conformal_references.c.content.label("reference"))
    return sa.select(*columns).select_from(calibrations.outerjoin(conformal_references))


async def _load(connection: AsyncConnection) -> Sequence[Calibration]:
    query = (
        with_reference()
        .join(activations, activations.c.calibration_id == calibrations.c.id)
        .where(activations.c.current)
        .order_by(activations.c.id.desc())
    )
    return [decode_calibration(found) for found in (await connection.execute(query)).mappings()]


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
        "body": encode_calibration(calibration),
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


def _records() -> sa.Select[Any]:
    current = sa.and_(activations.c.calibration_id == calibrations.c.id, activations.c.current)
    kept = sa.exists().where(dev_rows.c.job_id == calibrations.c.job_id)
    columns = (calibrations, activations.c.activated_at, kept.label("data_kept"))
    return sa.select(*columns).select_from(calibrations.outerjoin(activations, current))


def _record(found: RowMapping) -> CalibrationRecord:
    activated_at = found["activated_at"]
    return CalibrationRecord(
        calibration=decode_calibration(found),
        active=activated_at is not None,
        activated_at=activated_at,
        job_id=found["job_id"],
        num_rows=found["num_rows"],
        data_kept=bool(found["data_kept"]),
        projection_ece=found["projection_ece"],
    )


class SqlCalibrations:
    """The calibrations of the API; every method raises StoreUnavailable when the store is out of reach.

    `own_keys` returns the fingerprint keys of the present set-up: those come first in `list_active`.
    """

    def __init__(
        self,
        database: Database,
        active: ActiveCalibrations,
        *,
        own_keys: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._database = database
        self._active = active
        self._own_keys = own_keys
        self._seen = LRU[str, Calibration](MAX_REMEMBERED)

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return the active calibration of a fingerprint, from memory."""
        return self._active.active(fingerprint_key)

    def any_active(self) -> list[Calibration]:
        """Return all active calibrations, latest activated first, from memory."""
        return self._active.any_active()

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return a calibration by id; from memory when it was used lately, since it never changes.

        On the path of a score: a database that does not answer is not waited for long.
        """
        known = self._active.known(calibration_id) or self._seen.get(calibration_id)
        if known is None:
            known = await self._database.soon(self._read(calibration_id))
        if known is not None:
            self._seen.put(calibration_id, known)
        return known

    async def _read(self, calibration_id: str) -> Calibration | None:
        query = with_reference().where(calibrations.c.id == calibration_id)
        async with self._database.read() as connection:
            found = (await connection.execute(query)).mappings().one_or_none()
        return None if found is None else decode_calibration(found)

    async def list_all(self) -> list[CalibrationRecord]:
        """Return all calibrations, latest first."""
        return await self._select(
            _records().order_by(calibrations.c.created_at.desc(), calibrations.c.id.desc())
        )

    async def record(self, calibration_id: str) -> CalibrationRecord | None:
        """Return a calibration with what is known around it."""
        found = await self._select(_records().where(calibrations.c.id == calibration_id))
        return found[0] if found else None

    async def list_active(self) -> list[CalibrationRecord]:
        """Return one calibration per fingerprint, the service's own set-up first, then latest activated."""
        query = _records().where(activations.c.current).order_by(activations.c.id.desc())
        own = self._own_keys()
        return sorted(await self._select(query), key=lambda record: _rank(record.calibration, own))

    async def _select(self, query: sa.Select[Any]) -> list[CalibrationRecord]:
        async with self._database.read() as connection:
            return [_record(found) for found in (await connection.execute(query)).mappings()]

    async def add(
        self,
        calibration: Calibration,
        report: dict[str, Any],
        *,
        job_id: str | None = None,
        num_rows: int = 0,
    ) -> None:
        """Store a calibration that was fitted elsewhere. Raises Conflict if its id is taken."""
        try:
            async with self._database.write() as connection:
                await insert_calibration(connection, calibration, report, job_id, num_rows)
        except IntegrityError:
            raise Conflict("A calibration of this id exists.") from None

    async def activate(self, calibration_id: str, *, by: str = "") -> CalibrationRecord | None:
        """Make this the active calibration of its fingerprint, at once on this replica; None if unknown."""
        record = await self.record(calibration_id)
        if record is None:
            return None
        async with self._database.write() as connection:
            key = record.calibration.fingerprint.key()
            changed = await make_current(connection, calibration_id, key, by=by, reason=ASKED)
        if changed:
            log_activation(calibration_id, by, ASKED)
        await self._active.refresh()
        return await self.record(calibration_id)

    def num_activations(self) -> int:
        """Return how many activations there ever were, from memory."""
        return self._active.num_activations

    async def history(self) -> list[Activation]:
        """Return every activation, newest first."""
        query = sa.select(activations).order_by(activations.c.id.desc())
        async with self._database.read() as connection:
            return [
                Activation(
                    found["calibration_id"],
                    found["activated_at"],
                    found["by"],
                    found["reason"],
                    found["replaced"],
                    found["fingerprint_key"],
                )
                for found in (await connection.execute(query)).mappings()
            ]

    async def report(self, calibration_id: str) -> dict[str, Any] | None:
        """Return the report made when it was fitted."""
        query = sa.select(reports.c.report).where(reports.c.calibration_id == calibration_id)
        async with self._database.read() as connection:
            found: dict[str, Any] | None = (await connection.execute(query)).scalar_one_or_none()
        return found

    async def rows(self, calibration_id: str) -> AsyncIterator[DevRow]:
        """Yield the rows it was fitted on, answers and `logprobs` as drawn; none once forgotten."""
        record = await self.record(calibration_id)
        if record is not None and record.job_id is not None:
            async for stored in read_rows(self._database, record.job_id):
                texts = tuple(d.text for d in stored.draws)
                yield replace(stored.row, samples=texts, logprobs=totals(stored.draws))

    async def forget_data(self, calibration_id: str) -> bool:
        """Delete its rows (prompts, references, answers) for good; False if there is no such calibration."""
        job_id = sa.select(calibrations.c.job_id).where(calibrations.c.id == calibration_id)
        async with self._database.write() as connection:
            await connection.execute(sa.delete(dev_rows).where(dev_rows.c.job_id == job_id.scalar_subquery()))
        # After the commit: the log can be emptied only once nobody writes.
        await self._database.forget()
        return await self.record(calibration_id) is not None


def _rank(calibration: Calibration, own_keys: Collection[str]) -> int:
    if calibration.fingerprint.key() in own_keys:
        return 0
    return 1 if calibration.fingerprint.source == SERVICE else 2


def decode_row(found: RowMapping) -> StoredRow:
    """Return a stored row; its `samples` are those it was uploaded with."""
    content = dict(found["content"])
    if content["messages"] is not None:
        content["messages"] = tuple(Message(**one) for one in content["messages"])
    draws = draws_from_json(found["draws"])
    row = DevRow(
        **content | {"references": tuple(content["references"])},
        line=found["line"],
        samples=tuple(one.text for one in draws) if found["supplied"] else None,
        logprobs=totals(draws) if found["supplied"] else None,
        verdict=None if found["verdict"] is None else Verdict(**found["verdict"]),
    )
    return StoredRow(row, draws, bool(found["complete"]), found["refused"])


async def read_rows(database: Database, job_id: str) -> AsyncIterator[StoredRow]:
    """Yield the rows in file order; no connection is held between pages."""
    query = (
        sa.select(dev_rows).where(dev_rows.c.job_id == job_id).order_by(dev_rows.c.line).limit(_ROWS_AT_ONCE)
    )
    # Pages begin after the last line seen: OFFSET would read all pages before once more.
    last = -1
    while page := await _page(database, query.where(dev_rows.c.line > last)):
        for found in page:
            yield decode_row(found)
        last = page[-1]["line"]


async def _page(database: Database, query: sa.Select[Any]) -> Sequence[RowMapping]:
    async with database.read() as connection:
        found: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
    return found
