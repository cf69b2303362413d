"""Calls forwarded unchanged to a server: reading, forwarding and broken connections."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.errors import DeadlineExceeded, LLMBadResponse, LLMUnavailable
from service.llm.client import LLM
from service.llm.forward import Reply
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, hang, pieces, status

PATH, BODY = "/chat/completions", b'{"messages": []}'


@asynccontextmanager
async def upstream(default: Behaviour, key: str = "sk-1") -> AsyncIterator[tuple[LLM, OpenAIServer]]:
    async with OpenAIServer(default=default) as server:
        made = LLM(server.url, api_key=key)
        try:
            yield made, server
        finally:
            await made.stop()


async def read(made: LLM, content: bytes = BODY) -> tuple[Reply, bytes]:
    """Return a reply and its content."""
    async with made.forward(PATH, content, headers={"X-Request-ID": "r1"}) as reply:
        return reply, b"".join([piece async for piece in reply.pieces()])


async def test_silent_server_times_out() -> None:
    async with OpenAIServer(script=[hang, pieces(b"data: 1\n\n", then=hang)]) as server:
        made = LLM(server.url, silence_s=0.2)
        with pytest.raises(DeadlineExceeded):
            await read(made)
        with pytest.raises(LLMUnavailable):
            await read(made)
        await made.stop()


async def test_server_that_does_not_read_times_out() -> None:
    callers = list[asyncio.StreamWriter]()
    async with await asyncio.start_server(lambda _, writer: callers.append(writer), "127.0.0.1") as server:
        made = LLM(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", silence_s=0.2)
        with pytest.raises(DeadlineExceeded):
            await read(made, bytes(32 << 20))  # more than the socket buffers hold
        await made.stop()
        for caller in callers:
            caller.transport.abort()
        await asyncio.sleep(0)


async def test_invalid_chunked_encoding_is_an_error() -> None:
    async def mad(exchange: Exchange) -> None:
        await exchange.start(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for part in (b"2\r\n: \r\n", b"2\r\n: \r\nzz\r\n"):
            exchange.writer.write(part)
            await asyncio.sleep(0.05)
        await hang(exchange)

    async with OpenAIServer(default=mad) as server:
        made, received = LLM(server.url), b""
        with pytest.raises(LLMUnavailable):
            # The time is far below the limit for a silent server.
            async with asyncio.timeout(30), made.forward(PATH, BODY) as reply:
                async for piece in reply.pieces():
                    received += piece
        assert received == b": : "
        await made.stop()


async def test_a_long_header_is_read() -> None:
    async with upstream(status(200, {}, {"content-language": "a" * 20_000})) as (made, _):
        assert len((await read(made))[0].headers["content-language"]) == 20_000


async def test_unrequested_compression_is_forwarded_unchanged() -> None:
    packed = gzip.compress(b"{}")
    async with upstream(status(200, packed, {"content-encoding": "gzip"})) as (made, server):
        reply, content = await read(made)
        assert (content, reply.headers["content-encoding"]) == (packed, "gzip")
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_invalid_http_status_is_an_error() -> None:
    async with upstream(status(999, {})) as (made, _):
        with pytest.raises(LLMBadResponse):
            await read(made)


async def test_a_cookie_of_one_answer_goes_with_no_other_call() -> None:
    async with upstream(status(200, {}, {"Set-Cookie": "who=a; Path=/"})) as (made, server):
        for _ in range(2):
            assert (await read(made))[1]
        assert all("cookie" not in sent.headers for sent in server.requests)


async def test_connection_closed_by_the_server_is_replaced() -> None:
    """While writing: the server has read nothing, so the call is repeated once."""
    arrived = ended = 0

    async def once_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived, ended
        arrived += 1
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"}")  # the next call on it is read but not answered
        writer.close()
        ended += 1

    async with await asyncio.start_server(once_each, "127.0.0.1") as server:
        made = LLM(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(2):
            assert (await read(made))[1] == b"{}"
        await made.stop()
        async with asyncio.timeout(60):
            while ended < arrived:
                await asyncio.sleep(0.001)
    assert arrived == 2


SECRET = "sk-secret-secret"


@pytest.mark.parametrize("code", [200, 401])
async def test_an_answer_that_quotes_our_key_goes_on_without_it(code: int) -> None:
    message = {"error": {"message": f"bad key Bearer {SECRET}."}}
    async with upstream(status(code, message), key=SECRET) as (made, _):
        _, content = await read(made)
    assert json.loads(content) == {"error": {"message": "bad key Bearer [redacted]."}}


async def test_of_headers_only_what_a_caller_needs_is_passed_on() -> None:
    headers = {"Set-Cookie": "a=1", "Server": "x", "X-Request-ID": "theirs", "OpenAI-Model": "m"}
    async with upstream(status(429, {}, headers | {"Retry-After": "3"})) as (made, _):
        reply, _ = await read(made)
    assert reply.headers == {"content-type": "application/json", "retry-after": "3"}
