import math
from dataclasses import replace

import numpy as np
import pytest

from service.spectral.dev_set import risks
from service.spectral.evidence import MISSING_MASS_CLIP, EvidenceMap, logit_missing_mass, missing_mass
from tests.unit.spectral.worlds import random_dev_set


def test_a_score_by_hand() -> None:
    """Slope 1 and intercept 0 give g = u; one answer of rank 1 is then served 1 - u + u/d."""
    map_ = EvidenceMap(1.0, 0.0, 1.0)
    assert map_.at(0.3).depolarization == pytest.approx(0.3, abs=1e-12)
    assert map_.at(0.3).serve([1.0], 768).lambda_max == pytest.approx(0.7 + 0.3 / 768, abs=1e-12)
    half = EvidenceMap(1.0, math.log(3), 0.5).at(0.1)  # 3 * sqrt(1/9) = 1
    assert half.depolarization == pytest.approx(0.5, abs=1e-12)


def test_only_the_map_of_one_prompt_can_serve() -> None:
    map_ = EvidenceMap(0.8, -0.5, 0.4)
    served = map_.over([0.2]).serve([0.7, 0.3], 10)
    assert served.eigenvalues.tolist() == map_.at(0.2).serve([0.7, 0.3], 10).eigenvalues.tolist()
    assert map_.over(0.2).fitted([0.7, 0.3], 10).null_value == served.null_value
    with pytest.raises(ValueError, match="another number"):
        map_.over([0.2, 0.3]).serve([0.7, 0.3], 10)
    with pytest.raises(ValueError, match="another number"):
        risks(map_.over([0.2, 0.3]), random_dev_set(0))
    with pytest.raises(ValueError, match="needs a log-probability"):
        risks(map_, random_dev_set(0))


@pytest.mark.parametrize(
    "parameters",
    [(0.0, 0.0, 0.0), (math.nan, 0.0, 0.0), (1.0, 12.1, 0.0), (1.0, math.nan, 0.0), (1.0, 0.0, -1e-9)],
)
def test_parameters_out_of_their_bounds_are_refused(parameters: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        EvidenceMap(*parameters)


def test_dev_set_needs_a_mass_for_every_prompt() -> None:
    dev = random_dev_set(0)
    with pytest.raises(ValueError, match="missing mass"):
        replace(dev, missing_mass=np.zeros(3))
    half = replace(dev, missing_mass=np.linspace(0, 1, len(dev))).take(np.arange(10))
    assert len(half) == 10
    assert half.missing_mass[-1] == pytest.approx(9 / 29)


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([0.0], MISSING_MASS_CLIP),  # all of the mass
        ([1e-6], MISSING_MASS_CLIP),  # above 0 by rounding
        ([-math.inf], 1 - MISSING_MASS_CLIP),  # none of it
        ([-math.inf, math.log(0.25)], 0.75),
        ([-1e300], 1 - MISSING_MASS_CLIP),
        ([-0.1, -0.1], MISSING_MASS_CLIP),  # two texts of 0.9 each: more than 1
    ],
)
def test_missing_mass_is_clipped(totals: list[float], expected: float) -> None:
    assert missing_mass(totals, np.arange(len(totals))) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("index", [[0], [0, -1], [0.0, 1.0], [[0, 1]]])
def test_mismatched_index_is_refused(index: list) -> None:
    with pytest.raises(ValueError, match="index"):
        missing_mass([-1.0, -2.0], index)
    with pytest.raises(ValueError, match="non-empty"):
        missing_mass([], index)


def test_logits_of_the_missing_mass_are_finite_at_the_ends_and_exact_between() -> None:
    logits = logit_missing_mass([0.0, 0.25, 0.5, 1.0])
    end = math.log(MISSING_MASS_CLIP / (1 - MISSING_MASS_CLIP))
    assert logits == pytest.approx([end, -math.log(3), 0.0, -end], abs=1e-9)
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="missing mass"):
            logit_missing_mass([0.5, bad])
