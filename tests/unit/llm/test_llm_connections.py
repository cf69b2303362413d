"""Connections, each used by one call at a time, and shared health checks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import LLMUnavailable
from service.llm import connection
from service.llm.client import LLM
from service.llm.connection import Connections, HealthProbe, endpoint
from service.llm.prompt import GenerationRequest, Sampling, Template
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, completion, hang
from tests.support.openai_server import pieces as begun

pytestmark = pytest.mark.usefixtures("bounded")


@asynccontextmanager
async def connections(url: str, **options: Any) -> AsyncIterator[tuple[Connections, httpx2.URL]]:
    base = httpx2.URL(url)
    made = Connections(base, **options)
    try:
        yield made, endpoint(base, "/models")
    finally:
        await made.close()
        await made.close()


async def test_connection_is_reused_after_a_read_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with OpenAIServer(default=begun(b"half", then=hang)) as server:

        async def is_kept(made: Connections, url: httpx2.URL, method: str) -> bool:
            """Return True if a call reused a connection. The response to a POST is not read to its end."""
            before = server.accepted
            async with made.stream(method, url) as response:
                if method == "GET":
                    assert await response.aread()
            return server.accepted == before

        async with connections(server.url) as (made, url):
            kept = [await is_kept(made, url, method) for method in ("GET", "GET", "POST", "GET")]
        assert kept == [False, True, True, False]
        monkeypatch.setattr(connection, "KEEPALIVE_S", 0.0)
        async with connections(server.url) as (made, url):
            assert [await is_kept(made, url, "GET") for _ in range(2)] == [False, False]


@pytest.mark.parametrize(
    ("user", "expected"), [("", "Bearer sk"), ("me@", "Basic bWU6"), ("me:p%40@", "Basic bWU6cEA=")]
)
async def test_credentials_of_the_url_take_precedence_over_the_key(user: str, expected: str) -> None:
    sent = list[httpx2.Request]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    mock = httpx2.MockTransport(answer)
    async with connections(f"http://{user}model.internal/v1", api_key="sk", transport=mock) as (made, url):
        async with made.stream("POST", url, b"{}"):
            pass
    assert sent[0].headers["authorization"] == expected
    assert sent[0].headers["host"] == "model.internal"


async def test_unresolvable_name_fails_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", forever)
    async with connections("http://model.internal") as (made, url):
        with pytest.raises(httpx2.ConnectTimeout):
            async with made.stream("GET", url):
                pass


@pytest.mark.parametrize("opened_by", ["connection", "socks"])
async def test_failure_of_a_new_connection_is_not_repeated(opened_by: str) -> None:
    calls = 0

    class Breaking(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            nonlocal calls
            calls += 1
            await request.extensions["trace"](f"{opened_by}.connect_tcp.started", {})
            raise httpx2.ReadError("broken off", request=request)

    async with connections("http://model.internal", transport=Breaking()) as (made, url):
        with pytest.raises(httpx2.ReadError):
            async with asyncio.timeout(10), made.stream("GET", url):
                pass
    assert calls == 1


# Unsolicited bytes

Ask = Callable[[], Awaitable[object]]
EVIL = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{"evil": "evil"}'
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def llm(url: str) -> AsyncIterator[Ask]:
    made = LLM(url, model="m")

    async def ask() -> object:
        generation = await made.generate(GenerationRequest(1, Sampling(), Template().prompt("?")))
        return [draw.text for draw in generation.draws]

    yield ask
    await made.stop()


@asynccontextmanager
async def embedder(url: str) -> AsyncIterator[Ask]:
    made, texts = HttpEmbedder(url, "m"), iter(range(99))

    async def ask() -> object:
        return (await made.embed([f"text {next(texts)}"])).vectors.tolist()

    yield ask
    await made.stop()


@asynccontextmanager
async def forwarding(url: str) -> AsyncIterator[Ask]:
    made = LLM(url)

    async def ask() -> object:
        async with made.forward("/chat/completions", b'{"n": 1}') as reply:
            return reply.status, b"".join([piece async for piece in reply.pieces()])

    yield ask
    await made.stop()


def followed_by(rest: bytes, when: str, written: asyncio.Event) -> Behaviour:
    """Answer, and write more bytes with the response, directly after it, or a moment later."""

    async def behave(exchange: Exchange) -> None:
        writer, write = exchange.writer, exchange.writer.write
        if "input" in exchange.body:
            payload: Any = {"data": [{"index": 0, "embedding": [1, 0]}]}
        else:
            payload = completion(exchange, ["Paris"], "stop")
        if when == "with it":
            writer.write = lambda data: write(data + rest)  # type: ignore[method-assign]
        await exchange.send(200, payload)
        writer.write = write  # type: ignore[method-assign]
        if when == "later":
            await asyncio.sleep(0.01)
        if when != "with it":
            writer.write(rest)
        written.set()

    return behave


@pytest.mark.parametrize("client", [llm, embedder, forwarding])
@pytest.mark.parametrize("rest", [EVIL, TIMED_OUT, b"\0\0\r\n\r\n"], ids=["response", "408", "garbage"])
@pytest.mark.parametrize("when", ["with it", "after it", "later"])
async def test_bytes_on_an_idle_connection_are_discarded(client: Any, rest: bytes, when: str) -> None:
    written = asyncio.Event()
    async with OpenAIServer(default=followed_by(rest, when, written)) as server, client(server.url) as ask:
        first = await ask()
        for _ in range(5):
            await written.wait()
            written.clear()
            await asyncio.sleep(0.01)  # the bytes arrive
            assert await ask() == first
        assert server.accepted == 6


async def test_server_with_extra_bytes_causes_one_repeated_call() -> None:
    async def surplus(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\r\n")
        await exchange.writer.drain()

    async with OpenAIServer(default=surplus) as server, connections(server.url) as (made, url):
        for _ in range(5):
            async with made.stream("POST", url, b"{}") as response:
                assert await response.aread() == b"{}"
    assert len(server.requests) <= 6


async def test_408_on_a_reused_connection_is_retried() -> None:
    arrived = 0

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        arrived += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            for answer in (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", TIMED_OUT):
                await reader.readuntil(b"}")
                writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answer_once, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with forwarding(f"http://127.0.0.1:{port}") as ask:
            assert [await ask(), await ask()] == [(200, b"{}")] * 2
    assert arrived == 2


# Callers that leave


@pytest.mark.parametrize("wait_s", [0.0, 0.001, 0.05])
async def test_cancelled_calls_leave_no_connection(wait_s: float) -> None:
    async with OpenAIServer(default=hang) as server, connections(server.url) as (made, url):

        async def call(method: str) -> int:
            async with made.stream(method, url, b"{}", silence_s=60) as response:
                return response.status_code

        for _ in range(3):
            calls = [asyncio.create_task(call("POST")) for _ in range(50)]
            await asyncio.sleep(wait_s)
            for task in calls:
                task.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
            while server.active:
                await asyncio.sleep(0.001)
        assert await asyncio.gather(*(call("GET") for _ in range(50))) == [200] * 50


# Checks


async def test_shared_check_survives_cancelled_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, gate, fails = 0, asyncio.Event(), list[Exception]()

    async def ask() -> None:
        nonlocal asked
        asked += 1
        await gate.wait()
        if fails:
            raise fails[0]

    check = HealthProbe(ask)
    stays = [asyncio.create_task(check()) for _ in range(20)]
    for _ in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(check(), 0.001)
    gate.set()
    await asyncio.gather(*stays, check())
    assert asked == 1
    monkeypatch.setattr(connection, "CHECK_KEPT_S", -1.0)
    fails.append(LLMUnavailable("down", retry_after_s=7))
    first, second = await asyncio.gather(check(), check(), return_exceptions=True)
    assert isinstance(first, LLMUnavailable) and first.retry_after_s == 7 and first is not second
    assert asked == 2
    fails[0] = KeyError("a bug")
    with pytest.raises(KeyError):
        await check()
    fails.clear()
    await check()
