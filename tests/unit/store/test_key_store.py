"""Created keys: the same tests for the fake, SQLite and a real PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.http.keys import digest_of, new_key
from service.store.database import Database
from service.store.keys import SqlKeys
from tests.support.keys import MemoryKeys

NOON = datetime(2026, 11, 22, 12, 0, 0, 123456, UTC)


@asynccontextmanager
async def sql(url: str) -> AsyncIterator[SqlKeys]:
    database = Database(url)
    await database.start()
    try:
        yield SqlKeys(database)
    finally:
        await database.stop()


@dataclass
class Opened:
    """A function that opens the keys, for which the class below is run."""

    url: str | None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[SqlKeys | MemoryKeys]:
        if self.url is None:
            yield MemoryKeys()
        else:
            async with sql(self.url) as made:
                yield made


@pytest.fixture
def opened(place: str | None) -> Opened:
    return Opened(place)


class TestKeyStore:
    async def test_second_revocation_keeps_the_time_of_the_first(self, opened: Opened) -> None:
        async with opened() as store:
            made, _ = new_key("a key", "score", None, NOON)
            await store.add(made)
            revoked = await store.revoke(made.id, NOON)
            assert await store.revoke(made.id, NOON + timedelta(seconds=9)) == revoked


async def test_the_database_holds_no_key(tmp_path: Path) -> None:
    async with sql(f"sqlite:///{tmp_path / 'store.db'}") as store:
        made, secret = new_key("a key", "admin", None, NOON)
        await store.add(made)
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert digest_of(secret).encode() in held
    assert secret[len(made.prefix) :].encode() not in held
    assert secret not in repr(made)
