"""The two Caddyfiles of the composition in a real Caddy, in front of the service and of the LLM servers."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import free_port
from tests.support.drop_in import DropIn, before, drop_in
from tests.support.openai_server import OpenAIServer, after, answers, drop, hang, pieces

pytestmark = pytest.mark.caddy
CONFIGS = Path(__file__).parents[2] / "docker"
FIRST = b'data: {"choices":[{"index":0,"delta":{"content":"Par"}}]}\n\n'


@asynccontextmanager
async def caddy(config: str, path: str, port: int, **environment: str) -> AsyncIterator[None]:
    """Run Caddy until the block ends; begin once the path answers."""
    command = ["caddy", "run", "--config", str(CONFIGS / config), "--adapter", "caddyfile"]
    running = await asyncio.create_subprocess_exec(
        *command, env=os.environ | environment, stderr=subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http, asyncio.timeout(60):
            status = 0
            while status != 200:
                with suppress(httpx.TransportError):
                    status = (await http.get(path)).status_code
                await asyncio.sleep(0.05)
        yield
    finally:
        running.terminate()
        await running.wait()


@asynccontextmanager
async def edge() -> AsyncIterator[tuple[int, DropIn]]:
    """Yield Caddy's port, and the service behind it, with an LLM server that never ends its stream."""
    own, port = pieces(FIRST, then=hang), free_port()
    async with before(own) as made:
        host, _, upstream_port = made.http.base_url.netloc.decode().partition(":")
        named = {"SITE": f"http://127.0.0.1:{port}", "UPSTREAM": host, "UPSTREAM_PORT": upstream_port}
        async with caddy("Caddyfile", "/healthz", port, **named):
            yield port, made


async def test_stream_is_forwarded_unbuffered() -> None:
    body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
    async with edge() as (port, made), asyncio.timeout(60):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        async with httpx.AsyncClient() as http, http.stream("POST", url, json=body) as reply:
            first = await anext(reply.aiter_bytes())
        assert first == FIRST
        await made.at_rest()  # the disconnect reaches the LLM server


async def test_dead_replica_gives_a_problem_document() -> None:
    port = free_port()
    async with OpenAIServer(default=drop) as dying:
        named = {
            "SITE": f"http://127.0.0.1:{port}",
            "UPSTREAM": "127.0.0.1",
            "UPSTREAM_PORT": str(dying.port),
        }
        async with caddy("Caddyfile", "/health", port, **named):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                problem = await http.post("/score", json={"prompt": "?"})
                chat = await http.post("/v1/chat/completions", json={"messages": []})
    assert problem.headers["content-type"] == "application/problem+json"
    assert int(problem.headers["retry-after"]) > 0
    body = problem.json()
    assert (problem.status_code, body["status"], body["code"]) == (502, 502, "no_replica")
    assert body["retryable"] is True
    assert chat.status_code == 502
    assert chat.json()["error"].items() >= {"type": "server_error", "code": "no_replica"}.items()


async def test_no_call_hits_a_closing_idle_connection() -> None:
    """A replica closes idle connections after 5 s, and calls that arrive at that moment are not answered."""

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await reader.read(1)  # as if the connection were closed when the next call arrives
        writer.close()

    port = free_port()
    async with await asyncio.start_server(answer_once, "127.0.0.1") as replica:
        upstream_port = str(replica.sockets[0].getsockname()[1])
        named = {"SITE": f"http://127.0.0.1:{port}", "UPSTREAM": "127.0.0.1", "UPSTREAM_PORT": upstream_port}
        async with caddy("Caddyfile", "/healthz", port, **named):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                for _ in range(2):
                    await asyncio.sleep(4.5)
                    assert (await http.post("/score")).status_code == 200


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with edge() as (port, _), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        with suppress(ConnectionError):
            await reader.read()  # until Caddy closes
        writer.close()


@asynccontextmanager
async def load(made: DropIn) -> AsyncIterator[list[int]]:
    """Let a few callers score until the block ends; yield the statuses of the responses."""
    statuses: list[int] = []

    async def caller(number: int) -> None:
        while True:
            body = {"prompt": f"question {number}", "num_samples": 2}
            statuses.append((await made.http.post("/score", json=body)).status_code)

    callers = [asyncio.create_task(caller(number)) for number in range(6)]
    try:
        yield statuses
    finally:
        for caller_ in callers:
            caller_.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_one_of_two_llm_servers_fails_and_recovers() -> None:
    slow, port = after(0.05, answers("Paris")), free_port()
    first, second = (OpenAIServer(default=slow, port=free_port()) for _ in range(2))
    named = {
        "LLM_SERVERS": f"127.0.0.1:{first.port} 127.0.0.1:{second.port}",
        "LLM_HEALTH": "/health",
        "LLM_PORT": str(port),
    }
    async with second, caddy("router.Caddyfile", "/v1/models", port, **named):
        async with drop_in(second, llm_url=f"http://127.0.0.1:{port}/v1") as made, load(made) as statuses:
            async with first:
                await until(lambda: bool(first.requests and second.requests))
            seen, num_requests = len(statuses), len(first.requests)
            await until(lambda: len(statuses) > seen + 30)
            async with first:
                await until(lambda: len(first.requests) > num_requests)
    assert set(statuses) == {200}, "what was under way at the one is asked again of the other"
