"""The kernel on recorded data: contradictions, and maps fitted with it."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from benchmarks.contradictions import PAIRS, WEIGHTS, embedded, pair_kernel, probabilities, read_pairs
from service.claims.kernel import kernel_of, read_texts
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.fit import fit_evidence
from tools.recorded_rows import JudgedRows

pytestmark = pytest.mark.weights
ANSWERS = Path(__file__).parents[1] / "unit/claims/pairs.toml"


def right_above_wrong(path: Path, kernel: Kernel) -> dict[str, int]:
    if not WEIGHTS.exists():
        pytest.skip("the weights all-MiniLM-L6-v2 are not here")
    pairs = read_pairs(path)
    vectors = embedded(pairs)
    counts = dict[str, int]()
    for pair in pairs:
        right, wrong = probabilities(pair_kernel(pair, kernel, vectors))
        kind = pair.get("kind", "all")
        counts[kind] = counts.get(kind, 0) + (right > wrong)
    return counts


def test_contradictions_of_five_kinds() -> None:
    facts = right_above_wrong(PAIRS, FACTS)
    assert {kind: facts[kind] for kind in ("number", "unit", "name", "negation")} == {
        "number": 12,
        "unit": 10,
        "name": 12,
        "negation": 11,
    }
    assert sum(right_above_wrong(PAIRS, PAPER).values()) == 3


def test_contradictions_of_the_method(shared_data: Path) -> None:
    path = shared_data / "contradictions.jsonl"
    assert right_above_wrong(path, FACTS) == {"all": 13}
    assert right_above_wrong(path, PAPER) == {"all": 1}


# Pairs of answers that the kernel gets wrong, by one of the two, and why.
NOT_YET = {
    "a - b": "a sign without numbers is only embedded",
    "1500 g": "values are embedded in their own units",
    "It is safe.": "of No problem, it is safe. the words that negate nothing are embedded",
    "You can't log in because your account is locked.": "half of a contraction is embedded",
    "> 5": "a sign is embedded as another word than more than",
    "5:30": "half past five is not read",
}
FAR, NEAR = 0.6, 0.75


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    if not WEIGHTS.exists():
        pytest.skip("the weights all-MiniLM-L6-v2 are not here")
    return SentenceTransformer(str(WEIGHTS))


@pytest.mark.parametrize("kind", ["different_answers", "same_answers"])
def test_pairs_of_answers(model: SentenceTransformer, kind: str) -> None:
    pairs = tomllib.loads(ANSWERS.read_text("utf-8"))[kind]
    wrong = set[str]()
    for question, first, second in pairs:
        reading = read_texts([first, second], question)
        value = kernel_of(reading, model.encode(reading.compared))[0, 1]
        if value > FAR if kind == "different_answers" else value < NEAR:
            wrong.add(second)
    assert wrong == {second for _, _, second in pairs if second in NOT_YET}


@pytest.mark.mpnet
def test_maps_fitted_on_few_rows(shared_data: Path) -> None:
    """Fits on the first rows only, with three answers."""
    rows = JudgedRows(["triviaqa_dev_smollm2_m40"], shared_data, WEIGHTS.parent, 20, FACTS).rows.at(3).rows
    expected = {10: (0.2997, -0.187, 0.7474), 30: (0.2831, 0.2898, 0.755), 300: (0.5305, 0.5086, 0.5798)}
    for n, numbers in expected.items():
        fitted = fit_evidence(rows.take(np.arange(n))).map
        assert (fitted.temperature, fitted.intercept, fitted.slope) == pytest.approx(numbers, abs=2e-3)
