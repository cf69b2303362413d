"""What every embedder needs around its model: each text embedded once, kept, and never too many at a time."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.errors import EmbedderUnavailable, Overloaded
from service.lru import LRU

Vectors = NDArray[np.float32]
Compute = Callable[[list[str]], Awaitable[Vectors]]
"""Embeds texts: one unit row per text; raises what the caller is told."""

MIN_NORM = 1e-12  # below it a direction is rounding noise
SMOOTHING = 0.2  # of the mean time of a batch, from which Retry-After comes
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


def model_changed() -> EmbedderUnavailable:
    """Return the error of a call that met two models, whose vectors cannot be compared."""
    return EmbedderUnavailable("The embedding server has changed its model; ask again.")


@dataclass(eq=False, slots=True)
class _Batch:
    """Texts being embedded, and how many callers wait for them."""

    texts: list[str]
    task: asyncio.Task[Vectors]
    num_waiting: int = 0


class VectorCache:
    """Embeds what is missing, keeps at most `max_entries` vectors, runs at most `max_queue` batches at once.

    A text that is being embedded for one caller is not embedded again for another. When every caller of a
    batch has gone, the batch is cancelled. Vectors take 4 bytes per dimension each.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[str | bytes, Vectors] = LRU(max_entries)
        self._max_queue = max_queue
        self._batch_of: dict[str, _Batch] = {}
        self._batches: set[_Batch] = set()
        self._mean_s = 0.0
        self._num_models = 1

    def clear(self) -> None:
        """Forget every vector: another model makes them from now on."""
        self._num_models += 1
        self._kept.clear()
        self._batch_of.clear()

    async def rows(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded when the queue is full, EmbedderUnavailable when the model changes meanwhile, and
        what `compute` raises.
        """
        model = self._num_models
        rows, batches, missing = dict[str, Vectors](), dict[_Batch, None](), list[str]()
        for text in dict.fromkeys(texts):
            if (row := self._kept.get(_key(text))) is not None:
                rows[text] = row
            elif (batch := self._batch_of.get(text)) is not None:
                batches[batch] = None
            else:
                missing.append(text)
        if missing:
            batches[self._start(missing)] = None
        for batch in batches:
            batch.num_waiting += 1
        try:
            for batch in batches:
                rows.update(zip(batch.texts, await _result(batch), strict=True))
        finally:
            for batch in batches:
                self._leave(batch)
        if model != self._num_models:
            raise model_changed()
        return np.stack([rows[text] for text in texts])

    def _start(self, texts: list[str]) -> _Batch:
        if len(self._batches) >= self._max_queue:
            wait_s = max(1.0, len(self._batches) * self._mean_s)
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=wait_s)
        batch = _Batch(texts, asyncio.create_task(self._embed(texts)))
        self._batches.add(batch)
        self._batch_of.update(dict.fromkeys(texts, batch))
        batch.task.add_done_callback(lambda _: self._done(batch))
        return batch

    async def _embed(self, texts: list[str]) -> Vectors:
        began = time.monotonic()
        # A lone surrogate, which JSON can carry, is no text that a tokenizer or a socket takes.
        rows = await self._compute([text.encode("utf-8", "replace").decode() for text in texts])
        self._mean_s += SMOOTHING * (time.monotonic() - began - self._mean_s)
        return rows

    def _done(self, batch: _Batch) -> None:
        is_current = any(self._batch_of.get(text) is batch for text in batch.texts)
        self._forget(batch)
        if is_current and not batch.task.cancelled() and batch.task.exception() is None:
            for text, row in zip(batch.texts, batch.task.result(), strict=True):
                self._kept.put(_key(text), row.copy())  # a view would keep its whole batch in memory

    def _leave(self, batch: _Batch) -> None:
        batch.num_waiting -= 1
        if batch.num_waiting == 0 and not batch.task.done():
            self._forget(batch)
            batch.task.cancel()

    def _forget(self, batch: _Batch) -> None:
        self._batches.discard(batch)
        for text in batch.texts:
            if self._batch_of.get(text) is batch:
                del self._batch_of[text]


def _key(text: str) -> str | bytes:
    """Return the text, or a hash of a long one: else the cache could hold gigabytes of text."""
    if len(text) <= MAX_KEY_CHARS:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()


async def _result(batch: _Batch) -> Vectors:
    try:
        return await asyncio.shield(batch.task)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if batch.task.cancelled() and not (task is not None and task.cancelling()):
            raise EmbedderUnavailable("The embedder has been stopped.") from None
        raise
