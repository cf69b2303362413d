"""Callers that send without end, slowly or not at all, over real sockets; and those who wait for long."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from service.api import errors as error_log
from service.app import create_app
from service.server import BoundedProtocol, Bounds
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import served
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.anyio
QUICK = Bounds(max_head_bytes=4096, receive_timeout_s=0.4, body_step_bytes=16, linger_s=0.2)
PATIENT = Bounds(receive_timeout_s=60)
# For callers that are in time, on a machine that now and then gives them no turn for a second.
UNHURRIED = replace(QUICK, receive_timeout_s=2.0)
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
TOO_LARGE = "header_too_large"
SAMPLES = json.dumps({"samples": ["a", "b"]}).encode()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Caller:
    """One end of a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Send; tell whether the other end was there to take it."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            return False
        return True

    async def said(self) -> bytes:
        """Return all that comes until the other end closes."""
        found = b""
        try:
            while piece := await self.reader.read(65536):
                found += piece
        except ConnectionError:
            pass
        return found

    async def response(self) -> tuple[int, bytes]:
        """Return status and body of the next response, which tells its length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def our_app(llm: FakeLLM | None = None, **settings: Any) -> FastAPI:
    return create_app(
        Settings(**settings), llm=llm or FakeLLM(), embedder=FakeEmbedder(), store=MemoryStore()
    )


@asynccontextmanager
async def service(bounds: Bounds, app: FastAPI | None = None) -> AsyncIterator[int]:
    async with asyncio.timeout(300), served(app or our_app(), bounds) as port:
        yield port


def problem(said: bytes) -> tuple[int, str]:
    """Return status and code of a refusal, which is the last that comes and like any other of ours."""
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines
    assert b"connection: close" in lines
    assert b"x-content-type-options: nosniff" in lines
    found = json.loads(body)
    assert f"x-request-id: {found['request_id']}".encode() in lines
    assert found["status"] == int(head.split()[1])
    return found["status"], found["code"]


ENDLESS = {
    "a header line": (GET + b"X: ", b"a" * 1024),
    "header lines": (GET, b"X: a\r\n" * 200),
    "a path": (b"GET /", b"a" * 1024),
    "a method": (b"", b"A" * 1024),
    "a chunk extension": (CHUNKED + b"1;x=", b"a" * 1024),
    "a trailer": (CHUNKED + b"1\r\n{\r\n0\r\nX: ", b"a" * 1024),
    "trailers": (CHUNKED + b"1\r\n{\r\n0\r\n", b"X: a\r\n" * 200),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_has_no_end_is_refused_after_a_few_kilobytes(name: str) -> None:
    begin, piece = ENDLESS[name]
    async with service(Bounds(max_head_bytes=4096, linger_s=0.2)) as port, calling(port) as caller:
        taken = await caller.send(begin)
        for _ in range(1000):
            taken = taken and await caller.send(piece)
            await asyncio.sleep(0)
        assert problem(await caller.said()) == (
            (400, "bad_request") if "method" in name else (431, TOO_LARGE)
        )
        async with calling(port) as other:
            await other.send(GET + b"\r\n")
            assert (await other.response())[0] == 200


async def test_large_headers_are_taken_up_to_the_bound() -> None:
    async with service(Bounds()) as port, calling(port) as caller:
        await caller.send(GET + b"X: " + b"a" * 60_000 + b"\r\n\r\n")
        assert (await caller.response())[0] == 200
        await caller.send(GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n")
        assert problem(await caller.said()) == (431, TOO_LARGE)


async def test_a_socket_that_says_nothing_is_closed() -> None:
    async with service(QUICK) as port, calling(port) as caller:
        assert await caller.said() == b""


async def test_line_ends_alone_keep_no_socket_open() -> None:
    async with service(QUICK) as port, calling(port) as caller:
        while await caller.send(b"\r\n"):
            await asyncio.sleep(0.05)
        assert await caller.said() == b""


@pytest.mark.parametrize("begun", [GET + b"X: a", GET, b"G", POST + b"Content-Length: 40\r\n\r\n{"])
async def test_a_request_that_stops_in_the_middle_is_refused(begun: bytes) -> None:
    async with service(QUICK) as port, calling(port) as caller:
        await caller.send(begun)
        assert problem(await caller.said()) == (408, "request_timeout")


@pytest.mark.parametrize("begun", [GET + b"X: ", POST + b"Content-Length: 9999\r\n\r\n"])
async def test_a_request_that_comes_byte_by_byte_is_refused(begun: bytes) -> None:
    async with service(QUICK) as port, calling(port) as caller:
        await caller.send(begun)
        said = asyncio.ensure_future(caller.said())
        while not said.done():
            await caller.send(b"a")
            await asyncio.sleep(0.1)
        assert problem(await said) == (408, "request_timeout")


async def test_the_second_request_of_a_connection_has_the_same_bounds() -> None:
    async with service(UNHURRIED) as port, calling(port) as caller:
        await caller.send(GET + b"\r\n")
        assert (await caller.response())[0] == 200
        await caller.send(GET)
        assert problem(await caller.said()) == (408, "request_timeout")


async def test_what_is_no_http_is_told_so_like_any_other_error() -> None:
    async with service(PATIENT) as port, calling(port) as caller:
        await caller.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert problem(await caller.said()) == (400, "bad_request")


async def test_too_many_requests_at_once_on_one_connection_are_cut_off() -> None:
    llm = FakeLLM(gate=asyncio.Event())
    body = b'{"prompt":"p"}'
    one = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with service(PATIENT, our_app(llm)) as port, calling(port) as caller:
        await caller.send(one * 1000)
        assert await caller.said() == b""  # the first has no answer yet, and none may be put before it
        while llm.active:
            await asyncio.sleep(0.01)


async def test_a_slow_body_is_taken_as_long_as_it_gets_on() -> None:
    body = SAMPLES + b" " * 300
    async with service(UNHURRIED) as port, calling(port) as caller:
        await caller.send(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        for i in range(0, len(body), 16):  # longer than the bound in all
            await caller.send(body[i : i + 16])
            await asyncio.sleep(0.15)
        assert (await caller.response())[0] == 200


async def test_a_body_that_we_do_not_take_yet_is_not_late() -> None:
    app = FastAPI()
    size = 400_000  # more than is read ahead

    @app.post("/late")
    async def late(request: Request) -> int:
        await asyncio.sleep(3)
        return len(await request.body())

    bounds = Bounds(receive_timeout_s=2, body_step_bytes=2 * size)
    async with service(bounds, app) as port, calling(port) as caller:
        await caller.send(b"POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        sending = asyncio.create_task(caller.send(b"a" * size))
        assert await caller.response() == (200, b"%d" % size)
        assert await sending


async def test_who_waits_for_an_answer_is_not_cut_off() -> None:
    gate = asyncio.Event()
    body = b'{"prompt":"p"}'
    async with service(QUICK, our_app(FakeLLM(gate=gate))) as port, calling(port) as caller:
        await caller.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(3 * QUICK.receive_timeout_s)
        gate.set()
        assert (await caller.response())[0] == 200


def streaming(pieces: Callable[[], AsyncIterator[bytes]]) -> FastAPI:
    app = FastAPI()
    app.add_api_route("/stream", lambda: StreamingResponse(pieces()))
    return app


async def test_a_stream_of_events_is_not_cut_off() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"event\n"
            await asyncio.sleep(QUICK.receive_timeout_s)

    async with service(QUICK, streaming(slowly)) as port, calling(port) as caller:
        await caller.send(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await caller.said()).count(b"event\n") == 4


async def test_who_takes_nothing_of_its_answer_is_let_go() -> None:
    ended = asyncio.Event()

    async def without_end() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 2**20
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    app = streaming(without_end)
    async with service(Bounds(stalled_s=0.3), app) as port, calling(port) as caller:
        await caller.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await ended.wait()


async def test_large_bodies_that_are_never_finished_leave_room_for_others() -> None:
    large = 8 * 2**20
    begin = POST + b"Content-Length: %d\r\n\r\n" % large
    async with service(PATIENT, our_app(max_bodies_bytes=4 * large)) as port:
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(calling(port)) for _ in range(5)]
            for caller in callers:
                await caller.send(begin + b" " * (large - 1))
            answers = [asyncio.ensure_future(caller.response()) for caller in callers]
            done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            status, body = done.pop().result()
            assert (status, json.loads(body)["code"]) == (503, "overloaded")
            assert not done  # whichever had no room left
            async with calling(port) as small:
                await small.send(POST + b"Content-Length: %d\r\n\r\n" % len(SAMPLES) + SAMPLES)
                assert (await small.response())[0] == 200
            for answer in waiting:
                answer.cancel()
        status = 503
        while status == 503:  # until it is seen that the others have gone, and what they held with them
            async with calling(port) as again:
                await again.send(begin + SAMPLES + b" " * (large - len(SAMPLES)))
                status, _ = await again.response()
        assert status == 200


REFUSED = {
    "408 request_timeout": GET,
    "431 header_too_large": GET + b"X: " + b"a" * 9000 + b"\r\nY: b\r\n",
    "400 bad_request": b"no HTTP at all\r\n\r\n",
}


@pytest.mark.parametrize("named", REFUSED)
async def test_a_refusal_is_a_line_in_the_log(named: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=error_log.__name__)
    async with service(QUICK) as port, calling(port) as caller:
        await caller.send(REFUSED[named])
        request_id = json.loads((await caller.said()).partition(b"\r\n\r\n")[2])["request_id"]
    (line,) = [one.getMessage() for one in caplog.records if one.name == error_log.__name__]
    assert line == f"{named}, request {request_id}, a connection from 127.0.0.1"


async def test_many_refusals_are_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=error_log.__name__)
    async with service(QUICK) as port:
        for _ in range(error_log.LINES + 3):
            async with calling(port) as caller:
                await caller.send(b"no HTTP at all\r\n\r\n")
                await caller.said()
    lines = [one.getMessage() for one in caplog.records if one.name == error_log.__name__]
    assert len(lines) == error_log.LINES + 1
    assert lines[-1].startswith("bad_request: 3 more")


FEW = Bounds(max_connections=8, receive_timeout_s=60, linger_s=0.2)


@pytest.mark.parametrize("begun", [b"", GET, GET + b"\r\n"], ids=["silent", "in the head", "answered"])
async def test_idle_connections_make_room_for_others(begun: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with service(FEW) as port, AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(calling(port)) for _ in range(8)]
        for caller in idle:
            await caller.send(begun)
            if begun.endswith(b"\r\n\r\n"):
                await caller.response()
        async with calling(port) as other:
            await other.send(GET + b"\r\n")
            assert (await other.response())[0] == 200
        said = await idle[0].said()  # closed: the one that waited longest
        # After an answer, a refusal might be taken for the answer to what is asked next.
        assert said == b"" if begun.endswith(b"\r\n\r\n") else problem(said) == (503, "overloaded")
        await idle[1].send(b"\r\n" if begun == GET else GET + b"\r\n")
        assert (await idle[1].response())[0] == 200
    assert "a connection from 127.0.0.1: Too many connections" in caplog.text


async def test_whoever_waits_for_an_answer_does_not_make_room() -> None:
    llm = FakeLLM()
    llm.gate = asyncio.Event()
    prompt = b'{"prompt": "p"}'
    sent = POST + b"Content-Length: %d\r\n\r\n" % len(prompt) + prompt
    async with service(FEW, our_app(llm)) as port, AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(calling(port)) for _ in range(8)]
        for caller in waiting:
            await caller.send(sent)
        while len(llm.requests) < 8:
            await asyncio.sleep(0.01)
        async with calling(port) as one_more:
            said = await one_more.said()
            assert problem(said) == (503, "overloaded")  # there is nobody else to close
            assert b"retry-after: 2\r\n" in said.lower()
        llm.gate.set()
        assert [(await caller.response())[0] for caller in waiting] == [200] * 8


async def test_bodies_that_do_not_come_make_room_for_others() -> None:
    async with service(FEW) as port, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(calling(port)) for _ in range(10)]
        for caller in slow:
            await caller.send(POST + b"Content-Length: 1000\r\n\r\n{")
        for _ in range(3):
            async with calling(port) as other:
                await other.send(GET + b"\r\n")
                assert (await other.response())[0] == 200
        assert problem(await slow[0].said()) == (503, "overloaded")


async def test_a_body_that_gets_on_does_not_make_room() -> None:
    bounds = Bounds(max_connections=8, receive_timeout_s=60, body_step_bytes=16)
    async with service(bounds) as port, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(calling(port)) for _ in range(8)]
        begin = POST + b"Content-Length: %d\r\n\r\n" % (len(SAMPLES) + 32)
        for caller in callers:
            await caller.send(begin)
        await asyncio.sleep(0.1)
        await callers[0].send(b" " * 32)
        await asyncio.sleep(0.1)
        async with calling(port) as other:
            await other.send(GET + b"\r\n")
            assert (await other.response())[0] == 200
        assert problem(await callers[1].said()) == (503, "overloaded")
        await callers[0].send(SAMPLES)
        assert (await callers[0].response())[0] == 200


SIZE = 50_000  # unsent in part, and under the 64 kB at which a transport tells its protocol


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[BoundedProtocol]:
    """Let the system take little of an answer off our hands; return the connections as they are made."""
    found: list[BoundedProtocol] = []
    as_it_is = BoundedProtocol.connection_made

    def connection_made(self: BoundedProtocol, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        found.append(self)
        as_it_is(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", connection_made)
    return found


@asynccontextmanager
async def deaf(port: int, head: bytes) -> AsyncIterator[socket.socket]:
    """Ask for `SIZE` bytes and read none of them."""
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        caller.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(caller, ("127.0.0.1", port))
        await loop.sock_sendall(caller, head)
        yield caller


def sized() -> FastAPI:
    app = FastAPI()
    app.add_api_route("/sized", lambda: Response(b"x" * SIZE))
    app.add_api_route("/healthz", lambda: None)
    return app


SIZED = b"GET /sized HTTP/1.1\r\nHost: x\r\n"
CLOSING = SIZED + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize("head", [SIZED + b"\r\n", CLOSING], ids=["left open", "closed"])
async def test_a_small_answer_that_nobody_takes_holds_no_connection(
    head: bytes, made: list[BoundedProtocol]
) -> None:
    bounds = Bounds(stalled_s=0.3, flush_s=0.3, watch_s=0.1)
    async with service(bounds, sized()) as port, deaf(port, head):
        while not made:
            await asyncio.sleep(0.01)
        while made[0] in made[0].connections:
            await asyncio.sleep(0.01)
        assert made[0].transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("head", [SIZED + b"\r\n", CLOSING], ids=["left open", "closed"])
async def test_answers_that_nobody_takes_make_room_for_others(
    head: bytes, made: list[BoundedProtocol]
) -> None:
    bounds = Bounds(max_connections=8, receive_timeout_s=60, flush_s=60, watch_s=0.1)
    async with service(bounds, sized()) as port, AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(deaf(port, head))
        taken = 0
        while taken < 10:  # the first are refused until it is seen that those there take nothing
            async with calling(port) as other:
                await other.send(GET + b"\r\n")
                status, _ = await other.response()
                taken += status == 200


async def test_a_small_answer_that_is_taken_slowly_comes_whole(made: list[BoundedProtocol]) -> None:
    bounds = Bounds(max_connections=1, stalled_s=60, flush_s=60, watch_s=0.1)
    async with service(bounds, sized()) as port, deaf(port, CLOSING) as caller:
        loop, found = asyncio.get_running_loop(), b""
        while piece := await loop.sock_recv(caller, 1024):
            found += piece
            await asyncio.sleep(0.01)
        assert found.endswith(b"\r\n\r\n" + b"x" * SIZE)
