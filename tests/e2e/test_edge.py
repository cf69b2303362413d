"""The composition's Caddyfile, by a real Caddy before the drop-in: slow heads, streams, hang-ups."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import free_port
from tests.support.drop_in import DropIn, drop_in
from tests.support.openai_server import OpenAIServer, answers, draws_and, hang, pieces

pytestmark = [pytest.mark.anyio, pytest.mark.caddy]
CADDYFILE = Path(__file__).parents[2] / "docker" / "Caddyfile"
FIRST = b'data: {"choices":[{"index":0,"delta":{"content":"Par"}}]}\n\n'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def edge() -> AsyncIterator[tuple[int, DropIn]]:
    """Yield Caddy's port, and the service behind it, before a server that never ends its stream."""
    own, port = pieces(FIRST, then=hang), free_port()
    async with OpenAIServer(default=draws_and(own, answers("Paris"))) as server, drop_in(server) as made:
        host, _, upstream_port = made.http.base_url.netloc.decode().partition(":")
        named = {"SITE": f"http://127.0.0.1:{port}", "UPSTREAM": host, "UPSTREAM_PORT": upstream_port}
        command = ["caddy", "run", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
        caddy = await asyncio.create_subprocess_exec(
            *command, env=os.environ | named, stderr=subprocess.DEVNULL
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http, asyncio.timeout(60):
                status = 0
                while status != 200:
                    with suppress(httpx.TransportError):
                        status = (await http.get("/healthz")).status_code
                    await asyncio.sleep(0.05)
            yield port, made
        finally:
            caddy.terminate()
            await caddy.wait()


async def test_a_stream_goes_on_as_it_comes() -> None:
    body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
    async with edge() as (port, made), asyncio.timeout(60):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        async with httpx.AsyncClient() as http, http.stream("POST", url, json=body) as reply:
            first = await anext(reply.aiter_bytes())
        assert first == FIRST
        await made.at_rest()  # the caller's going reaches the LLM server


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with edge() as (port, _), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        with suppress(ConnectionError):
            await reader.read()  # until Caddy closes
        writer.close()
