"""Both clients with one interface, and the real application on a real socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.both_clients import Driver, awaited, waiting
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving_app
from tests.support.sqlite_store import SqliteStore


@pytest.fixture(params=[waiting, awaited], ids=["Client", "AsyncClient"])
def drive(request: pytest.FixtureRequest) -> Driver:
    """Return a factory of clients of either kind with the same interface."""
    param: Driver = request.param
    return param


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM()


@pytest.fixture
def url(llm: FakeLLM, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of the real application, with an in-memory LLM and embedder."""
    with serving_app(tmp_path, llm=llm, embedder=FakeEmbedder(64), store=SqliteStore()) as result:
        yield result
