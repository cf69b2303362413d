"""The vector cache: each text is embedded once, and the queue is bounded."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from service.embedding.port import VectorCache, unit_rows
from service.errors import EmbedderUnavailable, Overloaded


class Model:
    """Maps a text to (length, 1), waits for `gate`, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.made: list[weakref.ref[np.ndarray]] = []
        self.gate: asyncio.Event | None = None

    async def __call__(self, texts: list[str]) -> np.ndarray:
        self.batches.append(texts)
        if self.gate is not None:
            await self.gate.wait()
        rows = np.array([[len(text), 1] for text in texts], dtype=np.float32)
        self.made.append(weakref.ref(rows))
        return rows


def cached(model: Model, *, max_entries: int = 100, max_queue: int = 4) -> VectorCache:
    return VectorCache(model, max_entries=max_entries, max_queue=max_queue)


async def test_oldest_vector_is_forgotten() -> None:
    model = Model()
    cache = cached(model, max_entries=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cache.rows([text])
    assert model.batches == [["a"], ["b"], ["c"], ["b"]]
    assert (await cache.rows(["x", "yy", "zzz"]))[:, 0].tolist() == [1, 2, 3]


async def test_full_queue_refuses_but_serves_cached_vectors() -> None:
    model = Model()
    cache = cached(model, max_queue=1)
    await cache.rows(["kept"])
    model.gate = asyncio.Event()
    waiting = asyncio.create_task(cache.rows(["a"]))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refused:
        await cache.rows(["b"])
    assert refused.value.retry_after_s >= 1
    assert len(await cache.rows(["kept"])) == 1
    waiting.cancel()
    await asyncio.wait({waiting})
    model.gate.set()
    assert len(await cache.rows(["b"])) == 1
    assert cache.num_queued == 0


async def test_lone_surrogate_reaches_the_model_as_text() -> None:
    model = Model()
    assert len(await cached(model).rows(["caf\ud800"])) == 1
    assert model.batches == [["caf?"]]


async def test_cached_vector_does_not_keep_its_batch_in_memory() -> None:
    model = Model()
    cache = cached(model, max_entries=1)
    await cache.rows(["a", "b"])
    gc.collect()
    assert model.made[0]() is None


def test_unit_rows_scale_exactly() -> None:
    rows = unit_rows(np.asfortranarray([[3.0, 4.0], [0.0, 1e-6]]), 2)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1]], atol=1e-7)
    assert (rows.dtype, rows.flags.c_contiguous) == (np.float32, True)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([[1.0, np.nan]], "not finite"),
        ([[0.0, 0.0]], "zero vector"),
        ([[1.0], [1.0]], "one vector per text"),
        ([[]], "one vector per text"),
        ([1.0], "one vector per text"),
    ],
)
def test_invalid_vectors_are_refused(raw: list, says: str) -> None:
    with pytest.raises(EmbedderUnavailable, match=says):
        unit_rows(np.array(raw, dtype=float), 1)
