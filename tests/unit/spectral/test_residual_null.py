"""The projection ECE of calibrated worlds is in its residual null; the band from labels is twice too wide."""

import numpy as np
import pytest

from service.spectral.reliability import (
    label_band,
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
