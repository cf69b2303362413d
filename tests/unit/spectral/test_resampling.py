"""Paired differences and resamples."""

import numpy as np
import pytest

from service.spectral.resampling import ResampleCounts, mean_difference


def test_pairing_removes_shared_variance() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 100, 200)
    first = shared + rng.normal(0.5, 0.1, 200)
    assert mean_difference(first, shared, rng).real


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="two vectors"):
        mean_difference([], [], np.random.default_rng(0))
    with pytest.raises(ValueError, match="nothing"):
        ResampleCounts.of(0, np.random.default_rng(0))
