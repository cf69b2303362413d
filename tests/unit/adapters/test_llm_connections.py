"""Connections that are lent to one call at a time, and checks that many share."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from service import remote
from service.errors import LLMUnavailable
from service.remote import Connections, SharedCheck
from tests.support.openai_server import OpenAIServer


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def test_a_second_cancellation_does_not_break_off_the_closing() -> None:
    closing, go_on, clients = asyncio.Event(), asyncio.Event(), list[httpx.AsyncClient]()

    class Slow(httpx.AsyncClient):
        async def aclose(self) -> None:
            clients.append(self)
            closing.set()
            await go_on.wait()
            await super().aclose()

    connections = Connections(Slow)

    async def call() -> None:
        async with connections.one():
            await asyncio.sleep(60)

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.cancel()
    await closing.wait()
    caller.cancel()
    await asyncio.wait({caller})
    assert not clients[0].is_closed
    go_on.set()
    await connections.close()
    assert clients[0].is_closed


async def test_a_whole_answer_keeps_its_connection_for_a_while_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with OpenAIServer() as server:
        lent = Connections(httpx.AsyncClient)

        async def get(then: Exception | None = None) -> httpx.AsyncClient:
            async with lent.one() as http:
                await http.get(f"{server.url}/models")
                if then:
                    raise then
            return http

        kept = await get()
        assert await get() is kept and len(server._connections) == 1
        with pytest.raises(KeyError):
            await get(KeyError())
        assert kept.is_closed
        kept = await get()
        monkeypatch.setattr(remote, "KEEPALIVE_S", -1.0)
        other = await get()
        assert other is not kept
        await lent.close()
        assert kept.is_closed and other.is_closed


async def test_a_check_is_one_at_a_time_and_nobodys_leaving_harms_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, gate, fails = 0, asyncio.Event(), list[Exception]()

    async def ask() -> None:
        nonlocal asked
        asked += 1
        await gate.wait()
        if fails:
            raise fails[0]

    check = SharedCheck(ask)
    stays = [asyncio.create_task(check()) for _ in range(20)]
    for _ in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(check(), 0.001)
    gate.set()
    await asyncio.gather(*stays, check())
    assert asked == 1
    monkeypatch.setattr(remote, "CHECK_KEPT_S", -1.0)
    fails.append(LLMUnavailable("down", retry_after_s=7))
    first, second = await asyncio.gather(check(), check(), return_exceptions=True)
    assert isinstance(first, LLMUnavailable) and first.retry_after_s == 7 and first is not second
    assert asked == 2
    fails[0] = KeyError("a bug")
    with pytest.raises(KeyError):
        await check()
    fails.clear()
    await check()
