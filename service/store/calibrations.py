"""Calibrations in SQL: immutable rows, their reports and data, and who is active."""

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import Calibration
from service.embedding.lru import LRU
from service.embedding.outcomes import totals
from service.errors import Conflict
from service.jobs.model import Activation, CalibrationRecord, DevRow
from service.llm.port import SERVICE
from service.store import codec
from service.store.active import ActiveCalibrations, log_activation, make_current, with_reference
from service.store.database import Database
from service.store.rows import read_rows
from service.store.tables import activations, calibrations, conformal_references, dev_rows, reports

_REMEMBERED = 32  # up to 3 MB each at d = 768
ASKED = "Activated as asked."


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
        "body": codec.encode_calibration(calibration),
        "num_rows": num_rows,
        "projection_ece": next((row["projection_ece"] for row in served), None),
        "created_at": calibration.created_at,
    }
    await connection.execute(sa.insert(calibrations).values(values))
    if calibration.reference is not None:
        content = codec.encode_reference(calibration.reference)
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
        calibration=codec.decode_calibration(found),
        active=activated_at is not None,
        activated_at=activated_at,
        job_id=found["job_id"],
        num_rows=found["num_rows"],
        data_kept=bool(found["data_kept"]),
        projection_ece=found["projection_ece"],
    )


class SqlCalibrations:
    """Implements `service.jobs.model.CalibrationStore`.

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
        self._seen = LRU[str, Calibration](_REMEMBERED)

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
            known = await self._database.soon(calibration_id, lambda: self._whole(calibration_id))
        if known is not None:
            self._seen.put(calibration_id, known)
        return known

    async def _whole(self, calibration_id: str) -> Calibration | None:
        query = with_reference().where(calibrations.c.id == calibration_id)
        async with self._database.read() as connection:
            found = (await connection.execute(query)).mappings().one_or_none()
        return None if found is None else codec.decode_calibration(found)

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
                    found["by"] or "",
                    found["reason"] or "",
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
