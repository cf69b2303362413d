"""An embeddings server that is swapped under way: no call and no cache holds vectors of two models."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from service.embedding.http import HttpEmbedder
from service.errors import EmbedderUnavailable
from service.scoring.score import ScoreCommand
from service.scoring.scorer import Scorer
from tests.support.embeddings_server import EmbeddingsServer, vector
from tests.support.fakes import FakeLLM

TEXTS = [f"answer {i}" for i in range(8)]
Scenario = Callable[[EmbeddingsServer, HttpEmbedder], Awaitable[None]]


def played(scenario: Scenario, **options: object) -> None:
    async def main() -> None:
        async with EmbeddingsServer() as server:
            embedder = HttpEmbedder(server.url, "asked", max_batch=3, **options)
            await embedder.start()
            try:
                await asyncio.wait_for(scenario(server, embedder), 60)
            finally:
                await embedder.stop()

    asyncio.run(main())


def swap_at(server: EmbeddingsServer, number: int, reports: str) -> None:
    def swap(now: int) -> None:
        if now == number:
            server.weights, server.reports = "B", reports

    server.before_answer = swap


def made_by(weights: str, texts: list[str]) -> np.ndarray:
    rows = np.array([vector(weights, text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("reports", ["another", "model"], ids=["another-name", "same-name"])
def test_a_call_between_whose_slices_the_model_is_swapped(reports: str) -> None:
    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        swap_at(server, len(server.requests) + 3, reports)
        found = await embedder.embed(TEXTS)
        np.testing.assert_allclose(found.vectors, made_by("B", TEXTS), atol=1e-6)
        assert found.made_by.revision == reports

    played(scenario)


@pytest.mark.parametrize("reports", ["another", "model"], ids=["another-name", "same-name"])
def test_calls_at_once_while_the_model_is_swapped(reports: str) -> None:
    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        swap_at(server, len(server.requests) + 7, reports)
        calls = [[f"{text} of call {i}" for text in TEXTS] for i in range(5)]
        found = await asyncio.gather(*map(embedder.embed, calls))
        # Again, with what is kept: the mix must not have stayed anywhere.
        found += [await embedder.embed([*call, "one more"]) for call in calls]
        for texts, one in zip([*calls, *([*call, "one more"] for call in calls)], found, strict=True):
            old, new = (np.abs(one.vectors - made_by(w, texts)).max() for w in ("A", "B"))
            assert min(old, new) < 1e-6, "vectors of two models in one call"
            assert one.made_by.revision == (reports if new < old else "model")

    played(scenario)


def test_kept_vectors_of_the_old_model_are_not_put_beside_new_ones() -> None:
    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        await embedder.embed(TEXTS[:4])
        server.weights = "B"  # under the same name
        found = await embedder.embed(TEXTS)
        np.testing.assert_allclose(found.vectors, made_by("B", TEXTS), atol=1e-6)

    played(scenario)


def test_two_models_by_turns_are_an_error() -> None:
    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        def turn(number: int) -> None:
            server.weights = "AB"[number % 2]

        server.before_answer = turn
        with pytest.raises(EmbedderUnavailable, match="two models by turns"):
            await embedder.embed(TEXTS)

    played(scenario)


def test_the_fingerprint_is_that_of_the_embedder_that_made_the_vectors() -> None:
    """The server is swapped, and the swap noticed by another call, after the score has its vectors."""

    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        asked = []

        class Calibrations:
            def active(self, key: str) -> None:
                asked.append(key)

            def any_active(self) -> list[object]:
                return []

        scorer = Scorer(FakeLLM(), embedder, Calibrations())
        command = ScoreCommand(samples=tuple(f"{i}" for i in range(70)))
        before = scorer.fingerprint(command).key()
        assert (await scorer.score(command)).embedder == "asked"

        spectrum = scorer._spectrum

        async def swapped_meanwhile(*args: object) -> object:
            server.reports = "another"
            await embedder.embed(["noticed"])
            return await spectrum(*args)

        scorer._spectrum = swapped_meanwhile
        await scorer.score(command)
        assert asked == [before, before]
        assert scorer.fingerprint(command).key() != before

    played(scenario)


def test_rounding_is_no_other_model() -> None:
    async def scenario(server: EmbeddingsServer, embedder: HttpEmbedder) -> None:
        await embedder.embed(TEXTS[:2])
        server.noise = 0.02
        await embedder.embed(TEXTS)
        count = len(server.requests)
        await embedder.embed(TEXTS)
        assert len(server.requests) == count

    played(scenario)
