"""A real HTTP server around an application, in this event loop."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.server import http_options
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore


def fake_app(llm: Any = None, embedder: FakeEmbedder | None = None, **settings: Any) -> FastAPI:
    """Return an application with fakes and an own store; its LLM answers `FakeLLM`'s default."""
    parts = {"llm": llm or FakeLLM(), "embedder": embedder or FakeEmbedder(), "store": SqliteStore()}
    return create_app(Settings(**settings), **parts)


async def posted(
    port: int | None, path: str, body: Any, headers: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request with a JSON body over a raw connection, and leave its response unread."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return reader, writer


@asynccontextmanager
async def served(app: FastAPI, **options: Any) -> AsyncIterator[int]:
    """Serve on a free loopback port with the service's options; yield the port."""
    async with listening(app, **options) as server:
        yield server.servers[0].sockets[0].getsockname()[1]


@asynccontextmanager
async def on_socket(app: FastAPI, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve on a free loopback port, and yield a client; `options` are the client's."""
    async with served(app) as port:
        # Without TLS: reading the machine's certificates would take 20 ms.
        options = {"base_url": f"http://127.0.0.1:{port}", "timeout": 60, "verify": False} | options
        async with httpx.AsyncClient(**options) as http:
            yield http


@asynccontextmanager
async def in_process(app: FastAPI, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Start the application, and yield a client without a socket; `options` are the transport's."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, **options)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as http:
            yield http


@asynccontextmanager
async def listening(app: FastAPI, **options: Any) -> AsyncIterator[uvicorn.Server]:
    """Serve the application as `served` does, and yield the uvicorn server."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", **http_options() | options)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # the test runner handles signals
    over = asyncio.Event()

    async def until_over() -> None:  # uvicorn's own loop polls ten times a second
        await server.on_tick(0)
        await over.wait()

    server.main_loop = until_over
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.01)
        yield server
    finally:
        over.set()
        await task
