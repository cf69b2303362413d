import math

import numpy as np
import pytest

from service.spectral.reliability import auroc, resampled_aurocs
from service.spectral.resampling import ResampleCounts, percentile_interval


@pytest.mark.parametrize("label", [0, 1])
def test_single_class_has_no_auroc(label):
    assert math.isnan(auroc([0.1, 0.2], [label] * 2))
    drawn = bootstrapped([0.1, 0.2], [label] * 2, np.random.default_rng(0))
    assert np.isnan(drawn).all()
    assert math.isnan(percentile_interval(drawn).low)


def test_noise_in_the_last_bits_is_a_tie():
    assert auroc([1.0, 1 - 4e-16, 1 + 2e-16, 0.5], [0, 1, 0, 0]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([], [], "one length"),
        ([0.1], [0, 1], "one length"),
        ([np.nan, 0.1], [0, 1], "finite"),
        ([0.2, 0.1], [0, 2], "0 or 1"),
    ],
)
def test_unusable_input_is_refused(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        auroc(scores, labels)


def bootstrapped(scores, labels, rng, number=1000):
    return resampled_aurocs(ResampleCounts.of(len(scores), rng, number), scores, labels)


def noisy(rng, size):
    labels = (rng.random(size) < 0.3).astype(float)
    return labels + rng.normal(0, 1.0, size), labels


def test_interval_has_its_nominal_coverage():
    rng = np.random.default_rng(0)
    truth = 0.5 * (1 + math.erf(1 / 2))  # two normals of variance 1, one apart
    worlds = [noisy(rng, 200) for _ in range(100)]
    results = [bootstrapped(*world, rng, 200) for world in worlds]
    intervals = [percentile_interval(drawn) for drawn in results]
    assert sum(interval.low <= truth <= interval.high for interval in intervals) >= 86
    assert np.mean([drawn.std(ddof=1) for drawn in results]) == pytest.approx(
        np.std([auroc(*world) for world in worlds]), rel=0.25
    )
