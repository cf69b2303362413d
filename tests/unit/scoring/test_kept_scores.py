"""Scores stored by id: available at once, written soon after, and without delaying anyone."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.errors import StoreUnavailable
from service.scoring import score_cache
from service.scoring.score_cache import Document, ScoreCache
from tests.support.kept import MemoryKept


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_cache, "GATHER_S", 0.01)
    monkeypatch.setattr(score_cache, "RETRY_S", 0.01)


@asynccontextmanager
async def started(documents: MemoryKept, keep_s: float = 60.0) -> AsyncIterator[ScoreCache]:
    made = ScoreCache(documents, keep_s=keep_s)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def until_stored(documents: MemoryKept, id_: str, document: dict[str, Any] | None) -> None:
    async with asyncio.timeout(60):
        while await documents.get(id_, "me") != document:
            await asyncio.sleep(0.005)


async def test_scores_are_written_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_cache, "BATCH", 20)
    documents = MemoryKept()
    async with started(documents) as scores:
        for i in range(50):
            scores.save(f"s{i}", "me", json.dumps({"n": i}))
        await until_stored(documents, "s49", {"n": 49})
    assert documents.batches == [20, 20, 10]


async def test_stop_does_not_interrupt_a_write() -> None:
    """An interrupted SQLite transaction may keep its lock, and the rest would be lost."""
    begun = 0

    class Counting(MemoryKept):
        async def put_all(self, documents: Sequence[Document]) -> None:
            nonlocal begun
            begun += 1
            await super().put_all(documents)

    documents = Counting(gate=asyncio.Event())
    async with started(documents) as scores:
        scores.save("a", "me", json.dumps({"n": 1}))
        while not begun:
            await asyncio.sleep(0.005)
        stopping = asyncio.create_task(scores.stop())
        await asyncio.sleep(0.01)
        assert documents.gate is not None
        documents.gate.set()
        await stopping
    assert (begun, documents.batches) == (1, [1])


async def test_stop_does_not_wait_for_a_hung_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(score_cache, "FLUSH_S", 0.02)
    async with asyncio.timeout(60):
        async with started(MemoryKept(gate=asyncio.Event())) as scores:
            scores.save("a", "me", json.dumps({"n": 1}))
    assert "1 scores were not written" in caplog.text


async def test_failed_store_is_logged_once_and_only_disables_sharing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = MemoryKept()
    documents.available = False
    caplog.set_level(logging.INFO)
    async with started(documents) as scores:
        for i in range(20):
            scores.save(f"s{i}", "me", json.dumps({"n": i}))
            await asyncio.sleep(0.01)
        assert await scores.find("s0", "me") == {"n": 0}
        with pytest.raises(StoreUnavailable):
            await scores.find("unknown", "me")
        assert len(caplog.records) == 1, caplog.text
        documents.available = True
        await until_stored(documents, "s0", {"n": 0})
        await until_stored(documents, "s19", {"n": 19})


async def test_permanently_refused_scores_do_not_block_others(caplog: pytest.LogCaptureFixture) -> None:
    class Choosy(MemoryKept):
        async def put_all(self, documents: list[Document]) -> None:
            if any(document.id == "bad" for document in documents):
                raise ValueError(f"the driver chokes on {documents[0].text}")
            await super().put_all(documents)

    documents = Choosy()
    async with started(documents) as scores:
        scores.save("bad", "me", json.dumps({"secret": "a prompt"}))
        await asyncio.sleep(0.03)
        scores.save("good", "me", json.dumps({"n": 1}))
        await until_stored(documents, "good", {"n": 1})
    assert "cannot be written" in caplog.text
    assert "a prompt" not in caplog.text


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_cache, "MAX_CHARACTERS", 1000)
    monkeypatch.setattr(score_cache, "MAX_SCORE_CHARACTERS", 300)
    documents = MemoryKept()
    scores = ScoreCache(documents, keep_s=60)
    for i in range(25):
        scores.save(f"s{i}", "me", json.dumps({"n": "x" * 91}))
        scores.save(f"s{i}", "me", json.dumps({"n": "y" * 91}))  # replaced scores do not count
    assert len(scores._unwritten) == 10
    assert await scores.find("s15", "me") == {"n": "y" * 91}
    assert await scores.find("s14", "me") is None
    scores.save("s24", "me", json.dumps({"n": "x" * 300}))
    assert await scores.find("s24", "me") is None, "of one too large, not even what was known before is told"
    monkeypatch.setattr(score_cache, "MAX_SCORES", 3)
    scores.save("last", "me", json.dumps({}))
    assert len(scores._unwritten) == 3


async def test_too_large_score_removes_its_earlier_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_cache, "MAX_SCORE_CHARACTERS", 300)
    documents = MemoryKept()
    async with started(documents) as scores:
        scores.save("a", "me", json.dumps({"status": "pending"}))
        await until_stored(documents, "a", {"status": "pending"})
        scores.save("a", "me", json.dumps({"n": "x" * 300}))
        assert await scores.find("a", "me") is None
        await until_stored(documents, "a", None)
        assert await scores.find("a", "me") is None


async def test_score_expires_while_the_store_is_unavailable() -> None:
    documents = MemoryKept(gate=asyncio.Event())
    async with started(documents, keep_s=0.05) as scores:
        scores.save("a", "me", json.dumps({"n": 1}))
        assert await scores.find("a", "me") == {"n": 1}
        async with asyncio.timeout(60):
            while await scores.find("a", "me") is not None:
                await asyncio.sleep(0.01)
        documents.gate.set()
        async with asyncio.timeout(60):
            while not documents.batches:
                await asyncio.sleep(0.01)
        assert await scores.find("a", "me") is None


async def test_storing_can_be_disabled() -> None:
    documents = MemoryKept()
    async with started(documents, keep_s=0.0) as scores:
        scores.save("a", "me", json.dumps({"n": 1}))
        documents.available = False
        assert await scores.find("a", "me") is None
    assert documents.batches == []
