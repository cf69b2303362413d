"""A replica's in-memory keys: known keys never wait, and unknown keys cause a bounded number of queries."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.errors import StoreUnavailable
from service.http import keys as key_ring
from service.http.keys import START, Keys, new_key
from service.store.keys import Key
from tests.support.keys import MemoryKeys

NEVER_S = 3600.0
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@asynccontextmanager
async def ring(store: MemoryKeys, **options: Any) -> AsyncIterator[Keys]:
    """Return a replica's keys, which are read again only if the test sets an interval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ring, "POLL_S", options.pop("poll_s", NEVER_S))
        patch.setattr(key_ring, "GAP_S", options.pop("gap_s", 0.0))
        made = Keys(store, **options)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


def wrong(number: int = 0) -> str:
    """Return an unknown key in the format of created keys."""
    return new_key("nobody's", "admin", None, NOON)[1] if number == 0 else f"{START}{number:043d}"


async def until_read(store: MemoryKeys, readings: int) -> None:
    async with asyncio.timeout(60):
        while store.readings < readings:
            await asyncio.sleep(0.001)


async def test_a_known_key_never_waits_for_the_store() -> None:
    store = MemoryKeys()
    async with ring(store) as keys:
        _, secret = await keys.make("a", "score", None)
        store.gate = asyncio.Event()  # from now on all reads hang
        before = store.readings
        hanging = asyncio.create_task(keys.scope_of(wrong()))
        await until_read(store, before + 1)
        async with asyncio.timeout(60):
            assert await keys.scope_of(secret) == "score"
        assert not hanging.done()
        store.gate.set()
        assert await hanging is None
        assert store.readings == before + 1


async def test_read_in_progress_is_not_taken_as_fresh() -> None:
    """It may have begun before the key was created."""
    store = MemoryKeys()
    async with ring(store) as here:
        store.gate = asyncio.Event()
        early = asyncio.create_task(here.scope_of(wrong()))
        await until_read(store, 2)
        made, secret = new_key("a", "score", None, NOON)
        await store.add(made)
        late = asyncio.create_task(here.scope_of(secret))
        await asyncio.sleep(0)
        store.gate.set()
        assert (await early, await late) == (None, "score")


async def test_revoked_key_stays_revoked_despite_an_older_read_and_a_lost_store() -> None:
    store = MemoryKeys()
    async with ring(store) as here:
        made, secret = await here.make("a", "score", None)
        store.gate = asyncio.Event()
        early = asyncio.create_task(here.scope_of(wrong()))
        await until_read(store, 2)
        revoking = asyncio.create_task(here.revoke(made.id))
        await asyncio.sleep(0)
        store.available = False
        store.gate.set()
        assert await early is None
        await revoking
        with pytest.raises(StoreUnavailable):
            await here.scope_of(secret)


async def test_a_revocation_elsewhere_is_followed() -> None:
    store = MemoryKeys()
    async with ring(store) as there, ring(store, poll_s=0.01) as here:
        made, secret = await there.make("a", "score", None)
        assert await here.scope_of(secret) == "score"
        await there.revoke(made.id)
        async with asyncio.timeout(60):
            while await here.scope_of(secret) is not None:
                await asyncio.sleep(0.001)
        assert here.closed("score")


async def test_a_flood_of_wrong_keys_is_one_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryKeys()
    async with ring(store, gap_s=0.2) as keys:
        before = store.readings
        assert set(await asyncio.gather(*(keys.scope_of(wrong(i)) for i in range(1, 2000)))) == {None}
        assert store.readings == before + 1
    assert "service" not in {record.name.partition(".")[0] for record in caplog.records}


async def test_known_keys_stay_valid_without_the_store_and_cause_no_queries() -> None:
    store, clock = MemoryKeys(), Clock()
    async with ring(store, clock=clock) as keys:
        _, lasting = await keys.make("a", "score", None)
        _, ending = await keys.make("b", "score", NOON + timedelta(seconds=60))
        store.available = False
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await keys.scope_of(wrong())
        assert store.readings == 2  # the read at the start, and the first failed one
        assert [await keys.scope_of(item) for item in (lasting, ending)] == ["score", "score"]
        clock.now += timedelta(seconds=60)
        assert [await keys.scope_of(item) for item in (lasting, ending)] == ["score", None]
        with pytest.raises(StoreUnavailable):
            await keys.make("c", "score", None)


async def test_unreadable_keys_are_logged_and_read_again(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(MemoryKeys):
        odd = False

        async def list_all(self) -> list[Key]:
            if self.odd:
                self.readings += 1
                raise KeyError("a column of a later version")
            return await super().list_all()

    store = Odd()
    async with ring(store, poll_s=0.01) as keys:
        _, secret = await keys.make("a", "score", None)
        store.odd = True
        with pytest.raises(StoreUnavailable):
            await keys.scope_of(wrong())
        await until_read(store, 3)
        assert await keys.scope_of(secret) == "score"
        store.odd = False
        await until_read(store, store.readings + 2)
        assert await keys.scope_of(wrong()) is None
    assert "the keys cannot be read" in caplog.text


async def test_key_expires() -> None:
    clock = Clock()
    async with ring(MemoryKeys(), clock=clock) as keys:
        made, secret = await keys.make("a", "admin", NOON + timedelta(seconds=60))
        clock.now += timedelta(seconds=59.999)
        assert await keys.scope_of(secret) == "admin"
        clock.now = NOON + timedelta(seconds=60)
        assert await keys.scope_of(secret) is None
        assert [key.state(keys.now()) for key in await keys.store.list_all()] == ["expired"]
        await keys.revoke(made.id)
        assert [key.state(keys.now()) for key in await keys.store.list_all()] == ["revoked"]


async def test_a_scope_stays_closed_when_its_keys_are_gone() -> None:
    """Revoked, or lost with a replaced database."""
    store = MemoryKeys()
    async with ring(store) as keys:
        made, secret = await keys.make("a", "score", None)
        await keys.revoke(made.id)
        assert keys.closed("score") and not keys.closed("admin")
        store._keys.clear()
        assert await keys.scope_of(secret) is None
        assert keys.closed("score")
    async with ring(MemoryKeys()) as fresh:
        assert not fresh.closed("score")
