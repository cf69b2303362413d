"""/readyz without a key: only one check at a time reaches the embedding and LLM servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest
from fastapi import Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from service.app import create_app
from service.llm import client as llm_client
from service.llm.connection import CHECK_KEPT_S
from service.settings import Settings
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.live import served
from tests.support.openai_server import Exchange, OpenAIServer
from tests.support.sqlite_store import SqliteStore


class HeldLLM(OpenAIServer):
    """Reports its health once the gate of the embeddings server is open."""

    gate: asyncio.Event

    async def _get(self, exchange: Exchange) -> None:
        await self.gate.wait()
        await super()._get(exchange)


@dataclass
class World:
    http: httpx.AsyncClient
    embeddings: EmbeddingsServer
    llm: OpenAIServer
    came: list[str]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    # A check takes as long as the test blocks it.
    monkeypatch.setattr(llm_client, "CHECK_TIMEOUT_S", 600.0)
    checks = list[str]()
    async with EmbeddingsServer() as embeddings, HeldLLM() as llm, AsyncExitStack() as stack:
        llm.gate = embeddings.gate
        port = await stack.enter_async_context(app(tmp_path, embeddings, llm, checks))
        limits = httpx.Limits(max_connections=None)
        await asyncio.sleep(CHECK_KEPT_S + 0.1)  # the results of the checks at the start are valid this long
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60, trust_env=False
        ) as http:
            yield World(http, embeddings, llm, checks)


@asynccontextmanager
async def app(
    folder: Path, embeddings: EmbeddingsServer, llm: OpenAIServer, came: list[str]
) -> AsyncIterator[int]:
    settings = Settings(
        data_dir=folder,
        llm_url=llm.url,
        embedder_url=embeddings.url,
        embedder="asked",
    )
    made = create_app(settings, store=SqliteStore())

    @made.middleware("http")
    async def note(request: Request, call_next: RequestResponseEndpoint) -> Response:
        came.append(request.url.path)
        return await call_next(request)

    async with served(made) as port:
        yield port


async def test_two_hundred_callers_share_one_check(world: World) -> None:
    before, health = len(world.embeddings.requests), len(world.llm.gets)
    world.embeddings.gate.clear()
    calls = [asyncio.ensure_future(world.http.get("/readyz")) for _ in range(200)]
    async with asyncio.timeout(60):
        while len(world.came) < 200:
            await asyncio.sleep(0.01)
    world.embeddings.gate.set()
    assert {response.status_code for response in await asyncio.gather(*calls)} == {200}
    assert len(world.embeddings.requests) - before == 1
    assert len(world.llm.gets) - health <= 3


async def test_callers_that_leave_do_not_block_later_checks(world: World) -> None:
    """Regression: each cancelled check left a connection behind, until the pool was empty."""
    world.embeddings.gate.clear()
    before = len(world.embeddings.requests)

    async def leaves() -> None:
        with pytest.raises(httpx.ReadTimeout):
            await world.http.get("/readyz", timeout=httpx.Timeout(60, read=0.3))

    for _ in range(3):
        await asyncio.gather(*(leaves() for _ in range(60)))
    assert len(world.embeddings.requests) - before == 1
    assert world.embeddings.most_active == 1
    world.embeddings.gate.set()
    answer = await world.http.post("/score", json={"samples": ["a", "b"]})
    assert answer.status_code == 200
    assert (await world.http.get("/readyz")).status_code == 200
