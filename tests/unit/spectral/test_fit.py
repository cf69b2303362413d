from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import DevSpectra, risks
from service.spectral.fit import (
    DEPOLARIZATION_BOUNDS,
    DepolarizedRisk,
    Method,
    TemperatureRisk,
    cross_validated_risks,
    fit,
    fit_depolarized,
    fit_temperature,
    terms,
)
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.unit.spectral.worlds import random_dev_set, seeds

METHODS: list[Method] = ["temperature", "depolarized"]


def differences(objective: TemperatureRisk | DepolarizedRisk, point: np.ndarray, part: int) -> np.ndarray:
    """Return central differences of part 0 (value) or 1 (gradient) of the objective."""
    step = 1e-5 * np.eye(point.size)
    return np.array([(objective(point + h)[part] - objective(point - h)[part]) / 2e-5 for h in step])


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(-2.0, 3.0), st.floats(-6.0, 6.0))
def test_gradients_and_hessians_are_the_derivatives_of_the_risk(seed: int, x: float, z: float) -> None:
    dev = random_dev_set(seed)
    for objective, point in (
        (TemperatureRisk(terms(dev), 1e-6), np.array([x])),
        (DepolarizedRisk(terms(dev)), np.array([x, z])),
    ):
        _, gradient, hessian = objective(point)
        assert gradient == pytest.approx(differences(objective, point, 0), rel=1e-5, abs=1e-6)
        assert hessian == pytest.approx(differences(objective, point, 1), rel=1e-5, abs=1e-6)


def one_sided(c: list[float], outside: float, prompts: int = 40) -> DevSpectra:
    values = np.tile([0.6, 0.4], (prompts, 1))
    return DevSpectra(values, np.tile(c, (prompts, 1)), np.full(prompts, outside), np.full(prompts, 2), 10)


def test_optimum_on_a_bound_is_reported() -> None:
    sharp = one_sided([1.0, 0.0], 0.0)
    assert fit_temperature(sharp).map.temperature == pytest.approx(0.05, rel=1e-9)
    assert fit_temperature(sharp).at_bound == ("temperature",)
    fit_ = fit_depolarized(sharp)
    assert "depolarization" in fit_.at_bound
    assert fit_.map.depolarization == pytest.approx(DEPOLARIZATION_BOUNDS[0], rel=1e-6)
    flat = one_sided([0.1, 0.1], 0.8)
    assert fit_temperature(flat).at_bound == ("temperature",)
    assert fit_temperature(flat).map.temperature == pytest.approx(50.0, rel=1e-9)


def test_methods_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown method"):
        fit(random_dev_set(0), cast(Any, "platt"))


def test_out_of_fold_risks_use_maps_fitted_without_the_fold() -> None:
    dev, fixed = random_dev_set(3, prompts=25), DepolarizedMap(1.3, 0.2)
    candidates = {"t": "temperature", "d": "depolarized", "active": fixed, "raw": TemperatureMap(1.0)}
    fold = np.arange(25) % 5
    risks_ = cross_validated_risks(dev, candidates, fold)
    for number in range(5):
        held = fold == number
        again = fit(dev.take(~held), "depolarized").map
        assert risks_.maps["d"][number] == again
        assert risks_.risks["d"][held] == pytest.approx(risks(again, dev.take(held)))
    assert risks_.risks["active"] == pytest.approx(risks(fixed, dev))
    assert risks_.maps["active"] == (fixed,) * 5
    assert risks_.risks["d"].mean() > fit(dev, "depolarized").risk
