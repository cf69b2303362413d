"""Answers that the embedder cannot distinguish."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from service.embedding.local import SentenceTransformerEmbedder
from service.llm.weights import MINILM, find
from service.scoring.judging import num_indistinct
from service.scoring.score import Score, ScoreCommand
from service.scoring.scorer import Scorer
from tests.support.calibrations import Active
from tests.support.fakes import FakeLLM

WEIGHTS = Path(
    os.environ.get("EIGENCAL_TEST_WEIGHTS_DIR", Path(__file__).resolve().parents[3] / "data/weights")
)
SAME, OTHER = [1.0, 0.0], [0.0, 1.0]


def count(*pairs: tuple[str, list[float]]) -> int:
    texts, vectors = zip(*pairs, strict=True)
    return num_indistinct(texts, np.array(vectors, dtype=np.float32))


def test_different_texts_with_one_vector_are_counted() -> None:
    assert count(("👍", SAME), ("👎", SAME), ("Paris", OTHER)) == 2
    assert count(("yes", SAME), ("no", OTHER)) == 0


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
            return await Scorer(FakeLLM(), embedder, Active()).score(ScoreCommand(samples=samples))
        finally:
            await embedder.stop()

    score = asyncio.run(scored())
    assert ("indistinct_answers" in [warning.code for warning in score.warnings]) == warned
    if warned:
        assert score.uncalibrated.lambda_max == pytest.approx(1.0)
