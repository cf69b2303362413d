"""Scores kept for whoever asks for them by id: written to the store in one go, behind the responses."""

import asyncio
import contextlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StoreUnavailable
from service.store.database import Database, kept

logger = logging.getLogger(__name__)

# Of scores that the store has not taken yet, the oldest go first. With the answers asked for, one may be as
# large as a body.
MAX_CHARACTERS = 32 << 20
MAX_SCORE_CHARACTERS = 1 << 20
MAX_SCORES = 10_000  # 20 MB in the store
BATCH = 200  # of one transaction, which keeps the store's lock for as long as it takes
GATHER_S = 0.1
RETRY_S = 5.0
FLUSH_S = 5.0  # at the stop
# The database's own clock: those of two replicas need not be in step. SQLite's counts whole seconds.
_NOW = sa.extract("epoch", sa.func.now())
_OBJECT = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Document:
    """JSON text to be kept under an id and its owner (None: nothing), until a time of `time.monotonic`."""

    id: str
    owner: str
    text: str | None = field(repr=False)  # it may hold prompts and answers, which no log may
    until: float


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
        now = time.monotonic()
        values = [
            {"id": one.id, "owner": one.owner, "content": one.text, "ttl_s": one.until - now}
            for one in documents
            if one.text is not None and one.until > now
        ]
        newest_first = sa.select(kept.c.number).order_by(kept.c.number.desc())
        last = newest_first.offset(self._max_documents).limit(1).scalar_subquery()
        async with self._database.write() as connection:
            for owner, some in ids.items():
                # Not all names as tuples in one statement: SQLite then reads the whole table.
                await connection.execute(sa.delete(kept).where(kept.c.owner == owner, kept.c.id.in_(some)))
            if values:
                await connection.execute(sa.insert(kept).values(expires=_NOW + sa.bindparam("ttl_s")), values)
            await _delete(connection, kept.c.number <= last)

    async def get(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return the document; None where there is none, its time is over, or it is another owner's.

        A database that does not answer is not waited for long.
        """
        named = (kept.c.owner == owner, kept.c.id == id_, kept.c.expires > _NOW)
        query = sa.select(kept).where(*named).order_by(kept.c.number.desc()).limit(1)
        return await self._database.soon(self._database.row(query, kept, _document))

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


def _document(row: RowMapping) -> dict[str, Any]:
    return _OBJECT.validate_json(row["content"])


async def _delete(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> int:
    # Rows that another replica is deleting are passed over: two that wait for each other's rows would fail.
    free = sa.select(kept.c.number).where(which).with_for_update(skip_locked=True)
    return (await connection.execute(sa.delete(kept).where(kept.c.number.in_(free)))).rowcount


class ScoreCache:
    """Keeps each score for `keep_s` seconds; 0: none.

    What the store has not taken yet is found by this replica alone; while it is down it is asked again every
    `RETRY_S`.
    """

    def __init__(self, documents: SqlKept, *, keep_s: float) -> None:
        self._documents = documents
        self._keep_s = keep_s
        self._unwritten: dict[tuple[str, str], Document] = {}  # oldest first
        self._characters = 0
        self._news = asyncio.Event()
        self._at_store = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._writing(), name="kept-scores")

    async def stop(self) -> None:
        """Write what is left, if the store takes it soon; idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                async with self._at_store:  # a transaction of SQLite that is broken off may keep its lock
                    task.cancel()
                while self._unwritten:
                    await self._write()
        task.cancel()
        await asyncio.wait({task})
        if self._unwritten:
            logger.warning("%d scores were not written to the store: they are gone", len(self._unwritten))

    def keep(self, id_: str, owner: str, document: Mapping[str, Any] | str) -> None:
        """Keep what is known of a score, in place of what was kept before: never waits, never raises.

        `document` may be JSON text already. One of more than a million characters is not kept.
        """
        if not self._keep_s:
            return
        text = document if isinstance(document, str) else json.dumps(document)
        self._forget((owner, id_))
        kept_text = text if len(text) <= MAX_SCORE_CHARACTERS else None
        self._unwritten[owner, id_] = Document(id_, owner, kept_text, time.monotonic() + self._keep_s)
        self._characters += len(kept_text or "")
        while self._characters > MAX_CHARACTERS or len(self._unwritten) > MAX_SCORES:
            self._forget(next(iter(self._unwritten)))
        self._news.set()

    async def find(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return what is known of a score; None if unknown, too old, or another owner's.

        Raises StoreUnavailable when it is not this replica's and the store cannot be asked.
        """
        if (unwritten := self._unwritten.get((owner, id_))) is not None:
            is_over = unwritten.until <= time.monotonic()
            return None if is_over or unwritten.text is None else dict(json.loads(unwritten.text))
        return await self._documents.get(id_, owner) if self._keep_s else None

    def _forget(self, key: tuple[str, str]) -> None:
        if (one := self._unwritten.pop(key, None)) is not None:
            self._characters -= len(one.text or "")

    async def _writing(self) -> None:
        failing = False
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_S)
            try:
                async with self._at_store:
                    await self._write()
                failing = False
            except StoreUnavailable:
                if not failing:
                    logger.warning("scores stay in this replica's memory alone until the store answers again")
                failing = True
                await asyncio.sleep(RETRY_S)

    async def _write(self) -> None:
        """Write a batch of what is new. Raises StoreUnavailable; the batch is then still to be written."""
        batch = dict(islice(self._unwritten.items(), BATCH))
        try:
            await self._documents.put_all(list(batch.values()))
        except StoreUnavailable:
            raise
        except Exception as error:
            # What the store refuses for good must not hold up what comes after it. Told by its kind alone,
            # since the text of a database's error may quote what was to be stored.
            kind = type(error).__name__
            logger.error("%d scores cannot be written to the store: %s", len(batch), kind)  # noqa: TRY400
        for key, one in batch.items():
            if self._unwritten.get(key) is one:  # else there is news of it since
                self._forget(key)
        if not self._unwritten:
            self._news.clear()
