"""Both clients behind one face, and the real application on a real socket for them to call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.both_clients import Driver, awaited, waiting
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.in_thread import serving_app
from tests.support.sqlite_store import SqliteStore


@pytest.fixture(params=[waiting, awaited], ids=["Client", "AsyncClient"])
def drive(request: pytest.FixtureRequest) -> Driver:
    """Return what makes a client of either kind, driven alike."""
    param: Driver = request.param
    return param


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM()


@pytest.fixture
def url(llm: FakeLLM, tmp_path: Path) -> Iterator[str]:
    """The real application, with an LLM and an embedder in memory, on a socket."""
    with serving_app(tmp_path, llm=llm, embedder=FakeEmbedder(64), store=SqliteStore()) as result:
        yield result
