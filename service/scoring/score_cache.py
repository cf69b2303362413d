"""Scores stored by id for GET /scores/{id}, written to the store in batches after the responses."""

import asyncio
import contextlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StoreUnavailable
from service.store.database import Database, kept

logger = logging.getLogger(__name__)

# Bounds of scores that are not written yet; the oldest are dropped first. A score with all its answers may be
# as large as a request body.
MAX_CHARACTERS = 32 << 20
MAX_SCORE_CHARACTERS = 1 << 20
MAX_SCORES = 10_000  # 20 MB in the store
BATCH = 200  # scores of one transaction, which holds the store's lock until it ends
GATHER_S = 0.1
RETRY_S = 5.0
FLUSH_S = 5.0  # at shutdown
SWEEP_S = 60.0  # between deletions of scores that are expired or too many
# The database's clock, because the clocks of replicas may differ. SQLite's counts whole seconds.
_NOW = sa.extract("epoch", sa.func.now())


@dataclass(frozen=True, slots=True)
class Document:
    """JSON text to store under an id and owner; None: only delete the stored one.

    `until`: expiry as a time of `time.monotonic`.
    """

    id: str
    owner: str
    text: str | None = field(repr=False)  # may contain prompts and answers, which must not be logged
    until: float


class ScoreStore:
    """JSON documents stored for a limited time, shared by all replicas.

    The owner is a hash of the API key that created the document; other keys do not find it. `max_documents`:
    `sweep` deletes the oldest documents beyond this number. Expired documents are never returned. All methods
    raise StoreUnavailable.
    """

    def __init__(self, database: Database, *, max_documents: int) -> None:
        self._database = database
        self._max_documents = max_documents

    async def put_all(self, documents: Sequence[Document]) -> None:
        """Store documents in one transaction, replacing those with the same ids and owners.

        The pairs of id and owner must be distinct.
        """
        ids_by_owner = defaultdict[str, list[str]](list)
        for document in documents:
            ids_by_owner[document.owner].append(document.id)
        now = time.monotonic()
        values = [
            {
                "id": document.id,
                "owner": document.owner,
                "content": document.text,
                "ttl_s": document.until - now,
            }
            for document in documents
            if document.text is not None and document.until > now
        ]
        async with self._database.write() as connection:
            for owner, ids in ids_by_owner.items():
                # One statement per owner: for tuples (owner, id), SQLite would read the whole table.
                await connection.execute(sa.delete(kept).where(kept.c.owner == owner, kept.c.id.in_(ids)))
            if values:
                await connection.execute(sa.insert(kept).values(expires=_NOW + sa.bindparam("ttl_s")), values)

    async def get(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return the document, or None if it is unknown, expired or another owner's.

        A database that does not answer fails soon.
        """
        conditions = (kept.c.owner == owner, kept.c.id == id_, kept.c.expires > _NOW)
        query = sa.select(kept).where(*conditions).order_by(kept.c.number.desc()).limit(1)
        return await self._database.soon(
            self._database.row(query, kept, lambda row: dict(json.loads(row["content"])))
        )

    async def sweep(self) -> None:
        """Delete documents that are expired or beyond the limit, also from the database's log of changes."""
        newest_first = sa.select(kept.c.number).order_by(kept.c.number.desc())
        last = newest_first.offset(self._max_documents).limit(1).scalar_subquery()
        async with self._database.write() as connection:
            deleted = await _delete(connection, (kept.c.expires <= _NOW) | (kept.c.number <= last))
        if deleted:
            await self._database.forget()


async def _delete(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> int:
    # Rows that another replica is deleting are skipped, because two deletions could deadlock.
    free = sa.select(kept.c.number).where(which).with_for_update(skip_locked=True)
    return (await connection.execute(sa.delete(kept).where(kept.c.number.in_(free)))).rowcount


class ScoreCache:
    """Stores each score for `keep_s` seconds; 0: stores none.

    Only this replica finds a score that is not written yet. Store outages are retried every `RETRY_S`.
    Expired scores, and the oldest beyond the limit, are deleted every `SWEEP_S`.
    """

    def __init__(self, documents: ScoreStore, *, keep_s: float) -> None:
        self._documents = documents
        self._keep_s = keep_s
        self._unwritten: dict[tuple[str, str], Document] = {}  # oldest first
        self._characters = 0
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to write scores and to delete expired ones."""
        self._tasks = [
            asyncio.create_task(work(), name=f"kept-{work.__name__}")
            for work in (self._writing, self._sweeping)
        ]

    async def stop(self) -> None:
        """Write the remaining scores, for at most `FLUSH_S`; idempotent."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        self._stopping.set()
        self._news.set()
        await asyncio.wait(tasks, timeout=FLUSH_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if self._unwritten:
            logger.warning("%d scores were not written to the store and are lost", len(self._unwritten))

    def save(self, id_: str, owner: str, text: str) -> None:
        """Store a score as JSON text, replacing an earlier one with the same id. Never waits, never raises.

        A text of more than a million characters is not stored.
        """
        if not self._keep_s:
            return
        self._forget((owner, id_))
        kept_text = text if len(text) <= MAX_SCORE_CHARACTERS else None
        self._unwritten[owner, id_] = Document(id_, owner, kept_text, time.monotonic() + self._keep_s)
        self._characters += len(kept_text or "")
        while self._characters > MAX_CHARACTERS or len(self._unwritten) > MAX_SCORES:
            self._forget(next(iter(self._unwritten)))
        self._news.set()

    async def find(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return a stored score, or None if it is unknown, expired or another owner's.

        Raises StoreUnavailable if this replica does not have it and the store does not answer.
        """
        if (unwritten := self._unwritten.get((owner, id_))) is not None:
            is_expired = unwritten.until <= time.monotonic()
            return None if is_expired or unwritten.text is None else dict(json.loads(unwritten.text))
        return await self._documents.get(id_, owner) if self._keep_s else None

    def _forget(self, key: tuple[str, str]) -> None:
        if (document := self._unwritten.pop(key, None)) is not None:
            self._characters -= len(document.text or "")

    async def _stops_within(self, seconds: float) -> bool:
        """Wait; return True as soon as the service stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _writing(self) -> None:
        is_failing = False
        while True:
            await self._news.wait()
            is_stopping = await self._stops_within(GATHER_S)
            batch = dict(islice(self._unwritten.items(), BATCH))
            if not batch:  # the service stops
                return
            try:
                await self._documents.put_all(list(batch.values()))
            except StoreUnavailable:
                if is_stopping:
                    return
                if not is_failing:
                    logger.warning("scores stay only in this replica's memory until the store answers again")
                is_failing = True
                await self._stops_within(RETRY_S)
                continue
            except Exception as error:
                # Scores that the store refuses must not block later ones. Only the type of the error is
                # logged: the text of a database error may quote the scores.
                kind = type(error).__name__
                logger.error("%d scores cannot be written to the store: %s", len(batch), kind)  # noqa: TRY400
            is_failing = False
            for key, document in batch.items():
                if self._unwritten.get(key) is document:  # otherwise, a newer document waits
                    self._forget(key)
            if not self._unwritten and not self._stopping.is_set():
                self._news.clear()

    async def _sweeping(self) -> None:
        while not await self._stops_within(SWEEP_S):
            try:
                await self._documents.sweep()
            except StoreUnavailable:
                continue  # it was logged
            except Exception:
                logger.exception("expired scores cannot be deleted")
