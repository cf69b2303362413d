"""Scores kept by id: in memory at once, in the store soon after, and never in anyone's way."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.errors import StoreUnavailable
from service.ids import age_s, new_id
from service.scoring import score_cache as kept
from service.scoring.score_cache import ScoreCache
from service.store.documents import Document
from tests.support.kept import MemoryKept


def fresh(documents: MemoryKept, **settings: Any) -> ScoreCache:
    asked = {"keep_s": 60.0, "max_scores": 100, "gather_s": 0.01, "retry_s": 0.01}
    return ScoreCache(documents, **asked | settings)


@asynccontextmanager
async def started(documents: MemoryKept, **settings: Any) -> AsyncIterator[ScoreCache]:
    made = fresh(documents, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def until_stored(documents: MemoryKept, id_: str, document: dict[str, Any]) -> None:
    async with asyncio.timeout(60):
        while await documents.get(id_, "me") != document:
            await asyncio.sleep(0.005)


async def test_it_is_found_before_it_is_written() -> None:
    documents = MemoryKept(gate=asyncio.Event())
    async with started(documents) as scores:
        scores.keep("a", "me", {"n": 1})
        scores.keep("b", "me", '{"n":2}')
        await asyncio.sleep(0.03)  # the write has begun, and waits
        assert await scores.find("a", "me") == {"n": 1}
        assert await scores.find("b", "me") == {"n": 2}
        assert await scores.find("a", "you") is None
        documents.gate.set()
        await until_stored(documents, "b", {"n": 2})


async def test_many_go_to_the_store_in_one_go() -> None:
    documents = MemoryKept()
    async with started(documents) as scores:
        for i in range(50):
            scores.keep(f"s{i}", "me", {"n": i})
        await until_stored(documents, "s49", {"n": 49})
    assert documents.batches == [50]


async def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "BATCH", 20)
    documents = MemoryKept()
    async with started(documents) as scores:
        for i in range(50):
            scores.keep(f"s{i}", "me", {"n": i})
        await until_stored(documents, "s49", {"n": 49})
    assert documents.batches == [20, 20, 10]


async def test_another_replica_finds_what_was_written_and_what_is_about_to_be() -> None:
    documents = MemoryKept()
    async with started(documents, gather_s=0.05) as one, started(documents, gather_s=0.05) as other:
        id_ = new_id("scr")
        one.keep(id_, "me", {"n": 1})
        assert documents.batches == []
        assert await other.find(id_, "me") == {"n": 1}
        assert await other.find(id_, "you") is None


async def test_an_old_id_that_nobody_knows_is_not_waited_for() -> None:
    documents = MemoryKept()
    async with started(documents, gather_s=1000) as scores:
        async with asyncio.timeout(60):
            assert await scores.find("scr_01K00000000000000000000000", "me") is None
            assert await scores.find("scr_of no form at all", "me") is None


async def test_news_that_come_during_a_write_are_written_after_it() -> None:
    documents = MemoryKept(gate=asyncio.Event())
    async with started(documents) as scores:
        scores.keep("a", "me", {"status": "pending"})
        await asyncio.sleep(0.03)
        scores.keep("a", "me", {"status": "scored"})
        documents.gate.set()
        await until_stored(documents, "a", {"status": "scored"})


async def test_what_is_left_is_written_at_the_stop() -> None:
    documents = MemoryKept()
    async with started(documents, gather_s=1000) as scores:
        scores.keep("a", "me", {"n": 1})
    assert await documents.get("a", "me") == {"n": 1}


async def test_a_stop_does_not_wait_for_a_store_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept, "FLUSH_S", 0.02)
    async with asyncio.timeout(60):
        async with started(MemoryKept(gate=asyncio.Event())) as scores:
            scores.keep("a", "me", {"n": 1})
    assert "1 scores were not written" in caplog.text


async def test_a_dead_store_is_told_once_and_costs_nothing_but_the_sharing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = MemoryKept()
    documents.available = False
    caplog.set_level(logging.INFO)
    async with started(documents) as scores:
        for i in range(20):
            scores.keep(f"s{i}", "me", {"n": i})
            await asyncio.sleep(0.01)
        assert await scores.find("s0", "me") == {"n": 0}
        with pytest.raises(StoreUnavailable):
            await scores.find("unknown", "me")
        assert len(caplog.records) == 1, caplog.text
        documents.available = True
        await until_stored(documents, "s0", {"n": 0})
        await until_stored(documents, "s19", {"n": 19})


async def test_what_the_store_refuses_for_good_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    class Choosy(MemoryKept):
        async def put_all(self, documents: list[Document]) -> None:
            if any(one.id == "bad" for one in documents):
                raise ValueError(f"the driver chokes on {documents[0].text}")
            await super().put_all(documents)

    documents = Choosy()
    async with started(documents) as scores:
        scores.keep("bad", "me", {"secret": "a prompt"})
        await asyncio.sleep(0.03)
        scores.keep("good", "me", {"n": 1})
        await until_stored(documents, "good", {"n": 1})
        assert await scores.find("bad", "me") == {"secret": "a prompt"}
    assert "cannot be written" in caplog.text
    assert "a prompt" not in caplog.text


async def test_memory_is_bounded_by_number() -> None:
    documents = MemoryKept()
    documents.available = False
    scores = fresh(documents, max_scores=10)
    for i in range(25):
        scores.keep(f"s{i}", "me", {"n": i})
    assert (len(scores._known), len(scores._unwritten)) == (10, 10)
    assert await scores.find("s15", "me") == {"n": 15}
    with pytest.raises(StoreUnavailable):
        await scores.find("s14", "me")


async def test_memory_is_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_CHARACTERS", 1000)
    monkeypatch.setattr(kept, "MAX_SCORE_CHARACTERS", 300)
    scores = fresh(MemoryKept())
    for i in range(25):
        scores.keep(f"s{i}", "me", json.dumps({"n": "x" * 91}))
        scores.keep(f"s{i}", "me", json.dumps({"n": "y" * 91}))  # what was replaced is not counted on
    assert len(scores._known) == 10
    assert scores._characters == sum(len(entry.text) for entry in scores._known.values()) == 1000
    scores.keep("s24", "me", json.dumps({"n": "x" * 300}))
    assert await scores.find("s24", "me") is None, "of one too large, not even what was known before is told"


async def test_memory_is_bounded_by_time() -> None:
    documents = MemoryKept()
    scores = fresh(documents, keep_s=0.05)
    scores.keep("a", "me", {"n": 1})
    assert await scores.find("a", "me") == {"n": 1}
    await asyncio.sleep(0.06)
    assert await scores.find("a", "me") is None
    scores.keep("b", "me", {"n": 1})
    assert list(scores._known) == [("me", "b")]


async def test_nothing_is_kept_when_told_so() -> None:
    documents = MemoryKept()
    async with started(documents, keep_s=0.0) as scores:
        scores.keep("a", "me", {"n": 1})
        documents.available = False
        assert await scores.find("a", "me") is None
    assert documents.batches == []


def test_an_id_tells_its_age() -> None:
    assert 0 <= age_s(new_id("scr")) < 60
    with pytest.raises(ValueError):
        age_s("scr_!")
