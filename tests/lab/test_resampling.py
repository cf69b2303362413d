import numpy as np
import pytest

from lab.resampling import figure_difference


def test_figures_that_are_not_means():
    rng = np.random.default_rng
    values = rng(0).normal(size=100)
    difference = figure_difference(
        lambda pick: (float(np.median(values[pick]) + 2), float(np.median(values[pick]))),
        100,
        np.random.default_rng(0),
    )
    assert difference.value == pytest.approx(2.0)
    assert difference.real
    undefined = figure_difference(lambda _: (float("nan"), 0.0), 5, rng(0), resamples=10)
    assert np.isnan(undefined.low)
    assert not undefined.real
