import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import mean_entropy, risks, served_lambda_max
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap
from tests.unit.spectral.worlds import random_dev_set, seeds, spectra

temperatures = st.floats(0.05, 50.0)
intercepts = st.floats(-12.0, 12.0)
slopes = st.floats(0.0, 5.0)
masses = st.floats(0.0, 1.0)
maps = st.builds(EvidenceMap, temperatures, intercepts, slopes)


def test_a_score_by_hand() -> None:
    """Slope 1 and intercept 0 give g = u; one answer of rank 1 is then served 1 - u + u/d."""
    map_ = EvidenceMap(1.0, 0.0, 1.0)
    assert map_.at(0.3).depolarization == pytest.approx(0.3, abs=1e-12)
    assert map_.at(0.3).serve([1.0], 768).lambda_max == pytest.approx(0.7 + 0.3 / 768, abs=1e-12)
    half = EvidenceMap(1.0, math.log(3), 0.5).at(0.1)  # 3 * sqrt(1/9) = 1
    assert half.depolarization == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(("intercept", "mass", "expected"), [(12.0, 1.0, 1 - 1e-6), (-12.0, 0.0, 1e-6)])
def test_g_is_clipped(intercept: float, mass: float, expected: float) -> None:
    assert EvidenceMap(1.0, intercept, 5.0).at(mass).depolarization == pytest.approx(expected, rel=1e-9)


@settings(deadline=None)
@given(maps, masses, masses, seeds)
def test_confidence_does_not_rise_with_missing_mass(
    map_: EvidenceMap, one: float, other: float, seed: int
) -> None:
    [values] = spectra(np.random.default_rng(seed), 1, 6)
    low, high = (map_.at(u).serve(values[values > 0], 40).lambda_max for u in sorted([one, other]))
    assert high <= low + 1e-12


@settings(deadline=None)
@given(maps, masses, seeds)
def test_score_is_a_finite_spectrum_for_any_mass(map_: EvidenceMap, mass: float, seed: int) -> None:
    [values] = spectra(np.random.default_rng(seed), 1, 6)
    served = map_.at(mass).serve(values[values > 0], 40)
    assert served.total == pytest.approx(1.0, abs=1e-9)
    assert 0 < served.lambda_max <= 1 + 1e-12
    assert 0 <= served.entropy <= math.log(40) + 1e-9
    assert np.all(np.diff(served.eigenvalues) <= 1e-15)


@settings(deadline=None, max_examples=40)
@given(maps, seeds)
def test_batch_equals_single_prompts(map_: EvidenceMap, seed: int) -> None:
    dev = random_dev_set(seed)
    missing = np.random.default_rng(seed).random(len(dev))
    alone = [map_.at(u) for u in missing]
    each = [dev.take(np.array([i])) for i in range(len(dev))]
    for reads in (risks, served_lambda_max, mean_entropy):
        results = [np.atleast_1d(reads(item, row))[0] for item, row in zip(alone, each, strict=True)]
        whole = reads(map_, replace(dev, missing_mass=missing))
        assert whole == pytest.approx(np.mean(results) if reads is mean_entropy else results, rel=1e-9)


@settings(deadline=None)
@given(temperatures, intercepts, masses)
def test_slope_zero_is_the_depolarized_map(temperature: float, intercept: float, mass: float) -> None:
    result = EvidenceMap(temperature, intercept, 0.0).at(mass)
    assert result == DepolarizedMap(temperature, EvidenceMap(1.0, intercept, 0.0).at(0.5).depolarization)


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
