import math

import numpy as np
import pytest
from hypothesis import given, settings

from service.spectral.spectrum import CalibrationMap, DepolarizedMap, Identity, TemperatureMap
from tests.unit.spectral.worlds import depolarizations, seeds, spectra, temperatures

D = 40


def eigenvalues(seed: int) -> np.ndarray:
    row = spectra(np.random.default_rng(seed), 1, 8)[0]
    return row[row > 0]


def every_map(t: float, g: float) -> list[CalibrationMap]:
    return [Identity(), TemperatureMap(t), DepolarizedMap(t, g)]


def test_the_worked_example_at_temperature_two() -> None:
    served = TemperatureMap(2.0).serve([0.81, 0.19], 768)
    assert served.eigenvalues == pytest.approx([0.6737, 0.3263], abs=5e-5)
    assert (served.null_value, served.null_count) == (0.0, 766)


def test_single_answer_half_depolarized() -> None:
    served = DepolarizedMap(1.0, 0.5).serve([1.0], 768)
    assert served.lambda_max == pytest.approx(0.500651, abs=5e-7)
    assert served.total == pytest.approx(1.0, abs=1e-12)
    p, q = 0.5 + 0.5 / 768, 0.5 / 768
    assert served.entropy == pytest.approx(-p * math.log(p) - 767 * q * math.log(q), abs=1e-12)
    assert served.entropy_normalized(20) == pytest.approx(served.entropy / math.log(768), abs=1e-12)


def test_the_fitted_temperature_counts_the_null_space() -> None:
    fitted = TemperatureMap(2.0, eps=1e-4).fitted([0.81, 0.19], 12)
    z = math.sqrt(0.81) + math.sqrt(0.19) + 10 * math.sqrt(1e-4)
    assert fitted.eigenvalues == pytest.approx([math.sqrt(0.81) / z, math.sqrt(0.19) / z], abs=1e-12)
    assert fitted.null_value == pytest.approx(math.sqrt(1e-4) / z, abs=1e-12)
    assert fitted.null_count == 10


@settings(deadline=None)
@given(seeds)
def test_temperature_one_without_depolarization_is_the_identity(seed: int) -> None:
    raw = eigenvalues(seed)
    for map_ in every_map(1.0, 0.0):
        served = map_.serve(raw, D)
        assert served.eigenvalues == pytest.approx(raw, rel=1e-12)
        assert served.null_value == 0.0


@settings(deadline=None)
@given(seeds, temperatures, depolarizations)
def test_order_trace_and_ranges_are_kept(seed: int, t: float, g: float) -> None:
    raw = eigenvalues(seed)
    for map_ in every_map(t, g):
        for out in (map_.serve(raw, D), map_.fitted(raw, D)):
            assert (np.diff(out.eigenvalues) <= 1e-15).all()
            assert out.total == pytest.approx(1.0, abs=1e-9)
            assert 0 < out.lambda_max <= 1 + 1e-12
            assert 0 <= out.entropy <= math.log(D) + 1e-9
            assert 0 <= out.entropy_normalized(max(raw.size, 2)) <= 1


@settings(deadline=None)
@given(seeds)
def test_higher_temperature_or_noise_is_less_certain(seed: int) -> None:
    raw = eigenvalues(seed)
    cool, warm = TemperatureMap(0.7).serve(raw, D), TemperatureMap(1.9).serve(raw, D)
    assert warm.entropy >= cool.entropy - 1e-12
    assert warm.lambda_max <= cool.lambda_max + 1e-12
    little, much = DepolarizedMap(1.0, 0.1).serve(raw, D), DepolarizedMap(1.0, 0.6).serve(raw, D)
    assert much.lambda_max < little.lambda_max
    assert much.entropy > little.entropy


@pytest.mark.parametrize("t", [1e-3, 0.05, 50.0, 1e6])
def test_extreme_values_give_no_nan(t: float) -> None:
    raw = [1 - 2e-10, 1e-10, 1e-10]
    for map_ in every_map(t, 0.3):
        for out in (map_.serve(raw, D), map_.fitted(raw, D)):
            assert np.isfinite([*out.eigenvalues, out.null_value, out.entropy]).all()
            assert out.total == pytest.approx(1.0, abs=1e-9)


def test_a_full_rank_spectrum_has_no_null_space() -> None:
    for map_ in every_map(2.0, 0.5):
        out = map_.fitted([0.7, 0.3], 2)
        assert out.null_count == 0
        assert out.eigenvalues.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_rank_above_the_dimension_keeps_the_trace() -> None:
    for map_ in every_map(2.0, 0.5):
        assert map_.fitted([0.5, 0.3, 0.2], 2).total == pytest.approx(1.0, abs=1e-12)


def test_normalised_entropy_of_one_sample() -> None:
    assert Identity().serve([1.0], 768).entropy_normalized(1) == 0.0


def test_the_identity_serves_raw_and_is_fitted_with_a_floor() -> None:
    assert Identity().serve([0.7, 0.3], D).null_value == 0.0
    assert Identity(1e-6).fitted([0.7, 0.3], D).null_value == pytest.approx(1e-6, rel=1e-4)
    raw, log_q = Identity().log_served(np.log([[0.7, 0.3]]), np.array([2]), D)
    assert np.exp(raw[0]) == pytest.approx([0.7, 0.3])
    assert log_q == -np.inf


@pytest.mark.parametrize("t", [0.0, -1.0, math.nan, math.inf])
def test_unusable_temperatures_are_refused(t: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        TemperatureMap(t)
    with pytest.raises(ValueError, match="temperature"):
        DepolarizedMap(t, 0.5)


@pytest.mark.parametrize("g", [-0.1, 1.0, math.nan, math.inf])
def test_unusable_depolarizations_are_refused(g: float) -> None:
    with pytest.raises(ValueError, match="depolarization"):
        DepolarizedMap(1.0, g)


@pytest.mark.parametrize("eps", [0.0, -1e-10, math.nan, math.inf])
def test_unusable_eps_is_refused(eps: float) -> None:
    with pytest.raises(ValueError, match="eps"):
        TemperatureMap(1.0, eps)
    with pytest.raises(ValueError, match="eps"):
        Identity(eps)


@pytest.mark.parametrize("values", [[], [0.5, 0.0], [0.5, -0.1], [math.nan], [[0.5, 0.5]]])
def test_unusable_eigenvalues_are_refused(values: list[float]) -> None:
    for map_ in every_map(1.0, 0.5):
        with pytest.raises(ValueError, match="eigenvalues"):
            map_.serve(values, D)


def test_largest_normalised_entropy_is_exactly_one():
    for dimension in range(2, 300):
        full = DepolarizedMap(1.0, 0.5).serve(np.full(dimension - 1, 1 / (dimension - 1)), dimension)
        assert 0 < full.entropy_normalized(dimension) <= 1.0, dimension
        even = Identity().serve(np.full(dimension, 1 / dimension), dimension)
        assert even.entropy_normalized(dimension) == pytest.approx(1.0), dimension
        assert even.entropy_normalized(dimension) <= 1.0, dimension


def test_null_directions_are_orthogonal_to_the_answers():
    for map_ in every_map(1.0, 0.5):
        assert map_.serve([0.7, 0.3], 10).null_count == 8
        assert map_.serve([0.7, 0.3], 1).null_count == 0
