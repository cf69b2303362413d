"""/readyz needs no key: however many ask, one check at a time reaches the embeddings server and the LLM's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from service.adapters.embedder import http as http_embedder
from service.app import create_app
from service.settings import Settings
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.live import served
from tests.support.memory_store import MemoryStore
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.anyio


@dataclass
class World:
    http: httpx.AsyncClient
    embeddings: EmbeddingsServer
    llm: OpenAIServer


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    # An answer a moment ago spares the check: not here.
    monkeypatch.setattr(http_embedder, "CHECK_HOLDS_S", -1.0)
    async with (
        EmbeddingsServer() as embeddings,
        OpenAIServer() as llm,
        app(tmp_path, embeddings, llm) as port,
    ):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60, trust_env=False
        ) as http:
            yield World(http, embeddings, llm)


@asynccontextmanager
async def app(folder: Path, embeddings: EmbeddingsServer, llm: OpenAIServer) -> AsyncIterator[int]:
    settings = Settings(
        data_dir=folder,
        llm_backend="vllm",
        llm_url=llm.url,
        embedder_url=embeddings.url,
        embedder="asked",
    )
    async with served(create_app(settings, store=MemoryStore())) as port:
        yield port


async def test_two_hundred_at_once_are_one_check(world: World) -> None:
    world.embeddings.delay_s = 0.5
    before, health = len(world.embeddings.requests), len(world.llm.gets)
    answers = await asyncio.gather(*(world.http.get("/readyz") for _ in range(200)))
    assert {one.status_code for one in answers} == {200}
    # One, or two where the last of them came in more than a second after the first check.
    assert len(world.embeddings.requests) - before <= 2
    assert len(world.llm.gets) - health <= 3


async def test_callers_that_leave_a_slow_server_wedge_nothing(world: World) -> None:
    """Each cancelled check once left a connection behind, until the pool had none to give."""
    world.embeddings.delay_s = 3.0
    before = len(world.embeddings.requests)

    async def leaves() -> None:
        with pytest.raises(httpx.ReadTimeout):
            await world.http.get("/readyz", timeout=httpx.Timeout(30, read=0.3))

    for _ in range(3):
        await asyncio.gather(*(leaves() for _ in range(60)))
    assert len(world.embeddings.requests) - before <= 2
    assert world.embeddings.most_active == 1
    world.embeddings.delay_s = 0.0
    answer = await world.http.post("/score", json={"samples": ["a", "b"]})
    assert answer.status_code == 200
    assert (await world.http.get("/readyz")).status_code == 200
