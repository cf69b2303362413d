"""Answers that the embedder cannot distinguish."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from service.claims.kernel import kernel_of, read_texts
from service.embedding.local import SentenceTransformerEmbedder
from service.embedding.port import PAPER
from service.llm.weights import MINILM, find
from service.scoring.observation import indistinct_texts
from service.scoring.score import Score, ScoreCommand, Target
from service.scoring.scorer import Scorer
from tests.support.calibrations import Active
from tests.support.fakes import FakeLLM

WEIGHTS = Path(
    os.environ.get("EIGENCAL_TEST_WEIGHTS_DIR", Path(__file__).resolve().parents[3] / "data/weights")
)
SAME, OTHER = [1.0, 0.0], [0.0, 1.0]


def indistinct(*pairs: tuple[str, list[float]]) -> frozenset[str]:
    texts, vectors = zip(*pairs, strict=True)
    kernel = kernel_of(read_texts(texts, kernel=PAPER), np.array(vectors, dtype=np.float32))
    return indistinct_texts(texts, texts, kernel)


def test_different_texts_with_one_vector_are_indistinct() -> None:
    assert indistinct(("👍", SAME), ("👎", SAME), ("Paris", OTHER)) == {"👍", "👎"}
    assert indistinct(("yes", SAME), ("no", OTHER)) == frozenset()
    assert indistinct(("Paris", SAME), ("paris!", SAME)) == frozenset()
    hidden = "Paris" + "".join(chr(0xE0000 + ord(letter)) for letter in "Lyon")  # invisible
    assert indistinct(("Paris", SAME), (hidden, SAME)) == {"Paris", hidden}


@pytest.mark.weights
@pytest.mark.parametrize(
    ("samples", "warned"),
    [
        (("👍", "👎"), True),
        (("the same beginning " * 200 + "yes", "the same beginning " * 200 + "no"), True),
        (tuple(map(chr, range(0x13000, 0x13014))), True),
        (("Paris", "paris", "PARIS"), False),
        (("Paris", "Rome", "the capital is Rome"), False),
    ],
    ids=["emoji", "long beginnings", "hieroglyphs", "case", "words"],
)
def test_a_real_embedder_and_the_warning(samples: tuple[str, ...], warned: bool) -> None:
    if find(MINILM, WEIGHTS) is None:
        pytest.skip(f"no {MINILM}: python -m service weights fetch {MINILM}")

    async def scored() -> Score:
        embedder = SentenceTransformerEmbedder(MINILM, cache_dir=WEIGHTS)
        await embedder.start()
        try:
            return await Scorer(FakeLLM(), embedder, Active()).score(
                ScoreCommand(len(samples), samples=samples, target=Target(0.2, 0.9))
            )
        finally:
            await embedder.stop()

    score = asyncio.run(scored())
    assert ("indistinct_answers" in [warning.code for warning in score.warnings]) == warned
    if warned:
        assert score.uncalibrated.lambda_max == pytest.approx(1.0)
        assert score.decision is not None
        assert score.decision.action == "abstain"
