"""Claims of composed answers tell right from wrong nearly as short answers do (method, section 14; MiniLM).

Sixty answers of three claims, five drawn: what `benchmarks.claims` shows of 233, small. The figures are this
code's own, on the recorded answers.
"""

from pathlib import Path

import pytest

from benchmarks.claims import Table, World, compose
from benchmarks.recorded_evidence import WEIGHTS
from service.calibration.labels import Judged
from service.spectral.born import born_probabilities
from service.spectral.correctness import auroc
from service.spectral.dev_set import served_lambda_max
from service.spectral.maps import Identity

pytestmark = [pytest.mark.shared, pytest.mark.weights]
MINILM, ANSWERS = "all-MiniLM-L6-v2", 60
RAW = Identity()


@pytest.fixture(scope="module")
def world(shared_data: Path) -> World:
    assert shared_data.is_dir()
    if not (WEIGHTS / MINILM).exists():
        pytest.skip(f"the weights {MINILM} are not here")
    return World(compose(5, seed=4151)[:ANSWERS], Table(MINILM))


def figures(rows: Judged) -> tuple[float, float, float]:
    """AUROC of lambda_max and of p(y), and the mean of lambda_max."""
    top, p = served_lambda_max(RAW, rows.rows), born_probabilities(RAW, rows.texts)
    return auroc(top, rows.right), auroc(p, rows.right), float(top.mean())


def test_figures_of_the_recorded_answers(world: World) -> None:
    assert (world.right.size, world.right.sum()) == (180, 25)
    assert figures(world.short()) == pytest.approx((0.588, 0.606, 0.660), abs=0.005)
    assert figures(world.matched(copies=1)) == pytest.approx((0.618, 0.621, 0.929), abs=0.005)
    assert figures(world.matched(copies=16)) == pytest.approx((0.596, 0.600, 0.583), abs=0.005)
    assert auroc(world.best_cosines(), world.right) == pytest.approx(0.623, abs=0.005)


def test_no_sentence_is_taken_for_one_on_another_question(world: World) -> None:
    assert all(units.speak().all() for units in world.units)
