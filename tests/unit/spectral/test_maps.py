import math

import numpy as np
import pytest

from service.spectral.spectrum import CalibrationMap, DepolarizedMap, TemperatureMap
from tests.unit.spectral.worlds import spectra

D = 40


def eigenvalues(seed: int) -> np.ndarray:
    row = spectra(np.random.default_rng(seed), 1, 8)[0]
    return row[row > 0]


def every_map(t: float, g: float) -> list[CalibrationMap]:
    return [TemperatureMap(1.0), TemperatureMap(t), DepolarizedMap(t, g)]


@pytest.mark.parametrize("t", [1e-3, 0.05, 50.0, 1e6])
def test_extreme_values_give_no_nan(t: float) -> None:
    raw = [1 - 2e-10, 1e-10, 1e-10]
    for map_ in every_map(t, 0.3):
        for out in (map_.serve(raw, D), map_.fitted(raw, D)):
            assert np.isfinite([*out.eigenvalues, out.null_value, out.entropy]).all()
            total = out.eigenvalues.sum() + out.null_count * out.null_value
            assert total == pytest.approx(1.0, abs=1e-9)


def test_the_identity_serves_raw_and_is_fitted_with_a_floor() -> None:
    assert TemperatureMap(1.0).serve([0.7, 0.3], D).null_value == 0.0
    assert TemperatureMap(1.0, 1e-6).fitted([0.7, 0.3], D).null_value == pytest.approx(1e-6, rel=1e-4)
    raw, log_q = TemperatureMap(1.0).log_served(np.log([[0.7, 0.3]]), np.array([2]), D)
    assert np.exp(raw[0]) == pytest.approx([0.7, 0.3])
    assert log_q == -np.inf


def test_unusable_parameters_are_refused() -> None:
    for t in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature"):
            TemperatureMap(t)
        with pytest.raises(ValueError, match="temperature"):
            DepolarizedMap(t, 0.5)
    for g in (-0.1, 1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="depolarization"):
            DepolarizedMap(1.0, g)
    for eps in (0.0, -1e-10, math.nan, math.inf):
        with pytest.raises(ValueError, match="eps"):
            TemperatureMap(1.0, eps)
        with pytest.raises(ValueError, match="eps"):
            TemperatureMap(1.0, eps)


@pytest.mark.parametrize("values", [[], [0.5, 0.0], [0.5, -0.1], [math.nan], [[0.5, 0.5]]])
def test_unusable_eigenvalues_are_refused(values: list[float]) -> None:
    for map_ in every_map(1.0, 0.5):
        with pytest.raises(ValueError, match="eigenvalues"):
            map_.serve(values, D)
