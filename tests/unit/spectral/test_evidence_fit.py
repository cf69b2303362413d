from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import DevSpectra, risk
from service.spectral.evidence import EvidenceMap, logit_missing_mass
from service.spectral.fit import (
    SLOPE_START,
    Objective,
    fit_depolarized,
    fit_evidence,
    minimize,
    objective,
)
from tests.unit.spectral.worlds import calibrated_world, random_dev_set, seeds, spectra


def random_rows(seed: int, prompts: int = 30) -> DevSpectra:
    rng = np.random.default_rng(seed)
    return replace(random_dev_set(seed, prompts), missing_mass=rng.beta(0.5, 0.5, prompts))


def calibrated_rows(map_: EvidenceMap, prompts: int, seed: int, width: int = 6) -> DevSpectra:
    """Return rows with references distributed as in `map_`, which therefore has the lowest risk."""
    rng = np.random.default_rng(seed)
    missing = rng.beta(0.7, 0.7, prompts)
    world = calibrated_world(map_.over(missing), spectra(rng, prompts, width), 40)
    return replace(world, missing_mass=missing)


def differences(risk_of: Objective, point: np.ndarray, part: int) -> np.ndarray:
    step = 1e-5 * np.eye(3)
    return np.array([(risk_of(point + h)[part] - risk_of(point - h)[part]) / 2e-5 for h in step])


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(-2.0, 3.0), st.floats(-4.0, 4.0), st.floats(0.0, 1.0))
def test_gradient_and_hessian_are_the_derivatives_of_the_risk(
    seed: int, x: float, a: float, b: float
) -> None:
    rows, point = random_rows(seed), np.array([x, a, b])
    risk_of = objective(rows, "evidence")
    value, gradient, hessian = risk_of(point)
    assert gradient == pytest.approx(differences(risk_of, point, 0), rel=1e-5, abs=1e-6)
    assert hessian == pytest.approx(differences(risk_of, point, 1), rel=1e-5, abs=1e-6)
    assert value == pytest.approx(risk(EvidenceMap(float(np.exp(x)), a, b), rows), abs=1e-9)


def test_prompt_with_clipped_g_does_not_affect_the_fit() -> None:
    rows = random_rows(1)
    clipped = replace(rows, missing_mass=np.full(len(rows), 1.0))
    value, gradient, hessian = objective(clipped, "evidence")(np.array([0.0, 12.0, 5.0]))
    assert value == pytest.approx(risk(EvidenceMap(1.0, 12.0, 5.0), clipped))
    assert gradient[1:].tolist() == [0.0, 0.0]
    assert not hessian[1:].any()


@pytest.mark.parametrize("seed", [409, 1362])
def test_each_start_is_needed(seed: int) -> None:
    """Few prompts with extreme masses have several minima; each single start ends in the wrong one here."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([5, 8, 12, 30]))
    dev = random_dev_set(seed, size, dimension=int(rng.choice([8, 24, 768])))
    rows = replace(dev, missing_mass=rng.beta(0.3, 0.3, size))
    risk_of = objective(rows, "evidence")
    low, high = np.array([np.log(0.05), -12.0, 0.0]), np.array([np.log(50.0), 12.0, 5.0])
    flat = fit_depolarized(rows).map
    z = np.log(flat.depolarization / (1 - flat.depolarization))
    mean = logit_missing_mass(rows.missing_mass).mean()
    ends = [
        minimize(risk_of, np.array([np.log(flat.temperature), z - b * mean, b]), low, high).value
        for b in (0.0, SLOPE_START)
    ]
    assert abs(ends[0] - ends[1]) > 0.01
    assert fit_evidence(rows).risk == pytest.approx(min(ends), abs=1e-9)


def test_misleading_evidence_is_left_out_and_the_bound_reported() -> None:
    """References are outside if the answers cover all mass: a positive slope can only do harm."""
    rows = calibrated_rows(EvidenceMap(1.2, 0.3, 1.0), 80, 0)
    fit = fit_evidence(replace(rows, missing_mass=1 - rows.missing_mass))
    assert fit.map.slope == 0.0
    assert fit.at_bound == ("slope",)


def two_kinds(sharp: float, blunt: float) -> DevSpectra:
    """Return 40 prompts with u = 1e-4 and c_1 = sharp, and 40 with 1 - 1e-4 and c_1 = blunt."""
    c = np.repeat([sharp, blunt], 40)[:, None]
    dev = DevSpectra(np.ones((80, 1)), c, 1 - c[:, 0], np.ones(80, dtype=int), 40)
    return replace(dev, missing_mass=np.repeat([1e-4, 1 - 1e-4], 40))


def test_intercept_at_its_bound_is_reported() -> None:
    fit = fit_evidence(two_kinds(1.0, 1.0))
    assert fit.map.intercept == pytest.approx(-12.0)
    assert "intercept" in fit.at_bound
