import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from service.spectral.reliability import (
    bin_index,
    consistency_band,
    equal_mass_bins,
    expected_calibration_error,
    label_band,
    projection_brier,
    reliability_diagram,
)

shares = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))


@given(shares, st.integers(1, 12))
def test_bins_cover_every_value_and_none_is_empty(values, num_bins):
    edges = equal_mass_bins(values, num_bins)
    bins = bin_index(values, edges)
    assert edges[0] == 0
    assert edges[-1] == 1
    assert (np.diff(edges) > 0).all()
    assert edges.size - 1 <= num_bins
    assert (np.bincount(bins, minlength=edges.size - 1) > 0).all()
    rounded = np.round(values, 12)
    assert (rounded <= edges[bins + 1]).all()
    assert ((rounded > edges[bins]) | (bins == 0)).all()


@pytest.mark.parametrize("values", [[], [0.1, np.nan], [-0.1], [1.1], [[0.1]]])
def test_values_outside_0_and_1_are_refused(values):
    with pytest.raises(ValueError, match="values must be"):
        equal_mass_bins(values, 8)


def test_no_bins_and_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="num_bins"):
        equal_mass_bins([0.5], 0)
    with pytest.raises(ValueError, match="differ in shape"):
        reliability_diagram([0.1, 0.2], [0.1])


def test_small_diagram_by_hand():
    diagram = reliability_diagram([0.2, 0.2, 0.8, 0.8], [0.0, 0.2, 0.5, 0.9], num_bins=2)
    assert diagram.mean_predicted == pytest.approx([0.2, 0.8])
    assert diagram.mean_target == pytest.approx([0.1, 0.7])
    assert diagram.mass.tolist() == [0.5, 0.5]
    assert diagram.ece == pytest.approx(0.1)
    assert projection_brier([0.2, 0.8], [0.0, 0.5]) == pytest.approx((0.04 + 0.09) / 2)


def test_bin_without_target_is_left_out_and_others_are_renormalised():
    predicted, mass = np.array([0.2, 0.9]), np.array([0.5, 0.5])
    assert expected_calibration_error(predicted, np.array([0.3, np.nan]), mass) == pytest.approx(0.1)
    assert np.isnan(expected_calibration_error(predicted, np.array([np.nan, np.nan]), mass))


def world(rng, sharpness=1.0, size=300):
    """Return prompts with reference u_1 with probability p_1^sharpness."""
    predicted = rng.uniform(0.1, 0.9, size)
    return predicted, (rng.random(size) < predicted**sharpness).astype(float)


def test_calibrated_world_is_in_its_band_at_least_90_percent_of_the_time():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(100):
        predicted, drawn = world(rng)
        band = label_band(predicted, rng, num_draws=200)
        inside += band.holds(reliability_diagram(predicted, drawn).ece)
    assert inside >= 90


def test_band_leaves_out_bins_without_target_and_needs_20_draws():
    targets = np.tile([0.5, np.nan], (20, 1))
    band = consistency_band(targets, np.zeros(20))
    assert band.mean[0] == 0.5
    assert np.isnan([band.mean[1], band.low[1], band.high[1]]).all()
    with pytest.raises(ValueError, match="20 draws"):
        consistency_band(targets[:19], np.zeros(19))
