"""Which replicas are alive, by the time when each was last seen."""

import contextlib

import sqlalchemy as sa

from service.errors import StoreUnavailable
from service.store.database import Database, replicas

_NOW = sa.extract("epoch", sa.func.clock_timestamp())  # by the database's clock


class Presence:
    """The replicas that run jobs on one Postgres. A replica that is silent for `lease_s` seconds is dead."""

    def __init__(self, database: Database, *, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s

    async def beat(self, replica_id: str) -> set[str] | None:
        """Store that a replica is alive and return the ids of all live replicas.

        Return None at the first call, and if the replica itself was silent for the lease: the store may have
        been unavailable to its peers too, so it is unknown which of them are alive. Raises StoreUnavailable.
        """
        own = replicas.c.id == replica_id
        async with self._database.write() as connection:
            # By this replica's previous call, not by the present time: an outage silences all replicas.
            last = sa.select(replicas.c.seen_at).where(own).scalar_subquery()
            await connection.execute(sa.delete(replicas).where(replicas.c.seen_at < last - self._lease_s))
            seen = await connection.execute(sa.update(replicas).where(own).values(seen_at=_NOW))
            if not seen.rowcount:
                await connection.execute(sa.insert(replicas).values(id=replica_id, seen_at=_NOW))
                return None
            return set((await connection.execute(sa.select(replicas.c.id))).scalars())

    async def leave(self, replica_id: str) -> None:
        """Store that a replica runs no more jobs. If the store is unavailable, the lease runs out instead."""
        with contextlib.suppress(StoreUnavailable):
            async with self._database.write() as connection:
                await connection.execute(sa.delete(replicas).where(replicas.c.id == replica_id))
