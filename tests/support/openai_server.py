"""A scripted OpenAI-compatible server on a real socket, in plain asyncio.

Each POST takes the next behaviour of `script`, then `default`. Behaviours are coroutines with an `Exchange`
argument, created by `answers`, `status`, `raw`, `hang`, `drop` and `pieces` below. Use it as
`async with OpenAIServer() as server:`.
"""

import asyncio
import json
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

MODEL = "scripted-model"
TEXTS = ("Paris", "Lyon")
MOST_BYTES = 2**26


@dataclass
class Exchange:
    """One request and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    server: "OpenAIServer"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    data: bytes = b""  # the bytes of the body

    async def send(self, code: int, payload: Any, headers: Mapping[str, str] | None = None) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        head = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        await self._write(code, head, data)

    async def start(self, code: int, headers: Mapping[str, str]) -> None:
        await self._write(code, headers, b"")

    async def start_stream(self) -> None:
        await self.start(200, {"content-type": "text/event-stream", "connection": "close"})

    async def event(self, chunk: Any) -> None:
        data = chunk if isinstance(chunk, str) else json.dumps(chunk)
        self.writer.write(f"data: {data}\n\n".encode())
        await self.writer.drain()

    async def stream(self, *chunks: Any) -> None:
        """Answer with these events, `[DONE]` and the end of the connection."""
        await self.start_stream()
        for chunk in (*chunks, "[DONE]"):
            await self.event(chunk)
        self.writer.close()

    async def until_disconnect(self) -> None:
        with suppress(ConnectionError):  # a reset connection has ended, too
            while await self.reader.read(1024):
                pass
        self.server.disconnects += 1
        self.server.disconnected.set()

    async def _write(self, code: int, headers: Mapping[str, str], data: bytes) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"HTTP/1.1 {code} Scripted\r\n{head}\r\n".encode() + data)
        await self.writer.drain()


Behaviour = Callable[[Exchange], Awaitable[None]]


def completion(exchange: Exchange, texts: Sequence[str], finish: str, model: str = MODEL) -> dict[str, Any]:
    """Return a completion payload in the format of the requested path."""
    chat = exchange.path.endswith("/chat/completions")
    choices = [
        {
            "index": i,
            "finish_reason": finish,
            **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
        }
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 2 * len(texts)}
    return {"model": model, "choices": choices, "usage": usage}


def answers(*texts: str, at_most: int | None = None, finish: str = "stop", model: str = MODEL) -> Behaviour:
    """Answer with n choices that cycle through the texts, never more than `at_most` (1: n is ignored)."""
    cycle = texts or TEXTS

    async def behave(exchange: Exchange) -> None:
        requested = int(exchange.body.get("n", 1))
        count = requested if at_most is None else min(requested, at_most)
        choices = [cycle[i % len(cycle)] for i in range(count)]
        if exchange.body.get("stream"):
            await exchange.stream(*_chunks(choices, model))
        else:
            await exchange.send(200, completion(exchange, choices, finish, model))

    return behave


def _chunks(texts: Sequence[str], model: str) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a chat: each text in two pieces, then the usage."""
    for i, text in enumerate(texts):
        for piece, finish in ((text[:2], None), (text[2:], "stop")):
            choice = {"index": i, "finish_reason": finish, "delta": {"content": piece}}
            yield {"model": model, "choices": [choice]}
    yield {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(texts)}}


def status(code: int, payload: Any, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer with this status and payload."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(code, payload, headers)

    return behave


def raw(data: bytes) -> Behaviour:
    """Answer 200 with these bytes."""
    return status(200, data)


async def hang(exchange: Exchange) -> None:
    """Never answer; count the disconnect of the caller."""
    await exchange.until_disconnect()


def after(wait_s: float, then: Behaviour) -> Behaviour:
    """Wait before the behaviour `then`, like a slow LLM; a disconnect of the caller ends the wait."""

    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(wait_s)
        await then(exchange)

    return behave


def once(event: asyncio.Event, then: Behaviour) -> Behaviour:
    """Wait for the event before the behaviour `then`."""

    async def behave(exchange: Exchange) -> None:
        await event.wait()
        await then(exchange)

    return behave


def endless(piece: bytes, headers: Mapping[str, str], *, code: int = 200) -> Behaviour:
    """Answer with repetitions of `piece`, up to `MOST_BYTES` or a disconnect; count the bytes."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start(code, {"connection": "close", **headers})
        while exchange.server.sent < MOST_BYTES:
            exchange.writer.write(piece)
            exchange.server.sent += len(piece)
            await exchange.writer.drain()
        exchange.writer.close()

    return behave


async def drop(exchange: Exchange) -> None:
    """Close the connection without an answer."""
    exchange.writer.close()


def pieces(*parts: bytes, then: Behaviour | None = None, media_type: str = "text/event-stream") -> Behaviour:
    """Answer with these bytes, one HTTP chunk and write each; then end the body, or run `then`."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start(200, {"content-type": media_type, "transfer-encoding": "chunked"})
        for part in parts:
            exchange.writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await exchange.writer.drain()
            await asyncio.sleep(0)  # a separate write on the wire
        if then is not None:
            await then(exchange)
            return
        exchange.writer.write(b"0\r\n\r\n")
        await exchange.writer.drain()

    return behave


def draws_and(own: Behaviour, draws: Behaviour | None = None) -> Behaviour:
    """Answer the service's own calls, which always have a temperature, with `draws`, others with `own`."""
    of_service = draws or answers()

    async def behave(exchange: Exchange) -> None:
        await (of_service if "temperature" in exchange.body else own)(exchange)

    return behave


@dataclass
class OpenAIServer:
    """The server. `requests` has all POSTs, `gets` the paths of all GETs, in order."""

    script: Sequence[Behaviour] = ()
    default: Behaviour = field(default_factory=answers)
    models: Sequence[str] = (MODEL,)
    health: int = 200
    requests: list[Exchange] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    disconnects: int = 0
    sent: int = 0  # bytes of endless bodies
    active: int = 0
    most_active: int = 0
    accepted: int = 0  # connections
    port: int = 0
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> "OpenAIServer":
        self._left = deque(self.script)
        self._connections: set[asyncio.Task[None]] = set()
        self.disconnected = asyncio.Event()
        self.arrived = asyncio.Event()
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        # CPython loses a socket accepted just before its server closes, so stop accepting first.
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(5):  # loop iterations from an accepted socket to its handler
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def play(self, *script: Behaviour) -> None:
        """Answer the next requests with these behaviours."""
        self._left = deque(script)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [exchange.body for exchange in self.requests]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def end(task: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            writer.close()  # a task cancelled before its first step runs no `finally`

        self.accepted += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(end)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (exchange := await self._read(reader, writer)) is not None:
                await self._answer(exchange)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the caller has disconnected, or the test is over

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        try:
            body = json.loads(data) if data else None
        except ValueError:  # bodies that are not JSON are passed on, too
            body = {}
        return Exchange(method, path, headers, body, self, reader, writer, data)

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            self.gets.append(exchange.path)
            await self._get(exchange)
            return
        self.requests.append(exchange)
        self.arrived.set()
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            await (self._left.popleft() if self._left else self.default)(exchange)
        finally:
            self.active -= 1

    async def _get(self, exchange: Exchange) -> None:
        if exchange.path == "/health":
            await exchange.send(self.health, {})
        elif exchange.path == "/v1/models":
            await exchange.send(200, {"data": [{"id": name, "owned_by": "vllm"} for name in self.models]})
        else:
            await exchange.send(404, {"detail": "Not Found"})


@contextmanager
def serving_in_thread(server: OpenAIServer) -> Iterator[OpenAIServer]:
    """Run the server on its own event loop, for tests with a client that blocks or forks."""
    up, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def main() -> None:
        async with server:
            up.set()
            await stop.wait()
        # A new connection may still be being accepted; then it gets a task.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # closed sockets are released in the loop's next iteration

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert up.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
