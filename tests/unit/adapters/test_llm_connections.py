"""Connections that are lent to one call at a time, and checks that many share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

import aiohttp
import pytest

from service import remote
from service.errors import LLMUnavailable
from service.remote import LONG_BYTES, Connections, SharedCheck, pieces
from tests.support.openai_server import OpenAIServer, hang
from tests.support.openai_server import pieces as begun


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def test_a_whole_answer_keeps_its_connection_for_a_while_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with OpenAIServer(default=begun(b"half", then=hang)) as server:
        lent = Connections(server.url)

        async def call(method: str) -> bool:
            """Return whether it went over a kept connection; the answer to a POST is not read to its end."""
            before = server.accepted
            with closing(await lent.request(method, f"{server.url}/models")) as response:
                if method == "GET":
                    assert [piece async for piece in pieces(response)]
            return server.accepted == before

        assert [await call(one) for one in ("GET", "GET", "POST", "GET")] == [False, True, True, False]
        await lent.close()
        await lent.close()
        monkeypatch.setattr(remote, "KEEPALIVE_S", 0.0)
        lent = Connections(server.url)
        assert [await call("GET"), await call("GET")] == [False, False]
        await lent.close()


async def test_the_urls_own_credentials_go_before_the_key() -> None:
    async with OpenAIServer() as server:
        for url, expected in (
            (server.url, "Bearer sk"),
            (f"http://me@{server.url[7:]}", "Basic bWU6"),
        ):
            lent = Connections(url, api_key="sk")
            (await lent.request("POST", f"{url}/x", b"{}")).close()
            await lent.close()
            assert server.requests[-1].headers["authorization"] == expected


async def test_a_name_that_nothing_resolves_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(remote, "CONNECT_TIMEOUT_S", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", forever)
    lent = Connections("http://model.internal")
    with pytest.raises(aiohttp.ClientConnectionError):
        await lent.request("GET", "http://model.internal/models")
    await lent.close()


async def test_a_long_body_goes_whole() -> None:
    async with OpenAIServer() as server:
        lent, content = Connections(server.url), b'{"a": "%b"}' % (b"a" * LONG_BYTES)
        for _ in range(2):
            (await lent.request("POST", server.url, content)).close()
        await lent.close()
    assert [sent.data for sent in server.requests] == [content, content]


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
