"""Kept documents in memory: the fake of the port."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from service.errors import StoreUnavailable
from service.scoring.score_cache import Document


class MemoryKept:
    """Stands in for `SqlKept`.

    `available` false: every call raises. `gate`: when given, every write waits for it. `batches` records how
    many documents came at a time, `calls` counts the calls that were answered.
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
        """Keep many."""
        if self.gate is not None:
            await self.gate.wait()
        self._check()
        self.batches.append(len(documents))
        for one in documents:
            self._kept.pop((one.owner, one.id), None)  # the one that takes its place is the youngest
            if one.text is not None and one.until > time.monotonic():
                self._kept[one.owner, one.id] = (one.until, one.text)
        for names in list(self._kept)[: -self._max_documents]:
            del self._kept[names]

    async def get(self, id_: str, owner: str) -> dict[str, Any] | None:
        """Return a document."""
        self._check()
        until, text = self._kept.get((owner, id_), (float("-inf"), ""))
        return json.loads(text) if until > time.monotonic() else None

    def _check(self) -> None:
        if not self.available:
            raise StoreUnavailable("The store is not available.")
