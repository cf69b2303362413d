"""What every embedder needs around its model: each text embedded once, kept, and never too many at a time."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.errors import EmbedderUnavailable, Overloaded
from service.lru import LRU

Vectors = NDArray[np.float32]
Compute = Callable[[list[str]], Awaitable[Vectors]]
"""Embeds texts: one unit row per text; raises what the caller is to see."""

MIN_NORM = 1e-12  # below it a direction is rounding noise
MAX_KEY_CHARS = 200  # a hash is shorter than longer texts


def unit_rows(raw: NDArray[np.generic], count: int) -> Vectors:
    """Return the rows scaled to length 1: float32, C-contiguous, shape (count, dimension).

    Raises EmbedderUnavailable when the shape is wrong, or a row is zero or not finite.
    """
    if raw.ndim != 2 or raw.shape[0] != count or raw.shape[1] == 0:
        raise EmbedderUnavailable("The embedder did not return one vector per text.")
    rows = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a server may send any number
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise EmbedderUnavailable("The embedder returned a vector that is not finite.")
    if count and norms.min() < MIN_NORM:
        raise EmbedderUnavailable("The embedder returned a zero vector.")
    return np.ascontiguousarray(rows / norms, dtype=np.float32)


class VectorCache:
    """Embeds what is missing, keeps at most `max_entries` vectors, runs at most `max_queue` batches at once.

    A text that is being embedded for one caller is not embedded again for another. A batch goes on when its
    callers have gone: they may ask again. Vectors take 4 bytes per dimension each.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[str | bytes, Vectors] = LRU(max_entries)
        self._max_queue = max_queue
        self._batches: dict[asyncio.Task[dict[str, Vectors]], list[str]] = {}
        self._batch_of: dict[str, asyncio.Task[dict[str, Vectors]]] = {}

    @property
    def num_batches(self) -> int:
        """Return how many batches are embedded, or wait for that."""
        return len(self._batches)

    async def rows(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded when the queue is full, and what `compute` raises.
        """
        rows, missing = dict[str, Vectors](), list[str]()
        for text in dict.fromkeys(texts):
            if (row := self._kept.get(_key(text))) is not None:
                rows[text] = row
            elif text not in self._batch_of:
                missing.append(text)
        if missing:
            self._start(missing)
        for batch in {self._batch_of[text]: None for text in texts if text not in rows}:
            rows |= await asyncio.shield(batch)
        return np.stack([rows[text] for text in texts])

    def _start(self, texts: list[str]) -> None:
        if len(self._batches) >= self._max_queue:
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=1.0)
        batch = asyncio.create_task(self._embed(texts))
        self._batches[batch] = texts
        self._batch_of.update(dict.fromkeys(texts, batch))
        batch.add_done_callback(self._end)

    def _end(self, batch: asyncio.Task[dict[str, Vectors]]) -> None:
        for text in self._batches.pop(batch):
            del self._batch_of[text]
        if not batch.cancelled():
            batch.exception()  # seen, even where its callers have gone

    async def _embed(self, texts: list[str]) -> dict[str, Vectors]:
        try:
            # A lone surrogate, which JSON can carry, is no text that a tokenizer or a socket takes.
            rows = await self._compute([text.encode("utf-8", "replace").decode() for text in texts])
        except asyncio.CancelledError:
            raise EmbedderUnavailable("The embedder has been stopped.") from None
        for text, row in zip(texts, rows, strict=True):
            self._kept.put(_key(text), row.copy())  # a view would keep its whole batch in memory
        return dict(zip(texts, rows, strict=True))


def _key(text: str) -> str | bytes:
    """Return the text, or a hash of a long one: else the cache could hold gigabytes of text."""
    if len(text) <= MAX_KEY_CHARS:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
