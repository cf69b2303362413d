"""Documents kept for a while in SQL, where every replica finds them."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StoreUnavailable
from service.store.database import Database
from service.store.tables import kept

logger = logging.getLogger(__name__)

# The database's own clock: those of two replicas need not be in step. SQLite's counts whole seconds.
_NOW = sa.extract("epoch", sa.func.now())


@dataclass(frozen=True, slots=True)
class Document:
    """JSON text to be kept under an id and its owner, for `ttl_s` seconds from when it is put."""

    id: str
    owner: str
    text: str = field(repr=False)  # it may hold prompts and answers, which no log may
    ttl_s: float


class SqlKept:
    """JSON documents kept for a while, for whichever replica is asked for them next.

    The owner is the mark of the key that one was made under, and no other finds it. `max_documents`: kept at
    most, the oldest go first. What is over its time is found by nobody, and deleted every `sweep_s`.
    Reading and writing raise StoreUnavailable.
    """

    def __init__(self, database: Database, *, max_documents: int, sweep_s: float = 60.0) -> None:
        self._database = database
        self._max_documents = max_documents
        self._sweep_s = sweep_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to sweep."""
        self._task = asyncio.create_task(self._sweeping(), name="kept-sweep")

    async def stop(self) -> None:
        """Sweep no more; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def put_all(self, documents: Sequence[Document]) -> None:
        """Keep many at once, no two of the same names, in place of those kept under them: all or none."""
        if not documents:
            return
        ids = defaultdict[str, list[str]](list)
        for one in documents:
            ids[one.owner].append(one.id)
        values = [
            {"id": one.id, "owner": one.owner, "content": one.text, "ttl_s": one.ttl_s} for one in documents
        ]
        newest_first = sa.select(kept.c.number).order_by(kept.c.number.desc())
        last = newest_first.offset(self._max_documents).limit(1).scalar_subquery()
        async with self._database.write() as connection:
            for owner, some in ids.items():
                # Not all names as tuples in one statement: SQLite then reads the whole table.
                await connection.execute(sa.delete(kept).where(kept.c.owner == owner, kept.c.id.in_(some)))
            await connection.execute(sa.insert(kept).values(expires=_NOW + sa.bindparam("ttl_s")), values)
            await _delete(connection, kept.c.number <= last)

    async def get(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return the document; None where there is none, its time is over, or it is another owner's.

        A database that does not answer is not waited for long.
        """
        text = await self._database.soon(self._get(id_, owner))
        return None if text is None else dict(json.loads(text))

    async def _get(self, id_: str, owner: str) -> str | None:
        named = (kept.c.owner == owner, kept.c.id == id_, kept.c.expires > _NOW)
        query = sa.select(kept.c.content).where(*named).order_by(kept.c.number.desc()).limit(1)
        async with self._database.read() as connection:
            text: str | None = (await connection.execute(query)).scalar_one_or_none()
        return text

    async def _sweeping(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            try:
                await self.sweep()
            except StoreUnavailable:
                continue  # it was logged
            except Exception:
                logger.exception("what was kept long enough cannot be deleted")

    async def sweep(self) -> None:
        """Delete what is over its time, from the log of changes beside the database, too."""
        async with self._database.write() as connection:
            deleted = await _delete(connection, kept.c.expires <= _NOW)
        if deleted:
            await self._database.forget()


async def _delete(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> int:
    # Rows that another replica is deleting are passed over: two that wait for each other's rows would fail.
    free = sa.select(kept.c.number).where(which).with_for_update(skip_locked=True)
    return (await connection.execute(sa.delete(kept).where(kept.c.number.in_(free)))).rowcount
