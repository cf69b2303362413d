"""An in-memory fake of the store of kept documents."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from service.errors import StoreUnavailable
from service.scoring.score_cache import Document


class MemoryKept:
    """Replaces `ScoreStore`.

    `available` false: each call raises. `gate`: each write waits for it. `batches` records the number of
    documents per write, `calls` counts the answered calls.
    """

    def __init__(
        self,
        max_documents: int = 10_000,
        *,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.available = True
        self.batches: list[int] = []
        self.gate = gate
        self._max_documents = max_documents
        self._kept: dict[tuple[str, str], tuple[float, str]] = {}

    async def put_all(self, documents: Sequence[Document]) -> None:
        """Store documents."""
        if self.gate is not None:
            await self.gate.wait()
        self._check()
        self.batches.append(len(documents))
        for document in documents:
            self._kept.pop((document.owner, document.id), None)  # a replaced document moves to the end
            if document.text is not None and document.until > time.monotonic():
                self._kept[document.owner, document.id] = (document.until, document.text)

    async def get(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return a document."""
        self._check()
        until, text = self._kept.get((owner, id_), (float("-inf"), ""))
        return json.loads(text) if until > time.monotonic() else None

    async def sweep(self) -> None:
        """Delete documents that are expired or beyond the limit."""
        self._check()
        now, newest = time.monotonic(), list(self._kept.items())[-self._max_documents :]
        self._kept = {names: kept for names, kept in newest if kept[0] > now}

    def _check(self) -> None:
        if not self.available:
            raise StoreUnavailable("The store is not available.")
