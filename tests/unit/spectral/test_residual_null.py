"""The projection ECE of calibrated worlds is in its residual null; the band from labels is twice too wide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.spectral.reliability import (
    centred_residuals,
    label_band,
    neighbourhoods,
    projection_null,
    reliability_diagram,
    upper_p_value,
)

WORLDS, DRAWS = 100, 299
SPREAD = 0.25  # share of the variance of labels; 0.06 to 0.45 in the recorded rows


def world(rng, size=200, spread=SPREAD):
    """Return calibrated prompts: c_1 has mean lambda_max, and the given share of a label's variance."""
    lambda_max = rng.uniform(0.1, 0.6, size)
    strength = 1 / spread - 1
    return lambda_max, rng.beta(lambda_max * strength, (1 - lambda_max) * strength)


def coverage(band_of, **kwargs):
    rng, inside = np.random.default_rng(0), 0
    for _ in range(WORLDS):
        lambda_max, c1 = world(rng, **kwargs)
        inside += band_of(lambda_max, c1, rng).holds(reliability_diagram(lambda_max, c1).ece)
    return inside / WORLDS


def residual(lambda_max, c1, rng):
    return projection_null(lambda_max, c1, rng, num_draws=DRAWS).band


def labels(lambda_max, _, rng):
    return label_band(lambda_max, rng, num_draws=DRAWS)


@pytest.mark.parametrize(("size", "spread"), [(30, 0.25), (200, 0.1), (200, 0.25), (200, 0.95)])
def test_calibrated_worlds_are_in_the_band_95_percent_of_the_time(size, spread):
    """Within three standard errors of the Monte Carlo (0.022)."""
    assert coverage(residual, size=size, spread=spread) >= 0.885


def test_the_band_of_labels_misses_calibrated_worlds_and_is_twice_too_wide():
    assert coverage(labels) < 0.5
    rng = np.random.default_rng(1)
    lambda_max, c1 = world(rng)
    own, of_labels = residual(lambda_max, c1, rng), labels(lambda_max, c1, rng)
    ratio = (of_labels.ece_high - of_labels.ece_low) / (own.ece_high - own.ece_low)
    assert ratio == pytest.approx(1 / np.sqrt(SPREAD), rel=0.2)


def test_mean_of_the_null_is_the_ece_of_calibrated_worlds():
    rng = np.random.default_rng(2)
    worlds = [world(rng) for _ in range(60)]
    read = np.mean([reliability_diagram(*world_).ece for world_ in worlds])
    means = np.mean([residual(*world_, rng).ece_mean for world_ in worlds])
    assert means == pytest.approx(read, rel=0.1)
    assert means > 0.02  # an ECE is not 0 under calibration


def test_p_values_of_calibrated_worlds_are_uniform_and_of_others_small():
    rng = np.random.default_rng(3)
    worlds = [world(rng) for _ in range(WORLDS)]
    values = np.array([projection_null(*world_, rng, num_draws=DRAWS).p_value for world_ in worlds])
    assert np.mean(values <= 0.05) <= 0.12
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)
    off = [
        projection_null(world_[0] ** 0.6, world_[1], rng, num_draws=DRAWS).p_value for world_ in worlds[:10]
    ]
    assert max(off) == 1 / (DRAWS + 1)


def test_miscalibration_is_in_the_band_of_labels_but_above_the_residual_band():
    """The band of labels does not detect it."""
    rng = np.random.default_rng(4)
    lambda_max, c1 = world(rng, size=150)
    served = lambda_max - 0.07
    ece = reliability_diagram(served, c1).ece
    assert labels(served, c1, rng).holds(ece)
    assert ece > residual(served, c1, rng).ece_high


def test_the_bands_of_bins_surround_the_diagonal():
    rng = np.random.default_rng(5)
    lambda_max, c1 = world(rng)
    band = projection_null(lambda_max, c1, rng).band
    diagonal = reliability_diagram(lambda_max, c1).mean_predicted
    assert band.mean == pytest.approx(diagonal, abs=0.01)
    assert (band.low < diagonal).all()
    assert (diagonal < band.high).all()
    assert band.num_draws == 1000


def test_a_miscalibrated_map_does_not_widen_its_own_null():
    rng = np.random.default_rng(6)
    lambda_max, c1 = world(rng)
    good, bad = (projection_null(p, c1, rng).band for p in (lambda_max, lambda_max**0.5))
    assert bad.ece_mean == pytest.approx(good.ece_mean, rel=0.1)


@given(st.integers(1, 90), st.integers(0, 1000))
def test_neighbours_are_the_nearest_and_include_the_prompt(size, seed):
    rng = np.random.default_rng(seed)
    lambda_max = np.round(rng.random(size), 1)  # with ties
    near = neighbourhoods(lambda_max, rng, 40)
    assert near.shape == (size, min(40, size))
    assert (near == np.arange(size)[:, None]).any(axis=1).all()
    assert all(np.unique(row).size == row.size for row in near)
    order = np.sort(lambda_max)
    for row in near:
        low, high = lambda_max[row].min(), lambda_max[row].max()
        assert np.count_nonzero((order > low) & (order < high)) <= row.size


def test_residuals_have_mean_zero_and_keep_the_variance():
    rng = np.random.default_rng(7)
    gaps = rng.standard_normal(4000)
    residuals = centred_residuals(gaps, neighbourhoods(np.linspace(0, 1, 4000), rng, 5))
    assert residuals.mean(axis=1) == pytest.approx(0.0, abs=1e-12)
    assert residuals.var() == pytest.approx(1.0, rel=0.06)


def test_ties_do_not_depend_on_the_order_of_the_file():
    """Rows are sorted by c_1 within ties: neighbours of a row must not be similar in c_1."""
    c1 = np.repeat([0.0, 1.0], 100)
    null = projection_null(np.full(200, 0.5), c1, np.random.default_rng(0))
    assert null.band.ece_mean == pytest.approx(0.5 * np.sqrt(2 / np.pi / 200), rel=0.15)


def test_p_values_are_never_zero_and_unknown_figures_have_none():
    assert upper_p_value(np.zeros(99), 1.0) == 0.01
    assert upper_p_value(np.ones(99), 1.0) == 1.0
    assert np.isnan(upper_p_value(np.ones(99), float("nan")))
    assert np.isnan(projection_null([0.5], [0.2], np.random.default_rng(0)).p_value)


def test_blocks_of_draws_do_not_change_the_band(monkeypatch):
    rng = np.random.default_rng(8)
    lambda_max, c1 = world(rng)
    whole = projection_null(lambda_max, c1, np.random.default_rng(0)).band
    monkeypatch.setattr("service.spectral.reliability.NULL_BLOCK_ENTRIES", 3000)
    assert projection_null(lambda_max, c1, np.random.default_rng(0)).band.ece_high == whole.ece_high


@pytest.mark.parametrize(
    ("lambda_max", "c1", "message"),
    [
        ([0.5], [0.5, 0.5], "differ in shape"),
        ([0.5], [np.nan], "c1 must be finite"),
        ([1.5], [0.5], "values must"),
    ],
)
def test_unusable_values_are_refused(lambda_max, c1, message):
    with pytest.raises(ValueError, match=message):
        projection_null(lambda_max, c1, np.random.default_rng(0))
