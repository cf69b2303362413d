"""P(correct) on the recorded sets with the kernel `facts` (method, section 8).

Qwen's own self-checks are recorded. The maps and models are fitted on one set and tested on another.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recorded_evidence import DEV, EVERYDAY, OTHER, P_TRUE, QWEN, TEST, known_for, recorded
from benchmarks.self_check import columns, recorded_p_true
from service.spectral.correctness_model import (
    AGREEMENT,
    SELF_CHECK,
    Columns,
    base_rate,
    fit_model,
    log_loss,
)
from service.spectral.reliability import auroc, reliability_diagram

pytestmark = [pytest.mark.shared, pytest.mark.mpnet]
BOTH = (AGREEMENT, SELF_CHECK)
DRAWS = 50


@pytest.fixture(scope="module", autouse=True)
def recorded_data(shared_data: Path) -> None:
    """Skip the test without the data."""
    assert (shared_data / f"{QWEN}.jsonl").exists()


def at(columns_: Columns, chosen: np.ndarray) -> Columns:
    return {name: np.asarray(column)[chosen] for name, column in columns_.items()}


@pytest.mark.parametrize(
    ("fitted", "m", "by_agreement", "with_checks", "ece"),
    [
        (QWEN, 0, 0.464, 0.220, 0.049),
        (QWEN, 3, 0.378, 0.202, 0.041),
        (QWEN, 10, 0.347, 0.195, 0.042),
        (EVERYDAY, 0, 0.630, 0.507, 0.123),
        (EVERYDAY, 3, 0.562, 0.476, 0.092),
        (EVERYDAY, 10, 0.553, 0.473, 0.078),
    ],
)
def test_p_correct_transfers_with_self_checks(
    fitted: str, m: int, by_agreement: float, with_checks: float, ece: float
) -> None:
    """From hard questions (a quarter right) to easy ones (nine in ten right), and back."""
    known, new = (
        columns(name, m, fitted, recorded_p_true(name), evidence=True) for name in (fitted, OTHER[fitted])
    )
    losses = dict[int, float]()
    for names in ((AGREEMENT,), BOTH):
        p = fit_model(*known, names).predict(new[0])
        losses[len(names)] = log_loss(p, new[1])
    assert losses == pytest.approx({1: by_agreement, 2: with_checks}, abs=5e-3)
    assert reliability_diagram(p, new[1].astype(float)).ece == pytest.approx(ece, abs=5e-3)
    assert auroc(p, new[1]) > 0.79


def features_of(name: str) -> tuple[Columns, np.ndarray]:
    """Return the features with three answers under the map of the other set of the same LLM."""
    if name in P_TRUE:
        return columns(name, 3, OTHER[name], recorded_p_true(name), evidence=True)
    map_, _ = known_for(name, 3)
    judged = recorded(name).material(3).judged
    return dict(judged.columns(map_)), judged.right


def by_verdicts(features: Columns, right: np.ndarray, verdicts: int) -> tuple[float, float]:
    """Return the mean log losses of the base rate and of P(correct) on the rows without a verdict."""
    losses = []
    names = [name for name in BOTH if name in features]
    for draw in range(DRAWS):
        order = np.random.default_rng([draw, verdicts]).permutation(right.size)
        chosen, rest = order[:verdicts], order[verdicts:]
        p = fit_model(at(features, chosen), right[chosen], names).predict(at(features, rest))
        rate = np.full(rest.size, base_rate(right[chosen]))
        losses.append([log_loss(item, right[rest]) for item in (rate, p)])
    base, ours = np.mean(losses, axis=0).tolist()
    return base, ours


@pytest.mark.parametrize("name", [DEV, TEST, QWEN, EVERYDAY])
def test_few_verdicts_with_three_answers_beat_the_base_rate(name: str) -> None:
    features, right = features_of(name)
    for verdicts in (10, 30, 100):
        base, ours = by_verdicts(features, right, verdicts)
        assert ours < base - 0.05
