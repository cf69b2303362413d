"""Documents kept for a limited time: the same tests for the fake, SQLite and a real PostgreSQL."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.scoring import score_cache
from service.scoring.score_cache import Document, ScoreCache, ScoreStore
from service.store.database import Database, kept
from tests.support.kept import MemoryKept

MOST = 5


@asynccontextmanager
async def sql(url: str) -> AsyncIterator[tuple[ScoreStore, Database]]:
    database = Database(url)
    await database.start()
    try:
        yield ScoreStore(database, max_documents=MOST), database
    finally:
        await database.stop()


async def rows(database: Database) -> int:
    async with database.read() as connection:
        rows_ = await connection.execute(sa.select(sa.func.count()).select_from(kept))
    return int(rows_.scalar_one())


@dataclass
class Opened:
    """A function that opens the documents, for which the class below is run."""

    url: str | None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[ScoreStore]:
        if self.url is None:
            yield MemoryKept(MOST)
        else:
            async with sql(self.url) as (made, _):
                yield made


@pytest.fixture
def opened(place: str | None) -> Opened:
    return Opened(place)


async def put(made: ScoreStore, id_: str, owner: str, document: dict[str, Any], *, ttl_s: float) -> None:
    await made.put_all([Document(id_, owner, json.dumps(document), time.monotonic() + ttl_s)])


def documents(*ids: str) -> list[Document]:
    return [Document(id_, "me", json.dumps({"is": id_}), time.monotonic() + 60) for id_ in ids]


class TestKeptDocuments:
    async def test_document_is_found_only_by_its_owner_and_id(self, opened: Opened) -> None:
        async with opened() as result:
            await put(result, "a", "me", {"is": "mine"}, ttl_s=60)
            await put(result, "a", "you", {"is": "yours"}, ttl_s=60)
            assert await result.get("a", "me") == {"is": "mine"}
            assert await result.get("a", "you") == {"is": "yours"}
            for names in (("a", ""), ("b", "me")):
                assert await result.get(*names) is None

    async def test_document_without_text_deletes_the_earlier(self, opened: Opened) -> None:
        async with opened() as result:
            await put(result, "a", "me", {"status": "pending"}, ttl_s=60)
            await result.put_all([Document("a", "me", None, time.monotonic() + 60), *documents("b")])
            assert await result.get("a", "me") is None
            assert await result.get("b", "me") == {"is": "b"}
            await result.put_all([Document("b", "me", None, time.monotonic() + 60)])
            assert await result.get("b", "me") is None

    async def test_document_expires(self, opened: Opened) -> None:
        async with opened() as result:
            await put(result, "over", "me", {}, ttl_s=0)
            assert await result.get("over", "me") is None
            await put(result, "a", "me", {}, ttl_s=1)
            async with asyncio.timeout(60):
                while await result.get("a", "me") is not None:
                    await asyncio.sleep(0.02)

    async def test_oldest_documents_are_removed_first(self, opened: Opened) -> None:
        async with opened() as result:
            for id_ in "abcde":
                await result.put_all(documents(id_))
            await result.put_all(documents("a"))  # which makes it the youngest
            await result.put_all(documents("f", "g"))
            await result.sweep()
            left = [id_ for id_ in "abcdefg" if await result.get(id_, "me")]
            assert left == ["a", "d", "e", "f", "g"]

    async def test_concurrent_writes_of_one_document_are_safe(self, opened: Opened) -> None:
        async with opened() as result:
            await asyncio.gather(*(put(result, "a", "me", {"n": n}, ttl_s=60) for n in range(8)))
            assert (await result.get("a", "me") or {})["n"] in range(8)
            await put(result, "a", "me", {"n": "last"}, ttl_s=60)
            assert await result.get("a", "me") == {"n": "last"}


class TestScoreStore:
    async def test_replicas_together_stay_within_the_limit(self, url: str) -> None:
        async with sql(url) as (first, database), sql(url) as (second, _):

            async def fill(made: ScoreStore, name: str) -> None:
                for i in range(10):
                    await made.put_all(documents(*(f"{name}{i}{j}" for j in range(4))))

            await asyncio.gather(fill(first, "one"), fill(second, "other"))
            await first.sweep()
            assert await rows(database) == MOST

    async def test_expired_documents_are_deleted(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(score_cache, "SWEEP_S", 0.02)
        async with sql(url) as (made, database):
            scores = ScoreCache(made, keep_s=60)
            await scores.start()
            await put(made, "stays", "me", {}, ttl_s=600)
            await made.put_all([Document(id_, "me", "{}", time.monotonic() + 2) for id_ in "ab"])
            assert await rows(database) == 3
            async with asyncio.timeout(60):
                while await rows(database) != 1:
                    await asyncio.sleep(0.01)
            await scores.stop()
            assert await made.get("stays", "me") == {}

    async def test_deleted_text_is_removed_from_the_disk(self, tmp_path: Path) -> None:
        secret = "the prompt that nobody may find"
        async with sql(f"sqlite:///{tmp_path / 'store.db'}") as (made, _):
            await put(made, "a", "me", {"prompt": secret}, ttl_s=1)
            assert any(secret.encode() in path.read_bytes() for path in tmp_path.glob("store.db*"))
            async with asyncio.timeout(60):
                while await made.get("a", "me") is not None:
                    await asyncio.sleep(0.02)
            await made.sweep()
            assert not any(secret.encode() in path.read_bytes() for path in tmp_path.glob("store.db*"))
