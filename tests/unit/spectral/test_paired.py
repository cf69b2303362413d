"""Paired differences."""

import numpy as np
import pytest

from service.spectral.resampling import mean_difference


def rng():
    return np.random.default_rng(0)


def test_constant_difference_is_certain():
    difference = mean_difference(np.arange(50) + 1.0, np.arange(50), rng())
    assert (difference.value, difference.low, difference.high) == (1.0, 1.0, 1.0)
    assert difference.real


def test_pairing_removes_shared_variance():
    shared = rng().normal(0, 100, 200)
    first = shared + rng().normal(0.5, 0.1, 200)
    assert mean_difference(first, shared, np.random.default_rng(1)).real


def test_zero_difference_is_not_significant():
    noise = np.random.default_rng(3)
    difference = mean_difference(noise.normal(size=300), noise.normal(size=300), rng())
    assert difference.low < 0 < difference.high
    assert not difference.real


def test_interval_is_of_the_mean():
    gaps = rng().normal(0, 1, 400)
    difference = mean_difference(gaps, np.zeros(400), np.random.default_rng(1))
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * gaps.std() / 20, rel=0.1)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="two vectors"):
        mean_difference([], [], rng())
