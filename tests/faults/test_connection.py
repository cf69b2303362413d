"""Endless requests over real sockets, and connections over the limit."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.processes import PYTHON, running
from service import server
from service.http import door
from service.server import http_options
from tests.support.fakes import FakeLLM
from tests.support.live import fake_app, listening, served
from tests.support.services import address

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
async def service(llm: FakeLLM | None = None, **options: Any) -> AsyncIterator[int]:
    async with asyncio.timeout(300), served(fake_app(llm), **options) as port:
        yield port


class Caller:
    """One end of a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Send data; return True if the other end was still connected."""
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()
            return True
        return False

    async def status(self) -> int:
        """Return the status of the next response; 0 if the connection is closed without one."""
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


async def status_of(port: int, request: bytes = GET + b"\r\n") -> int:
    async with calling(port) as caller:
        await caller.send(request)
        return await caller.status()


@pytest.mark.parametrize("name", ENDLESS)
async def test_endless_request_is_refused_while_others_are_served(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_BODY_BYTES", 1 << 16)
    begin, piece = ENDLESS[name]
    async with service() as port, calling(port) as caller:
        taken, sent = await caller.send(begin), 0
        while taken and sent < 4 << 20:
            taken = await caller.send(piece)
            sent += len(piece)
            await asyncio.sleep(0)
        # The rest of a refused body is discarded.
        assert await caller.status() in (0, 400, 413)
        assert await status_of(port) == 200


async def test_requests_over_the_limit_are_refused_until_another_ends() -> None:
    gate = asyncio.Event()
    body = b'{"prompt": "p"}'
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with service(FakeLLM(gate=gate), limit_concurrency=4) as port, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(calling(port)) for _ in range(3)]
        for caller in callers:
            await caller.send(request)
        status = 200
        while status == 200:  # until all three are in flight
            status = await status_of(port)
        assert status == 503
        gate.set()
        assert [await caller.status() for caller in callers] == [200] * 3
        while status == 503:
            status = await status_of(port)
        assert status == 200


@pytest.mark.parametrize("part", [b"", GET, POST + b"Content-Length: 9\r\n\r\n{"])
async def test_connections_that_wait_for_their_callers_are_closed_for_new_ones(part: bytes) -> None:
    async with service(limit_concurrency=4) as port, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(calling(port)) for _ in range(40)]
        for caller in callers:
            await caller.send(part)
        async with calling(port) as other:
            for _ in range(3):
                await other.send(GET + b"\r\n")
                assert await other.status() == 200
                await other.reader.readuntil(b"}")
        assert [await caller.status() for caller in callers[:30]] == [0] * 30


@pytest.mark.parametrize("bound", ["HEAD_S", "BODY_S"])
async def test_a_slow_request_is_cut_off(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, bound, 0.2)
    body = b'{"samples": ["a", "b"]}'
    begin = GET if bound == "HEAD_S" else POST + b"Content-Length: 900000\r\n\r\n"
    async with service() as port:
        async with calling(port) as slow:
            while await slow.send(begin):  # more bytes do not extend the limit
                begin = b"a"
                await asyncio.sleep(0.02)
        monkeypatch.undo()
        assert await status_of(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body) == 200


def test_a_request_that_arrives_while_the_process_is_frozen_is_answered(tmp_path: Path) -> None:
    """A paused container or virtual machine: at its end all timers are due, and requests are still unread."""
    log, nobody = tmp_path / "log", "http://127.0.0.1:1"
    settings = {"DATA_DIR": str(tmp_path), "PORT": "0"}
    settings |= {"LLM_URL": nobody, "EMBEDDER_URL": nobody}
    env = {f"EIGENCAL_{name}": value for name, value in settings.items()}
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        url = urlsplit(address(process, log))
        with closing(HTTPConnection(url.netloc)) as new, closing(HTTPConnection(url.netloc)) as idle:
            new.connect()
            idle.request("GET", "/healthz")
            assert idle.getresponse().read()
            time.sleep(0.5)  # until the event loop sleeps
            process.send_signal(signal.SIGSTOP)
            for connection in (new, idle):
                connection.request("GET", "/healthz")
            time.sleep(server.HEAD_S + 1)  # uvicorn closes idle connections after 5 s
            process.send_signal(signal.SIGCONT)
            assert [connection.getresponse().status for connection in (new, idle)] == [200, 200]


@pytest.mark.parametrize("large", [True, False])
async def test_a_caller_who_does_not_read_is_cut_off(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = "x" * (200_000 if large else 1000)
    samples = [f"{number} {sample}"[:200_000] for number in range(36)]
    content = json.dumps({"samples": samples, "return": ["samples"], "claims": False}).encode()
    request = POST + b"Content-Length: %d\r\n\r\n" % len(content) + content
    async with asyncio.timeout(300), listening(fake_app(), **http_options(write_timeout_s=0.2)) as running:
        port = running.servers[0].sockets[0].getsockname()[1]
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        with connection, suppress(ConnectionError):
            while True:  # more answers than fit into the buffers
                await loop.sock_sendall(connection, request)
        while running.server_state.connections:
            await asyncio.sleep(0.01)


HIDDEN = b"0\r\n\r\n" + GET + b"\r\n"
TWO_LENGTHS = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + HIDDEN,
    "chunks and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n" + HIDDEN,
    "chunks before HTTP/1.1": POST.replace(b"/1.1", b"/1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + HIDDEN,
    "two lengths in a line": POST + b"Content-Length: 5, 6\r\n\r\n" + HIDDEN,
    "an upload": CHUNKED.replace(b"/score", b"/calibrate").replace(
        b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"
    )
    + HIDDEN,
}


@pytest.mark.parametrize("name", TWO_LENGTHS)
async def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read(name: str) -> None:
    async with service() as port, calling(port) as caller:
        await caller.send(TWO_LENGTHS[name])
        answer = await caller.reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ") and b"HTTP/1.1 200" not in answer
    assert b"connection: close" in answer.lower()
