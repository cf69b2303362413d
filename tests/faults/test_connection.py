"""Callers that send without end, over real sockets, and connections past the bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from service.api import middleware
from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import served
from tests.support.sqlite_store import SqliteStore

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a header line": (GET + b"X: ", b"a" * 1024),
    "a path": (b"GET /", b"a" * 1024),
    "a chunk extension": (CHUNKED + b"1;x=", b"a" * 1024),
    "a body": (CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n"),
}


@asynccontextmanager
async def service(**options: Any) -> AsyncIterator[int]:
    app = create_app(Settings(), llm=FakeLLM(), embedder=FakeEmbedder(), store=SqliteStore())
    async with asyncio.timeout(300), served(app, **options) as port:
        yield port


class Caller:
    """One end of a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Send; tell whether the other end was there to take it."""
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()
            return True
        return False

    async def status(self) -> int:
        """Return the status of the next response; 0 where the connection is closed without one."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            return int((await self.reader.readuntil(b"\r\n")).split()[1])
        return 0


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_has_no_end_is_refused_and_others_are_served(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_BODY_BYTES", 1 << 16)
    begin, piece = ENDLESS[name]
    async with service() as port, calling(port) as caller:
        taken, sent = await caller.send(begin), 0
        while taken and sent < 4 << 20:
            taken = await caller.send(piece)
            sent += len(piece)
            await asyncio.sleep(0)
        # Of a body that is refused, what still comes is dropped.
        assert await caller.status() in (0, 400, 413)
        async with calling(port) as other:
            await other.send(GET + b"\r\n")
            assert await other.status() == 200


async def test_past_the_bound_on_connections_others_are_refused_until_one_goes() -> None:
    async with service(limit_concurrency=4) as port:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(calling(port))
            async with calling(port) as one_more:
                await one_more.send(GET + b"\r\n")
                assert await one_more.status() == 503
        status = 503
        while status == 503:  # until it is seen that they have gone
            async with calling(port) as again:
                await again.send(GET + b"\r\n")
                status = await again.status()
        assert status == 200
