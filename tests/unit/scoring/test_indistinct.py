"""Answers that the embedder cannot distinguish."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from service.claims.kernel import kernel_of
from service.embedding.local import SentenceTransformerEmbedder
from service.embedding.port import PAPER
from service.llm.samples import Draw
from service.llm.weights import MINILM, find
from service.scoring.observation import indistinct_answers, observe
from service.scoring.score import Score, ScoreCommand
from service.scoring.scorer import Scorer
from tests.support.calibrations import Active
from tests.support.fakes import FakeLLM

WEIGHTS = Path(
    os.environ.get("EIGENCAL_TEST_WEIGHTS_DIR", Path(__file__).resolve().parents[3] / "data/weights")
)
SAME, OTHER = [1.0, 0.0], [0.0, 1.0]


def messages(*pairs: tuple[str, list[float]], candidate: bool = False) -> list[str]:
    texts, vectors = zip(*pairs, strict=True)
    count = len(texts) - candidate
    seen = observe(
        [Draw(text) for text in texts[:count]],
        np.arange(count),
        texts[:count],
        texts[-1] if candidate else None,
        kernel_of(texts, texts, np.array(vectors, dtype=np.float32), PAPER),
        2,
        None,
    )
    return [warning.message for warning in indistinct_answers(seen, texts)]


def test_different_texts_with_one_vector_are_counted() -> None:
    [message] = messages(("👍", SAME), ("👎", SAME), ("Paris", OTHER))
    assert "2 of the 3 distinct answers" in message
    assert messages(("yes", SAME), ("no", OTHER)) == []
    [message] = messages(("👍", SAME), ("Paris", OTHER), ("👎", SAME), candidate=True)
    assert "the candidate" in message


@pytest.mark.weights
@pytest.mark.parametrize(
    ("samples", "warned"),
    [
        (("👍", "👎"), True),
        (("the same beginning " * 200 + "yes", "the same beginning " * 200 + "no"), True),
        (("Paris", "paris", "PARIS"), False),
        (("Paris", "Rome", "the capital is Rome"), False),
    ],
    ids=["emoji", "long beginnings", "case", "words"],
)
def test_a_real_embedder_and_the_warning(samples: tuple[str, ...], warned: bool) -> None:
    if find(MINILM, WEIGHTS) is None:
        pytest.skip(f"no {MINILM}: python -m service weights fetch {MINILM}")

    async def scored() -> Score:
        embedder = SentenceTransformerEmbedder(MINILM, cache_dir=WEIGHTS)
        await embedder.start()
        try:
            return await Scorer(FakeLLM(), embedder, Active()).score(
                ScoreCommand(len(samples), samples=samples)
            )
        finally:
            await embedder.stop()

    score = asyncio.run(scored())
    assert ("indistinct_answers" in [warning.code for warning in score.warnings]) == warned
    if warned:
        assert score.uncalibrated.lambda_max == pytest.approx(1.0)
