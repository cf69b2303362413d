"""Figures of many resamples at once equal those of single resamples."""

import numpy as np
import pytest

from service.spectral.reliability import auroc, half_error, resampled_aurocs, resampled_half_errors
from service.spectral.resampling import ResampleCounts, percentile_interval

SIZE = 30


def prompts(resample: np.ndarray) -> np.ndarray:
    """Return the prompts of a resample, with repeats."""
    return np.repeat(np.arange(SIZE), resample.astype(int))


def test_figures_equal_those_of_the_resampled_prompts() -> None:
    rng = np.random.default_rng(0)
    values, labels = rng.integers(0, 6, SIZE) / 10, rng.random(SIZE) < 0.4  # with ties
    resamples = ResampleCounts.of(SIZE, rng, 50)
    picks = [prompts(count) for count in resamples.counts]
    assert {pick.size for pick in picks} == {SIZE}
    assert resamples.means(values) == pytest.approx([values[pick].mean() for pick in picks])
    assert resampled_aurocs(resamples, values, labels) == pytest.approx(
        [auroc(values[p], labels[p]) for p in picks]
    )
    assert resampled_half_errors(resamples, values, labels) == pytest.approx(
        [half_error(values[p], labels[p]) for p in picks]
    )


def test_equal_seeds_give_equal_resamples() -> None:
    resamples, two = (ResampleCounts.of(5, np.random.default_rng(1), 3) for _ in range(2))
    assert (resamples.counts == two.counts).all()


def test_single_class_has_no_auroc_and_no_interval() -> None:
    counts = ResampleCounts.of(4, np.random.default_rng(0), 5)
    aurocs = resampled_aurocs(counts, [0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1])
    assert np.isnan(aurocs).all()
    assert np.isnan(percentile_interval(aurocs).low)


@pytest.mark.parametrize(("level", "ends"), [(0.9, (5.0, 95.0)), (0.6, (20.0, 80.0))])
def test_interval_uses_the_finite_values(level: float, ends: tuple[float, float]) -> None:
    interval = percentile_interval(np.append(np.arange(101.0), np.nan), level)
    assert (interval.low, interval.high) == pytest.approx(ends)


def test_empty_set_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="nothing"):
        ResampleCounts.of(0, np.random.default_rng(0))
