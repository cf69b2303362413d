"""Calls over TLS, and to servers that refuse large calls."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import trustme

from service.embedding.http import HttpEmbedder
from service.errors import EigencalError, EmbedderRefusal
from service.llm.client import LLM
from service.llm.connection import Connections, endpoint, tls
from service.llm.prompt import GenerationRequest, Sampling, Template
from tests.support.openai_server import OpenAIServer, hang, status

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> Iterator[trustme.CA]:
    """A certificate authority trusted by the service through SSL_CERT_FILE."""
    made = trustme.CA()
    with made.cert_pem.tempfile() as file:
        monkeypatch.setenv("SSL_CERT_FILE", file)
        tls.cache_clear()
        yield made
    tls.cache_clear()


def server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


# TLS


async def test_calls_over_tls_are_answered_and_keep_their_connection(authority: trustme.CA) -> None:
    body = b"x" * (1 << 20)
    async with OpenAIServer(default=status(200, body), tls=server_side(authority)) as server:
        base = httpx2.URL(server.url)
        made = Connections(base)
        for _ in range(3):
            async with made.stream(
                "POST", endpoint(base, "/embeddings"), json.dumps("x" * 10**6).encode()
            ) as response:
                assert await response.aread() == body
        await made.close()
        assert server.accepted == 1


async def test_untrusted_certificate_is_refused(authority: trustme.CA) -> None:
    async with OpenAIServer(tls=server_side(trustme.CA())) as server:
        base = httpx2.URL(server.url)
        made = Connections(base)
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            async with made.stream("GET", endpoint(base, "/models")):
                pass
        assert not server.gets


async def test_a_cancelled_call_over_tls_closes_its_connection(authority: trustme.CA) -> None:
    async with OpenAIServer(default=hang, tls=server_side(authority)) as server:
        made = LLM(server.url)

        async def forward() -> None:
            async with made.forward("/chat/completions", b"{}"):
                pass

        call = asyncio.create_task(forward())
        await server.arrived.wait()
        call.cancel()
        await asyncio.wait([call])
        await server.disconnected.wait()
        await made.stop()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    """Yield the URL of a server; its handlers have ended at the end of the block."""
    handlers = set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(
        lambda *ends: handlers.add(asyncio.create_task(handle(*ends))), "127.0.0.1"
    )
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*handlers)


# A server that refuses a call before reading all of it

WORDS = "The request is larger than this server takes."
CONTENT = json.dumps({"error": {"message": WORDS}}).encode()
REFUSAL = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
    len(CONTENT),
    CONTENT,
)


async def refusal_of_llm(url: str, text: str) -> str:
    made = LLM(url, model="m")
    with pytest.raises(EigencalError) as caught:
        await made.generate(GenerationRequest(1, Sampling(), Template().prompt(text)))
    await made.stop()
    assert caught.value.extra["llm_status"] == 413
    return str(caught.value.extra["llm_message"])


async def refusal_of_embedder(url: str, text: str) -> str:
    made = HttpEmbedder(url, "m")
    with pytest.raises(EmbedderRefusal) as caught:
        await made.embed([text])
    await made.stop()
    return caught.value.message


async def refusal_in_drop_in(url: str, text: str) -> str:
    made = LLM(url)
    async with made.forward("/chat/completions", text.encode()) as reply:
        content = b"".join([piece async for piece in reply.pieces()])
    await made.stop()
    assert reply.status == 413
    return str(json.loads(content)["error"]["message"])


@pytest.mark.parametrize("ask", [refusal_of_llm, refusal_of_embedder, refusal_in_drop_in])
async def test_an_early_refusal_of_a_large_call_is_read(ask: Callable[[str, str], Awaitable[str]]) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer after the head, and read the rest without using it, as proxies do."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSAL)
        await writer.drain()
        while await reader.read(1 << 16):
            pass

    async with listening(refuse) as url:
        assert await ask(url, "x" * (8 << 20)) == WORDS


async def test_unread_response_stays_in_the_socket_buffers() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16

    async with listening(endless) as url:
        made = LLM(url)
        async with made.forward("/chat/completions", b"{}"):
            before = -1
            while sent > before:
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 32 << 20
        await made.stop()
