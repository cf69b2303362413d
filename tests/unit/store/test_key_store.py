"""Created keys: the same tests for the fake, SQLite and a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.api.auth import digest_of, new_key
from service.errors import Conflict
from service.store import keys
from service.store.database import Database
from service.store.keys import Key, Scope, SqlKeys
from tests.support.keys import MemoryKeys

MOST = 3
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


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", MOST)


@pytest.fixture
def opened(place: str | None) -> Opened:
    return Opened(place)


def key(
    name: str = "a key", scope: Scope = "score", *, at_s: float = 0.0, expires_s: float | None = None
) -> Key:
    """Return a key created `at_s` seconds after noon."""
    expires = None if expires_s is None else NOON + timedelta(seconds=expires_s)
    return new_key(name, scope, expires, NOON + timedelta(seconds=at_s))[0]


class TestKeyStore:
    async def test_second_revocation_keeps_the_time_of_the_first(self, opened: Opened) -> None:
        async with opened() as store:
            made = key()
            await store.add(made)
            revoked = await store.revoke(made.id, NOON)
            assert await store.revoke(made.id, NOON + timedelta(seconds=9)) == revoked

    async def test_oldest_ended_key_is_removed_at_the_limit(self, opened: Opened) -> None:
        async with opened() as store:
            valid, revoked, expired = key(), key(at_s=1), key(at_s=2, expires_s=3)
            for key_ in (valid, revoked, expired):
                await store.add(key_)
            await store.revoke(revoked.id, NOON)
            fourth, fifth = key(at_s=4), key(at_s=5)
            await store.add(fourth)
            assert await store.list_all() == [fourth, expired, valid]
            await store.add(fifth)
            assert await store.list_all() == [fifth, fourth, valid]

    async def test_keys_are_removed_only_in_their_scope(self, opened: Opened) -> None:
        """The last revoked key of another scope keeps that scope closed."""
        async with opened() as store:
            other, *full = key(scope="admin"), *(key(at_s=i) for i in range(1, MOST + 1))
            for key_ in (other, *full):
                await store.add(key_)
            await store.revoke(other.id, NOON)
            with pytest.raises(Conflict):
                await store.add(key(at_s=MOST + 1))
            assert {item.id for item in await store.list_all()} == {item.id for item in (other, *full)}

    async def test_scope_stays_closed(self, opened: Opened) -> None:
        """For any number of created and revoked keys, a scope without keys must not open."""
        async with opened() as store:
            for i in range(MOST + 2):
                key_ = key(at_s=i)
                await store.add(key_)
                await store.revoke(key_.id, NOON)
                assert key_.id in [kept.id for kept in await store.list_all()]
            assert len(await store.list_all()) == MOST

    async def test_concurrent_keys_stay_within_the_limit(self, opened: Opened) -> None:
        async with opened() as store:
            made = await asyncio.gather(
                *(store.add(key(at_s=i)) for i in range(2 * MOST)), return_exceptions=True
            )
            assert len(await store.list_all()) == MOST
            assert sum(isinstance(item, Conflict) for item in made) == MOST


async def test_the_database_holds_no_key(tmp_path: Path) -> None:
    async with sql(f"sqlite:///{tmp_path / 'store.db'}") as store:
        made, secret = new_key("a key", "admin", None, NOON)
        await store.add(made)
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert digest_of(secret).encode() in held
    assert secret[len(made.prefix) :].encode() not in held
    assert secret not in repr(made)
