"""An application with fakes, and a client that talks to it in process."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.operator_world import World
from tests.support.sqlite_store import SqliteStore

Client = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM()


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(64)


@pytest.fixture
def client(llm: FakeLLM, embedder: FakeEmbedder, tmp_path: Any) -> Client:
    """Return a factory of clients; its arguments are settings."""
    return client_of(llm, embedder, tmp_path)


def client_of(llm: FakeLLM, embedder: FakeEmbedder, folder: Path) -> Client:
    """Return a client with another LLM."""

    @asynccontextmanager
    async def make(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        store = SqliteStore()
        store.calibrations = settings.pop("calibrations", store.calibrations)
        # Calls of /v1 reach no server, unless a test has one.
        made = Settings(data_dir=folder, **({"llm_url": "http://127.0.0.1:9/v1"} | settings))
        app = create_app(made, llm=llm, embedder=embedder, store=store)
        async with in_process(app) as http:
            yield http

    return make


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return an application of the operator's routes."""
    made = World()
    yield made
    await made.store.stop()
