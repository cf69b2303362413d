from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import DevSpectra, risk, risks
from service.spectral.fit import (
    DEPOLARIZATION_BOUNDS,
    DepolarizedRisk,
    Method,
    TemperatureRisk,
    assign_folds,
    bootstrap,
    cross_validated_risks,
    fit,
    fit_depolarized,
    fit_temperature,
    terms,
)
from service.spectral.spectrum import DepolarizedMap, Identity, TemperatureMap
from tests.unit.spectral.worlds import calibrated_world, random_dev_set, seeds, spectra

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


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(0.1, 20.0), st.floats(0.01, 0.99))
def test_objectives_are_the_mean_risk(seed: int, t: float, g: float) -> None:
    dev = random_dev_set(seed)
    x, z = np.log(t), np.log(g / (1 - g))
    value = TemperatureRisk(terms(dev), 1e-8)(np.array([x]))[0]
    assert value == pytest.approx(risk(TemperatureMap(t, 1e-8), dev), abs=1e-9)
    value = DepolarizedRisk(terms(dev))(np.array([x, z]))[0]
    assert value == pytest.approx(risk(DepolarizedMap(t, g), dev), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(seeds, st.floats(0.3, 10.0), st.floats(0.05, 0.9))
def test_true_parameters_are_recovered(seed: int, t: float, g: float) -> None:
    values = spectra(np.random.default_rng(seed), 60, 6)
    fit_ = fit_temperature(calibrated_world(TemperatureMap(t), values, 40))
    assert fit_.map.temperature == pytest.approx(t, rel=1e-5)
    both = fit_depolarized(calibrated_world(DepolarizedMap(t, g), values, 40))
    assert both.map.temperature == pytest.approx(t, rel=1e-4)
    assert both.map.depolarization == pytest.approx(g, abs=1e-5)
    assert fit_.at_bound == both.at_bound == ()


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_a_fit_is_no_worse_than_the_identity_and_stationary(seed: int) -> None:
    dev = random_dev_set(seed)
    fit_, both = fit_temperature(dev, eps=1e-6), fit_depolarized(dev)
    assert fit_.risk <= risk(TemperatureMap(1.0, 1e-6), dev) + 1e-12
    for g in (1e-6, 0.1, 0.5, 0.9):
        assert both.risk <= risk(DepolarizedMap(1.0, g), dev) + 1e-12
    if not fit_.at_bound:
        assert fit_.mean_entropy == pytest.approx(fit_.risk, abs=1e-6)
        assert fit_.stationarity_gap < 1e-6
    assert both.stationarity_gap < 1e-6


@settings(deadline=None, max_examples=15)
@given(seeds)
def test_no_point_of_a_fine_grid_beats_the_depolarized_fit(seed: int) -> None:
    dev = random_dev_set(seed)
    best = fit_depolarized(dev).risk
    for t in np.geomspace(0.05, 50, 25):
        for g in np.linspace(0.01, 0.99, 25):
            assert best <= risk(DepolarizedMap(float(t), float(g)), dev) + 1e-9


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_no_point_of_a_fine_grid_beats_the_temperature_fit(seed: int) -> None:
    dev = random_dev_set(seed)
    best = fit_temperature(dev).risk
    assert all(best <= risk(TemperatureMap(float(t)), dev) + 1e-9 for t in np.geomspace(0.05, 50, 200))


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


def sampled_world(t: float, prompts: int, seed: int) -> DevSpectra:
    """Return one reference per prompt from the spectrum at temperature t: eigenvectors or null directions."""
    rng = np.random.default_rng(seed)
    world = calibrated_world(TemperatureMap(t, 1e-6), spectra(rng, prompts, 6), 40)
    chances = np.column_stack([world.alignment, world.outside])
    picked = (chances.cumsum(axis=1) < rng.random((prompts, 1))).sum(axis=1)
    drawn = np.eye(chances.shape[1])[np.minimum(picked, chances.shape[1] - 1)]
    return DevSpectra(world.eigenvalues, drawn[:, :-1], drawn[:, -1], world.rank, world.dimension)


def test_temperature_two_is_inside_its_interval() -> None:
    bootstrap_ = bootstrap(sampled_world(2.0, 300, 0), "temperature", rng=np.random.default_rng(0), eps=1e-6)
    [(name, interval)] = bootstrap_.intervals.items()
    assert name == "temperature"
    assert interval.low < 2.0 < interval.high
    assert interval.high - interval.low < 0.6


@pytest.mark.parametrize("method", METHODS)
def test_each_refit_is_the_fit_of_the_resampled_prompts(method: Method) -> None:
    dev = random_dev_set(5)
    bootstrap_ = bootstrap(dev, method, rng=np.random.default_rng(7), resamples=4)
    counts = np.random.default_rng(7).multinomial(len(dev), np.full(len(dev), 1 / len(dev)), size=4)
    for temperature, row in zip(bootstrap_.parameters["temperature"], counts, strict=True):
        again = fit(dev.take(np.repeat(np.arange(len(dev)), row)), method).map
        assert temperature == pytest.approx(again.temperature, rel=1e-5)


def test_the_bootstrap_has_an_interval_for_each_parameter() -> None:
    dev = calibrated_world(DepolarizedMap(0.9, 0.2), spectra(np.random.default_rng(0), 80, 6), 40)
    bootstrap_ = bootstrap(dev, "depolarized", rng=np.random.default_rng(0), resamples=50)
    assert [values.shape for values in bootstrap_.parameters.values()] == [(50,), (50,)]
    interval = bootstrap_.intervals["depolarization"]
    assert 0.1 < interval.low <= 0.2 + 1e-4
    assert 0.3 > interval.high >= 0.2 - 1e-4


def test_folds_are_of_equal_size_and_cover_everything() -> None:
    fold = assign_folds(23, 5, np.random.default_rng(0))
    assert sorted(np.bincount(fold).tolist()) == [4, 4, 5, 5, 5]
    assert assign_folds(3, 5, np.random.default_rng(0)).max() == 2
    with pytest.raises(ValueError, match="two prompts"):
        assign_folds(1, 5, np.random.default_rng(0))


def test_out_of_fold_risks_use_maps_fitted_without_the_fold() -> None:
    dev, fixed = random_dev_set(3, prompts=25), DepolarizedMap(1.3, 0.2)
    candidates = {"t": "temperature", "d": "depolarized", "active": fixed, "raw": Identity()}
    risks_ = cross_validated_risks(dev, candidates, rng=np.random.default_rng(1))
    for number in range(5):
        held = risks_.fold == number
        again = fit(dev.take(~held), "depolarized").map
        assert risks_.maps["d"][number] == again
        assert risks_.risks["d"][held] == pytest.approx(risks(again, dev.take(held)))
    assert risks_.risks["active"] == pytest.approx(risks(fixed, dev))
    assert risks_.maps["active"] == (fixed,) * 5
    assert risks_.risks["d"].mean() > fit(dev, "depolarized").risk
