"""Scores kept for whoever asks for them by id: in this replica's memory at once, in the store soon after."""

import asyncio
import contextlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from service.errors import StoreUnavailable
from service.ids import age_s
from service.store.documents import Document, SqlKept

log = logging.getLogger(__name__)

# In memory, whatever the number of scores: with the answers asked for, one may be as large as a body.
MAX_CHARACTERS = 32 << 20
MAX_SCORE_CHARACTERS = 1 << 20
MAX_SCORES = 10_000  # 20 MB in the store, and as much in memory; the oldest go first
BATCH = 200  # of one transaction, which keeps the store's lock for as long as it takes
FLUSH_S = 5.0  # at the stop
YOUNG_S = 5.0  # clocks of replicas are not farther apart, or a score may be missed in its first moments

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    text: str
    expires: float  # by time.monotonic()


class ScoreCache:
    """Keeps each score for `keep_s` seconds, `max_scores` at most; 0 seconds: none.

    What is new is gathered for `gather_s` and written to `documents` in one go, behind the responses. While
    the store is down, this replica alone finds its scores, and tries again every `retry_s`.
    """

    def __init__(
        self,
        documents: SqlKept,
        *,
        keep_s: float,
        max_scores: int = MAX_SCORES,
        gather_s: float = 0.2,
        retry_s: float = 5.0,
    ) -> None:
        self._documents = documents
        self._keep_s = keep_s
        self._max_scores = max_scores
        self._gather_s = gather_s
        self._retry_s = retry_s
        self._known: OrderedDict[Key, _Entry] = OrderedDict()  # oldest first: they expire in this order
        self._unwritten: dict[Key, _Entry] = {}
        self._characters = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._writing(), name="kept-scores")

    async def stop(self) -> None:
        """Write what is left, if the store takes it soon; idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                while self._unwritten:
                    await self._write()
        if self._unwritten:
            log.warning("%d scores were not written to the store: they are gone", len(self._unwritten))

    def keep(self, id_: str, owner: str, document: Mapping[str, Any] | str) -> None:
        """Keep what is known of a score, in place of what was kept before: never waits, never raises.

        `document` may be JSON text already. One of more than a million characters is not kept.
        """
        if not self._keep_s:
            return
        text = document if isinstance(document, str) else json.dumps(document)
        if len(text) > MAX_SCORE_CHARACTERS:
            self._forget((owner, id_))  # better none than the one before, which is no longer true
            return
        now = time.monotonic()
        self._forget((owner, id_))
        self._known[owner, id_] = self._unwritten[owner, id_] = _Entry(text, now + self._keep_s)
        self._characters += len(text)
        self._make_room(now)
        self._news.set()

    async def find(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return what is known of a score; None if unknown, too old, or another owner's.

        Raises StoreUnavailable when it is not this replica's and the store cannot be asked.
        """
        entry = self._known.get((owner, id_))
        if entry is not None and entry.expires > time.monotonic():
            return dict(json.loads(entry.text))
        if not self._keep_s:
            return None
        document = await self._documents.get(id_, owner)
        # A caller may ask here before the replica that scored has written.
        for _ in range(3):
            if document is not None or not _young(id_):
                break
            await asyncio.sleep(self._gather_s)
            document = await self._documents.get(id_, owner)
        return document

    def _make_room(self, now: float) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            crowded = len(self._known) > self._max_scores or self._characters > MAX_CHARACTERS
            if not crowded and oldest.expires > now:
                return
            self._forget(key)

    def _forget(self, key: Key) -> None:
        entry = self._known.pop(key, None)
        if entry is not None:
            self._characters -= len(entry.text)
            self._unwritten.pop(key, None)

    async def _writing(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(self._gather_s)
            try:
                await self._write()
                self._failing = False
            except StoreUnavailable:
                if not self._failing:
                    log.warning("scores stay in this replica's memory alone until the store answers again")
                self._failing = True
                await asyncio.sleep(self._retry_s)

    async def _write(self) -> None:
        """Write a batch of what is new. Raises StoreUnavailable; the batch is then still to be written."""
        batch = dict(islice(self._unwritten.items(), BATCH))
        now = time.monotonic()
        try:
            await self._documents.put_all(
                [
                    Document(id_, owner, entry.text, max(entry.expires - now, 0.0))
                    for (owner, id_), entry in batch.items()
                ]
            )
        except StoreUnavailable:
            raise
        except Exception as error:
            # What the store refuses for good must not hold up what comes after it. Told by its kind alone,
            # since the text of a database's error may quote what was to be stored.
            kind = type(error).__name__
            log.error("%d scores cannot be written to the store: %s", len(batch), kind)  # noqa: TRY400
        for key, entry in batch.items():
            if self._unwritten.get(key) is entry:  # else there is news of it since
                del self._unwritten[key]
        if not self._unwritten:
            self._news.clear()


def _young(id_: str) -> bool:
    try:
        return abs(age_s(id_)) < YOUNG_S
    except ValueError:
        return False
