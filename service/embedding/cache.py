"""What every embedder needs around its model: each text embedded once, kept, and never too many at a time."""

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
    """Embeds what is missing, keeps at most `max_entries` vectors, runs at most `max_queue` calls at once.

    Vectors take 4 bytes per dimension each.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[bytes, Vectors] = LRU(max_entries)
        self._max_queue = max_queue
        self.num_queued = 0  # calls that are embedded, or wait for that

    async def rows(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded when the queue is full, and what `compute` raises.
        """
        rows = dict[str, Vectors]()
        for text in texts:
            if (row := self._kept.get(_key(text))) is not None:
                rows[text] = row
        if missing := [text for text in dict.fromkeys(texts) if text not in rows]:
            for text, row in zip(missing, await self._embed(missing), strict=True):
                rows[text] = row
                self._kept.put(_key(text), row.copy())  # a view would keep its whole batch in memory
        return np.stack([rows[text] for text in texts])

    async def _embed(self, texts: list[str]) -> Vectors:
        if self.num_queued >= self._max_queue:
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=1.0)
        self.num_queued += 1
        try:
            # A lone surrogate, which JSON can carry, is no text that a tokenizer or a socket takes.
            return await self._compute([text.encode("utf-8", "replace").decode() for text in texts])
        finally:
            self.num_queued -= 1


def _key(text: str) -> bytes:
    # A hash: the cache could hold gigabytes of text else.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
