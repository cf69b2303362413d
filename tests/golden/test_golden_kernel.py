"""The kernel on recorded data: contradictions, and maps fitted with it."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.contradictions import PAIRS, WEIGHTS, embedded, kernel_of, probabilities, read_pairs
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.fit import fit_evidence
from tools.recorded_rows import JudgedRows

pytestmark = pytest.mark.weights


def right_above_wrong(path: Path, kernel: Kernel) -> dict[str, int]:
    if not WEIGHTS.exists():
        pytest.skip("the weights all-MiniLM-L6-v2 are not here")
    pairs = read_pairs(path)
    vectors = embedded(pairs)
    counts = dict[str, int]()
    for pair in pairs:
        right, wrong = probabilities(kernel_of(pair, kernel, vectors))
        kind = pair.get("kind", "all")
        counts[kind] = counts.get(kind, 0) + (right > wrong)
    return counts


def test_contradictions_of_five_kinds() -> None:
    facts = right_above_wrong(PAIRS, FACTS)
    assert {kind: facts[kind] for kind in ("number", "unit", "name", "negation")} == {
        "number": 12,
        "unit": 11,
        "name": 12,
        "negation": 11,
    }
    assert sum(right_above_wrong(PAIRS, PAPER).values()) == 3


def test_contradictions_of_the_method(shared_data: Path) -> None:
    path = shared_data / "contradictions.jsonl"
    assert right_above_wrong(path, FACTS) == {"all": 13}
    assert right_above_wrong(path, PAPER) == {"all": 1}


@pytest.mark.mpnet
def test_maps_fitted_on_few_rows(shared_data: Path) -> None:
    """Fits on the first rows only, with three answers."""
    rows = JudgedRows(["triviaqa_dev_smollm2_m40"], shared_data, WEIGHTS.parent, 20, FACTS).rows.at(3).rows
    expected = {10: (0.2995, -0.187, 0.7471), 30: (0.2869, 0.3041, 0.7564), 300: (0.5392, 0.5084, 0.5753)}
    for n, numbers in expected.items():
        fitted = fit_evidence(rows.take(np.arange(n))).map
        assert (fitted.temperature, fitted.intercept, fitted.slope) == pytest.approx(numbers, abs=2e-3)
