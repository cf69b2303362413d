"""Each text embedded once, vectors kept, the queue bounded."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from service.embedding.cache import Made, Maker, TwoMakersError, VectorCache, unit_rows
from service.embedding.lru import LRU
from service.errors import EmbedderUnavailable, Overloaded
from service.llm.port import EmbedderIdentity


def maker(revision: str = "1") -> Maker:
    return Maker(EmbedderIdentity("model", revision, 2, "float32"))


class Model:
    """Maps a text to (length, 1), waits for `gate`, raises `fails`; notes the batches and the cancelled."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate: asyncio.Event | None = None
        self.fails: Exception | None = None
        self.cancelled = 0
        self.maker = maker()

    async def __call__(self, texts: list[str]) -> Made:
        self.batches.append(texts)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails is not None:
            raise self.fails
        return Made(np.array([[len(text), 1] for text in texts], dtype=np.float32), self.maker)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def cached(model: Model, *, max_entries: int = 100, max_queue: int = 4) -> VectorCache:
    return VectorCache(model, max_entries=max_entries, max_queue=max_queue)


def test_rows_follow_the_texts_and_each_is_embedded_once() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        rows = (await cache.rows(["aa", "b", "aa"])).vectors
        assert rows[:, 0].tolist() == [2, 1, 2]
        assert rows.flags.c_contiguous
        await cache.rows(["b", "ccc"])
        assert model.batches == [["aa", "b"], ["ccc"]]

    asyncio.run(scenario())


def test_long_texts_are_remembered_without_being_kept() -> None:
    async def scenario() -> None:
        model, long = Model(), ["x" * 5000, "x" * 4999 + "\ud800", "y" * 5000]
        cache = cached(model)
        first = (await cache.rows(long)).vectors
        assert (await cache.rows(long)).vectors.tolist() == first.tolist()
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
        rows = (await cached(Model(), max_entries=1).rows(["a", "bb", "ccc"])).vectors
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
        assert [len(found.vectors) for found in await asyncio.gather(*calls)] == [2, 2, 1]
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
        assert len((await cache.rows(["kept"])).vectors) == 1
        model.gate.set()
        await waiting
        assert len((await cache.rows(["b"])).vectors) == 1

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
        assert len((await stays).vectors) == 1
        assert leaves.cancelled()
        assert model.cancelled == 0

    asyncio.run(scenario())


def test_batch_that_nobody_waits_for_is_cancelled_and_frees_its_place() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = asyncio.Event()
        cache = cached(model, max_queue=1)
        alone = asyncio.create_task(cache.rows(["a"]))
        await settle()
        alone.cancel()
        await settle()
        assert model.cancelled == 1
        model.gate.set()
        assert len((await cache.rows(["a"])).vectors) == 1

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
        assert len((await cache.rows(["a"])).vectors) == 1

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
        assert len((await cached(model).rows(["caf\ud800"])).vectors) == 1
        assert model.batches == [["caf?"]]

    asyncio.run(scenario())


def test_vectors_of_two_makers_are_never_mixed() -> None:
    """A call that has one vector kept and gets the other from another maker starts again."""

    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        assert (await cache.rows(["a"])).made_by.revision == "1"
        model.maker = maker("2")
        found = await cache.rows(["a", "bb"])
        assert found.made_by.revision == "2"
        assert model.batches == [["a"], ["bb"], ["a"]]

    asyncio.run(scenario())


def test_a_late_vector_of_the_old_maker_is_not_served_beside_the_new_ones() -> None:
    async def scenario() -> None:
        model, old = Model(), maker("1")
        cache = cached(model)
        model.gate, model.maker = asyncio.Event(), old
        late = asyncio.create_task(cache.rows(["late"]))
        await settle()
        gate, model.gate, model.maker = model.gate, None, maker("2")
        assert (await cache.rows(["new"])).made_by.revision == "2"
        model.maker = old
        gate.set()
        assert (await late).made_by.revision == "1"
        model.maker = maker("2")
        assert (await cache.rows(["late", "new", "third"])).made_by.revision == "2"

    asyncio.run(scenario())


def test_makers_by_turns_are_an_error_after_a_few_starts() -> None:
    async def by_turns(texts: list[str]) -> Made:
        turns.append(texts)
        raise TwoMakersError

    async def scenario() -> None:
        with pytest.raises(EmbedderUnavailable, match="two models by turns"):
            await VectorCache(by_turns, max_entries=9, max_queue=1).rows(["a"])
        assert len(turns) == 3

    turns: list[list[str]] = []
    asyncio.run(scenario())


def test_two_makers_of_one_identity_are_two() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        await cache.rows(["a"])
        model.maker = maker()
        await cache.rows(["a", "b"])
        assert model.batches == [["a"], ["b"], ["a"]]

    asyncio.run(scenario())


# Ahead of a call


def test_what_is_done_ahead_is_not_done_again() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        await cache.ahead(["a", "bb", "a"])
        await cache.ahead(["bb"])
        assert (await cache.rows(["bb", "ccc", "a"])).vectors[:, 0].tolist() == [2, 3, 1]
        assert model.batches == [["a", "bb"], ["ccc"]]

    asyncio.run(scenario())


def test_nothing_is_done_ahead_where_no_vector_is_kept() -> None:
    async def scenario() -> None:
        model = Model()
        await cached(model, max_entries=0).ahead(["a"])
        assert model.batches == []

    asyncio.run(scenario())


def test_ahead_waits_until_nobody_else_embeds_and_goes_piece_by_piece() -> None:
    """Two callers with long texts ahead keep a third waiting for one piece of theirs, not for all."""

    async def scenario() -> None:
        model = Model()
        model.gate = gate = asyncio.Event()
        cache = cached(model)
        first = asyncio.create_task(cache.rows(["first"]))
        await settle()
        long = ["x" * 390, "y" * 390, "z" * 390]
        waiting = [asyncio.create_task(cache.ahead([f"{text}{i}" for text in long])) for i in (1, 2)]
        await settle()
        assert model.batches == [["first"]]
        model.gate = held = asyncio.Event()
        gate.set()
        await first
        await settle()
        assert model.batches[1:] == [["x" * 390 + "1"]]
        model.gate = last = asyncio.Event()
        third = asyncio.create_task(cache.rows(["third", "x" * 390 + "1"]))
        await settle()
        held.set()
        await settle()
        assert model.batches[2:] == [["third"]]
        last.set()
        assert len((await third).vectors) == 2
        await asyncio.gather(*waiting)
        assert [len(batch) for batch in model.batches] == [1] * 8

    asyncio.run(scenario())


def test_nobody_is_refused_for_what_is_done_ahead() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = asyncio.Event()
        cache = cached(model, max_queue=1)
        ahead = asyncio.create_task(cache.ahead(["ahead"]))
        await settle()
        caller = asyncio.create_task(cache.rows(["a"]))
        await settle()
        with pytest.raises(Overloaded):
            await cache.rows(["b"])
        model.gate.set()
        await asyncio.gather(ahead, caller)

    asyncio.run(scenario())


def test_who_joined_a_batch_ahead_that_fails_begins_his_own() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate, model.fails = asyncio.Event(), EmbedderUnavailable("down")
        cache = cached(model)
        ahead = asyncio.create_task(cache.ahead(["a"]))
        await settle()
        caller = asyncio.create_task(cache.rows(["a", "bb"]))
        await settle()

        async def recovered(texts: list[str]) -> Made:
            model.fails = None
            return await model(texts)

        cache._compute = recovered
        model.gate.set()
        with pytest.raises(EmbedderUnavailable):
            await ahead
        assert (await caller).vectors[:, 0].tolist() == [1, 2]

    asyncio.run(scenario())


def test_a_batch_ahead_that_its_caller_leaves_is_cancelled_unless_another_has_joined() -> None:
    async def scenario() -> None:
        model = Model()
        cache = cached(model)
        for joined in (False, True):
            model.gate = asyncio.Event()
            ahead = asyncio.create_task(cache.ahead(["a"]))
            await settle()
            caller = asyncio.create_task(cache.rows(["a"])) if joined else None
            await settle()
            ahead.cancel()
            await settle()
            model.gate.set()
            if caller is not None:
                assert len((await caller).vectors) == 1
            assert model.cancelled == 1
        assert model.batches == [["a"], ["a"]]
        assert not cache._batches

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
    assert (lru.get("a"), lru.get("b"), lru.get("c"), len(lru)) == (1, None, 3, 2)
    lru.clear()
    assert len(lru) == 0


def test_a_vector_that_is_kept_does_not_keep_its_batch_in_memory() -> None:
    made: list[weakref.ref[np.ndarray]] = []

    async def compute(texts: list[str]) -> Made:
        rows = np.ones((len(texts), 2), dtype=np.float32)
        made.append(weakref.ref(rows))
        return Made(rows, maker())

    async def scenario() -> None:
        cache = VectorCache(compute, max_entries=1, max_queue=1)
        await cache.rows(["a", "b"])
        await settle()
        gc.collect()
        assert made[0]() is None
        assert len((await cache.rows(["b"])).vectors) == 1
        assert len(made) == 1  # "b" had been kept

    asyncio.run(scenario())
