"""The contract of the embedder port, for all embedders."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from service.embedding.http import HttpEmbedder
from service.embedding.local import SentenceTransformerEmbedder
from service.embedding.port import Embedder
from service.llm.weights import MINILM, find
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.fakes import FakeEmbedder

WEIGHTS = Path(
    os.environ.get("EIGENCAL_TEST_WEIGHTS_DIR", Path(__file__).resolve().parents[3] / "data/weights")
)


def fake() -> Embedder:
    return FakeEmbedder()


class Served(HttpEmbedder):
    """An HTTP embedder with its server."""

    def __init__(self) -> None:
        self.server = EmbeddingsServer()

    async def start(self) -> None:
        await self.server.__aenter__()
        super().__init__(self.server.url, "hashed")
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.server.__aexit__()


def minilm() -> Embedder:
    if find(MINILM, WEIGHTS) is None:
        pytest.skip(f"no {MINILM}: python -m service weights fetch {MINILM}")
    return SentenceTransformerEmbedder(MINILM, cache_dir=WEIGHTS)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", params=[fake, Served, pytest.param(minilm, marks=pytest.mark.weights)])
def embedder(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Embedder]:
    embedder = request.param()
    runner.run(embedder.start())
    yield embedder
    runner.run(embedder.stop())
    runner.run(embedder.stop())  # idempotent


class TestPort:
    def test_rows_follow_the_texts(self, embedder: Embedder, runner: asyncio.Runner) -> None:
        rows = runner.run(embedder.embed(["Oslo", "Bern", "Oslo"])).vectors
        back = runner.run(embedder.embed(["Bern", "Oslo"])).vectors
        np.testing.assert_allclose(rows[[1, 0, 2]], back[[0, 1, 1]], atol=1e-5)
        assert np.abs(rows[0] - rows[1]).max() > 0.01

    def test_vectors_do_not_depend_on_other_texts_of_the_call(
        self, embedder: Embedder, runner: asyncio.Runner
    ) -> None:
        alone = runner.run(embedder.embed(["Ankara is the capital."])).vectors
        texts = ["x", "Ankara is the capital.", "a much longer text " * 20]
        among = runner.run(embedder.embed(texts)).vectors
        np.testing.assert_allclose(among[1], alone[0], atol=1e-5)

    def test_no_texts_give_no_rows(self, embedder: Embedder, runner: asyncio.Runner) -> None:
        assert runner.run(embedder.embed([])).vectors.shape == (0, embedder.identity.dimension)

    def test_vectors_have_the_embedders_identity(self, embedder: Embedder, runner: asyncio.Runner) -> None:
        assert runner.run(embedder.embed(["Quito"])).made_by == embedder.identity
        assert runner.run(embedder.embed([])).made_by == embedder.identity

    def test_started_embedder_is_healthy_and_identified(
        self, embedder: Embedder, runner: asyncio.Runner
    ) -> None:
        runner.run(embedder.check())
        identity = embedder.identity
        assert identity == embedder.identity
        assert identity.name
        assert identity.revision
        assert identity.precision == "float32"
