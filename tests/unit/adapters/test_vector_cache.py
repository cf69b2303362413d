"""Each text embedded once, vectors kept, the queue bounded."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from service.embedding.cache import VectorCache, unit_rows
from service.errors import EmbedderUnavailable, Overloaded
from service.lru import LRU


class Model:
    """Maps a text to (length, 1), waits for `gate`, raises `fails`; notes the batches and the cancelled."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self.fails: Exception | None = None
        self.cancelled = 0

    async def __call__(self, texts: list[str]) -> np.ndarray:
        self.batches.append(texts)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails is not None:
            raise self.fails
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def cached(model: Model, *, max_entries: int = 100, max_queue: int = 4) -> VectorCache:
    return VectorCache(model, max_entries=max_entries, max_queue=max_queue)


def test_rows_follow_the_texts_and_each_is_embedded_once() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        rows = await cache.rows(["aa", "b", "aa"])
        assert rows[:, 0].tolist() == [2, 1, 2]
        assert rows.flags.c_contiguous
        await cache.rows(["b", "ccc"])
        assert model.batches == [["aa", "b"], ["ccc"]]

    asyncio.run(scenario())


def test_long_texts_are_remembered_without_being_kept() -> None:
    async def scenario() -> None:
        model, long = Model(), ["x" * 5000, "x" * 4999 + "\ud800", "y" * 5000]
        cache = cached(model)
        first = await cache.rows(long)
        assert (await cache.rows(long)).tolist() == first.tolist()
        assert len(model.batches) == 1
        assert max(len(key) for key in cache._kept._entries) < 100

    asyncio.run(scenario())


def test_oldest_vector_is_forgotten() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model, max_entries=2)
        for text in ("a", "b", "a", "c", "a", "b"):
            await cache.rows([text])
        assert model.batches == [["a"], ["b"], ["c"], ["b"]]

    asyncio.run(scenario())


def test_larger_call_than_the_cache_is_still_answered() -> None:
    async def scenario() -> None:
        rows = await cached(Model(), max_entries=1).rows(["a", "bb", "ccc"])
        assert rows[:, 0].tolist() == [1, 2, 3]

    asyncio.run(scenario())


def test_text_under_way_is_shared() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = asyncio.Event()
        cache = cached(model)
        calls = [asyncio.create_task(cache.rows(texts)) for texts in (["a", "b"], ["b", "c"], ["a"])]
        await settle()
        model.gate.set()
        assert [len(found) for found in await asyncio.gather(*calls)] == [2, 2, 1]
        assert model.batches == [["a", "b"], ["c"]]

    asyncio.run(scenario())


def test_queue_refuses_past_its_bound_but_serves_what_is_kept() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model, max_queue=1)
        await cache.rows(["kept"])
        model.gate = asyncio.Event()
        waiting = asyncio.create_task(cache.rows(["a"]))
        await settle()
        with pytest.raises(Overloaded) as refused:
            await cache.rows(["b"])
        assert refused.value.retry_after_s >= 1
        assert len(await cache.rows(["kept"])) == 1
        model.gate.set()
        await waiting
        assert len(await cache.rows(["b"])) == 1

    asyncio.run(scenario())


def test_caller_that_leaves_harms_nobody_else() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = asyncio.Event()
        cache = cached(model)
        leaves, stays = (asyncio.create_task(cache.rows(["a"])) for _ in range(2))
        await settle()
        leaves.cancel()
        await settle()
        model.gate.set()
        assert len(await stays) == 1
        assert leaves.cancelled()
        assert model.cancelled == 0

    asyncio.run(scenario())


def test_a_batch_goes_on_when_its_callers_have_gone_and_its_vectors_are_kept() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = asyncio.Event()
        cache = cached(model, max_queue=1)
        alone = asyncio.create_task(cache.rows(["a"]))
        await settle()
        alone.cancel()
        model.gate.set()
        await settle()
        assert len(await cache.rows(["a"])) == 1
        assert model.batches == [["a"]]

    asyncio.run(scenario())


def test_failure_reaches_every_caller_and_is_not_kept() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate, model.fails = asyncio.Event(), EmbedderUnavailable("down")
        cache = cached(model)
        calls = [asyncio.create_task(cache.rows(["a"])) for _ in range(2)]
        await settle()
        model.gate.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(item) for item in found] == [EmbedderUnavailable] * 2
        model.fails = None
        assert len(await cache.rows(["a"])) == 1

    asyncio.run(scenario())


def test_model_that_stops_is_an_error_not_a_cancellation() -> None:
    async def stopped(texts: list[str]) -> np.ndarray:
        raise asyncio.CancelledError

    async def scenario() -> None:
        with pytest.raises(EmbedderUnavailable, match="stopped"):
            await VectorCache(stopped, max_entries=1, max_queue=1).rows(["a"])

    asyncio.run(scenario())


def test_lone_surrogate_reaches_the_model_as_text() -> None:
    async def scenario() -> None:
        model = Model()
        assert len(await cached(model).rows(["caf\ud800"])) == 1
        assert model.batches == [["caf?"]]

    asyncio.run(scenario())


def test_unit_rows_scale_exactly() -> None:
    rows = unit_rows(np.asfortranarray([[3.0, 4.0], [0.0, 1e-6]]), 2)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1]], atol=1e-7)
    assert (rows.dtype, rows.flags.c_contiguous) == (np.float32, True)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([[1.0, np.nan]], "not finite"),
        ([[np.inf, 0.0]], "not finite"),
        ([[0.0, 0.0]], "zero vector"),
        ([[1.0], [1.0]], "one vector per text"),
        ([[]], "one vector per text"),
        ([1.0], "one vector per text"),
    ],
)
def test_vectors_that_are_none_are_refused(raw: list, says: str) -> None:
    with pytest.raises(EmbedderUnavailable, match=says):
        unit_rows(np.array(raw, dtype=float), 1)


def test_lru_keeps_what_is_read() -> None:
    lru: LRU[str, int] = LRU(2)
    lru.put("a", 1)
    lru.put("b", 2)
    assert lru.get("a") == 1
    lru.put("c", 3)
    assert (lru.get("a"), lru.get("b"), lru.get("c")) == (1, None, 3)


def test_a_vector_that_is_kept_does_not_keep_its_batch_in_memory() -> None:
    made: list[weakref.ref[np.ndarray]] = []

    async def compute(texts: list[str]) -> np.ndarray:
        rows = np.ones((len(texts), 2), dtype=np.float32)
        made.append(weakref.ref(rows))
        return rows

    async def scenario() -> None:
        cache = VectorCache(compute, max_entries=1, max_queue=1)
        await cache.rows(["a", "b"])
        await settle()
        gc.collect()
        assert made[0]() is None
        assert len(await cache.rows(["b"])) == 1
        assert len(made) == 1  # "b" had been kept

    asyncio.run(scenario())
