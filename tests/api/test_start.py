"""A start that fails says why in one line; an error of our own making keeps its traceback."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.app import build_embedder, create_app, own_keys, serving_of
from service.errors import StoreUnavailable
from service.llm.weights import WeightsError
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore


async def said(tmp_path: Path, error: Exception) -> str:
    """Return what the server is told when a part fails to start."""

    class Broken(SqliteStore):
        async def start(self) -> None:
            raise error

    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=FakeEmbedder(), store=Broken())
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with pytest.raises(type(error)):
        await app({"type": "lifespan", "state": {}}, receive, send)
    assert [message["type"] for message in messages] == ["lifespan.startup.failed"]
    return str(messages[0]["message"])


@pytest.mark.parametrize(
    "error", [WeightsError("no\n weights"), StoreUnavailable("no weights"), OSError("no weights")]
)
def test_an_error_for_the_operator_is_one_line(tmp_path: Path, error: Exception) -> None:
    assert asyncio.run(said(tmp_path, error)) == "Cannot start: no weights"


def test_the_own_set_up_is_unknown_until_the_embedder_has_told_its_identity(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, embedder_url="http://127.0.0.1:9")
    embedder = build_embedder(settings)
    assert own_keys(serving_of(settings), FakeLLM(), embedder) == ()
    assert len(own_keys(serving_of(settings), FakeLLM(), FakeEmbedder())) == 2


def test_any_other_error_keeps_its_traceback(tmp_path: Path) -> None:
    assert "Traceback" in asyncio.run(said(tmp_path, RuntimeError("a bug")))
