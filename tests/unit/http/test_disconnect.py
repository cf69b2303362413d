"""A request ends with its caller, and what it holds is released in any case."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import httpx2 as httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response

from service.http.door import CancelOnDisconnect, StreamingBody
from tests.support.live import posted, served


class Stream:
    """An application that sends one piece, and another one when `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.closed = asyncio.Event()
        self.app = FastAPI()
        self.app.post("/", response_model=None)(self.post)
        self.app.add_middleware(CancelOnDisconnect)

    async def post(self) -> Response:
        ending = AsyncExitStack()
        ending.push_async_callback(self.close)
        return StreamingBody(200, {"content-type": "text/plain"}, self.pieces(), ending)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        yield b"begun "
        await self.gate.wait()
        yield b"ended"

    async def close(self) -> None:
        await asyncio.sleep(0.05)  # uvicorn reports a disconnect as soon as the response is complete
        self.closed.set()


async def test_cleanup_after_a_complete_response_is_not_interrupted() -> None:
    stream = Stream()
    stream.gate.set()
    async with served(stream.app) as port, httpx.AsyncClient() as http, asyncio.timeout(60):
        response = await http.post(f"http://127.0.0.1:{port}/", json={})
        await stream.closed.wait()
    assert response.text == "begun ended"


@pytest.mark.parametrize("has_read", [True, False])
async def test_a_stream_ends_and_cleans_up_when_its_caller_leaves(has_read: bool) -> None:
    stream = Stream()
    async with served(stream.app, timeout_graceful_shutdown=1) as port, asyncio.timeout(20):
        reader, writer = await posted(port, "/", {})
        if has_read:
            await reader.readuntil(b"begun")
        writer.close()
        await stream.closed.wait()
    assert not stream.gate.is_set()
