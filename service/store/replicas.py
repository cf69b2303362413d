"""The replicas of one database: each beats, and strikes off those that no longer do."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from service.errors import StoreUnavailable
from service.store.database import Database
from service.store.tables import replicas

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, the lanes whose jobs it runs, and its count of beats."""

    id: str
    lanes: tuple[str, ...]
    beat: int


class Replicas:
    """Beats for this replica every `beat_s`; a peer whose beat stood still for `lease_s` loses its row.

    So whoever has a row lives. Beats are compared by number, from one look to the next: no clocks need to be
    in step, and a replica that was itself asleep, or without a database, has seen nobody stand still.
    """

    def __init__(
        self,
        database: Database,
        replica_id: str,
        lanes: Sequence[str],
        *,
        beat_s: float = 1.0,
        lease_s: float = 10.0,
    ) -> None:
        self._database = database
        self._id = replica_id
        self._lanes = tuple(lanes)
        self._beat_s = beat_s
        self._looks = lease_s / beat_s
        self._still: dict[Replica, int] = {}  # in how many looks in a row, this beat and no other
        self._seen: int | None = None  # this name's count at the last look; None: not known
        self._shared = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Be known to live before any job runs here, and go on beating. Raises StoreUnavailable."""
        await self.beat()
        self._task = asyncio.create_task(self._beating(), name="replica-beat")

    async def stop(self) -> None:
        """Strike this replica off, so that peers take over at once what it leaves; idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        with contextlib.suppress(StoreUnavailable):  # then they find out by themselves
            await self._strike(replicas.c.id == self._id)

    @property
    def own_id(self) -> str:
        """Return the name of this replica."""
        return self._id

    async def lives(self, replica_id: str) -> bool:
        """Tell whether a replica has its row. Raises StoreUnavailable."""
        return any(one.id == replica_id for one in await self.living())

    async def living(self) -> list[Replica]:
        """Return the replicas that live, by id. Raises StoreUnavailable."""
        async with self._database.read() as connection:
            found = await connection.execute(sa.select(replicas).order_by(replicas.c.id))
            return [Replica(row.id, tuple(row.lanes), row.beat) for row in found]

    async def beat(self) -> None:
        """Show that this replica lives, its first beat after being struck off included."""
        mine = sa.update(replicas).where(replicas.c.id == self._id)
        async with self._database.write() as connection:
            changed = await connection.execute(mine.values(beat=replicas.c.beat + 1, lanes=self._lanes))
            if changed.rowcount == 0:
                values = {"id": self._id, "lanes": self._lanes, "beat": 0}
                await connection.execute(sa.insert(replicas).values(values))

    async def _beating(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            try:
                await self.beat()
                await self._look()
            except StoreUnavailable:
                self._still, self._seen = {}, None  # nobody could beat meanwhile
            except Exception:
                self._seen = None
                logger.exception("the beat of this replica failed")

    async def _look(self) -> None:
        """Count how long each stands still; this one, having just beaten, never does."""
        living = await self.living()
        self._look_at_own({one.id: one.beat for one in living}.get(self._id))
        self._still = {one: self._still.get(one, 0) + 1 for one in living}
        for one, looks in self._still.items():
            if looks > self._looks:
                logger.warning("replica %s stands still: peers take its jobs over", one.id)
                # By the beat that stood still: should it beat again meanwhile, it keeps its row.
                await self._strike(replicas.c.id == one.id, replicas.c.beat == one.beat)

    def _look_at_own(self, count: int | None) -> None:
        """Log once when this name's count went on by more than our one beat: another process lives under it.

        A lower count is no other's: a copy of the database was put back.
        """
        last, self._seen = self._seen, count
        if self._shared or last is None or count is None or count <= last + 1:
            return
        self._shared = True
        logger.error(
            "another process runs as replica %s: when one of them dies, nobody takes its jobs over; "
            "give each an EIGENCAL_REPLICA_ID of its own",
            self._id,
        )

    async def _strike(self, *which: sa.ColumnElement[bool]) -> None:
        async with self._database.write() as connection:
            await connection.execute(sa.delete(replicas).where(*which))
