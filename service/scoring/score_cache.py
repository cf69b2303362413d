"""Scores kept for whoever asks for them by id: written to the store in one go, behind the responses."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

from service.errors import StoreUnavailable
from service.store.documents import Document, SqlKept

log = logging.getLogger(__name__)

# Of scores that the store has not taken yet, the oldest go first. With the answers asked for, one may be as
# large as a body.
MAX_CHARACTERS = 32 << 20
MAX_SCORE_CHARACTERS = 1 << 20
MAX_SCORES = 10_000  # 20 MB in the store
BATCH = 200  # of one transaction, which keeps the store's lock for as long as it takes
GATHER_S = 0.1
RETRY_S = 5.0
FLUSH_S = 5.0  # at the stop


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
            log.warning("%d scores were not written to the store: they are gone", len(self._unwritten))

    def keep(self, id_: str, owner: str, document: Mapping[str, Any] | str) -> None:
        """Keep what is known of a score, in place of what was kept before: never waits, never raises.

        `document` may be JSON text already. One of more than a million characters is not kept.
        """
        text = document if isinstance(document, str) else json.dumps(document)
        self._forget((owner, id_))
        if not self._keep_s or len(text) > MAX_SCORE_CHARACTERS:
            return
        self._unwritten[owner, id_] = Document(id_, owner, text, self._keep_s)
        self._characters += len(text)
        while self._characters > MAX_CHARACTERS or len(self._unwritten) > MAX_SCORES:
            self._forget(next(iter(self._unwritten)))
        self._news.set()

    async def find(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return what is known of a score; None if unknown, too old, or another owner's.

        Raises StoreUnavailable when it is not this replica's and the store cannot be asked.
        """
        unwritten = self._unwritten.get((owner, id_))
        if unwritten is not None:
            return dict(json.loads(unwritten.text))
        return await self._documents.get(id_, owner) if self._keep_s else None

    def _forget(self, key: tuple[str, str]) -> None:
        if (one := self._unwritten.pop(key, None)) is not None:
            self._characters -= len(one.text)

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
                    log.warning("scores stay in this replica's memory alone until the store answers again")
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
            log.error("%d scores cannot be written to the store: %s", len(batch), kind)  # noqa: TRY400
        for key, one in batch.items():
            if self._unwritten.get(key) is one:  # else there is news of it since
                self._forget(key)
        if not self._unwritten:
            self._news.clear()
