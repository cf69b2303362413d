"""A real HTTP server around an application, in this event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.server import http_options


@asynccontextmanager
async def served(app: FastAPI, **options: Any) -> AsyncIterator[int]:
    """Serve on a free loopback port with the service's options; yield the port."""
    async with listening(app, **options) as server:
        yield server.servers[0].sockets[0].getsockname()[1]


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
