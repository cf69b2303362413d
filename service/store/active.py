"""Active calibrations in memory: asked on every score, refreshed when any replica activates one."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.calibration.calibration import Calibration
from service.errors import StoreUnavailable
from service.store import codec
from service.store.database import Database
from service.store.tables import activations, calibrations, conformal_references

logger = logging.getLogger(__name__)
_LOCK = 0x65696766  # the number after the lock of the migrations


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
    values = {"calibration_id": calibration_id, "fingerprint_key": fingerprint_key, "current": True}
    told = {"by": by, "reason": reason, "replaced": replaced, "activated_at": datetime.now(UTC)}
    await connection.execute(sa.insert(activations).values(values | told))
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
    found: str | None = (await connection.execute(query)).scalar_one_or_none()
    return found


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
        self._version: tuple[int, int] | None = None
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
        return 0 if self._version is None else self._version[1]

    def known(self, calibration_id: str) -> Calibration | None:
        """Return an active calibration by its id."""
        return next((c for c in self._by_key.values() if c.id == calibration_id), None)

    async def refresh(self) -> None:
        """Load the active calibrations if any activation has happened since. Raises StoreUnavailable."""
        async with self._database.read() as connection:
            latest = (await connection.execute(sa.select(sa.func.max(activations.c.id)))).scalar() or 0
            # A file that was replaced may hold the same number: its generation tells the two apart.
            version = (self._database.generation, latest)
            if version != self._version:
                self._by_key = {c.fingerprint.key(): c for c in await _load(connection)}
                self._version = version

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
    return [codec.decode_calibration(found) for found in (await connection.execute(query)).mappings()]
