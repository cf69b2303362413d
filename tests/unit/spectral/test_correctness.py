import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from service.spectral.reliability import accuracy_rejection, auroc, half_error, resampled_aurocs
from service.spectral.resampling import ResampleCounts, percentile_interval

few_scores = st.integers(-3, 3).map(lambda x: x / 4)  # few values: many ties
rows = st.lists(
    st.tuples(st.one_of(few_scores, st.floats(-5, 5)), st.integers(0, 1)), min_size=2, max_size=50
)


@given(rows.filter(lambda rows: len({label for _, label in rows}) == 2))
def test_auroc_equals_scikit_learn(rows):
    scores, labels = np.round(np.array(rows).T, 10)
    assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert auroc(-scores, labels) == pytest.approx(1 - auroc(scores, labels), abs=1e-12)


@given(rows.filter(lambda rows: len(rows) % 2 == 0))
def test_error_of_the_surer_half_is_on_the_curve(rows):
    scores, labels = np.round(np.array(rows).T, 10)
    curve = accuracy_rejection(scores, labels)
    assert curve.rejected[len(rows) // 2] == 0.5
    assert half_error(scores, labels) == pytest.approx(1 - curve.accuracy[len(rows) // 2])


def test_middle_answer_of_an_odd_number_counts_half():
    assert half_error([0.9, 0.5, 0.1], [1, 0, 0]) == pytest.approx(0.5 / 1.5)


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
    for function in (auroc, accuracy_rejection):
        with pytest.raises(ValueError, match=message):
            function(scores, labels)


def bootstrapped(scores, labels, rng, number=1000):
    return resampled_aurocs(ResampleCounts.picked(len(scores), rng, number), scores, labels)


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


def test_a_seed_gives_the_same_interval_and_more_resamples_no_smaller_error():
    scores, labels = noisy(np.random.default_rng(0), 150)
    few, again = (bootstrapped(scores, labels, np.random.default_rng(1)) for _ in range(2))
    many = bootstrapped(scores, labels, np.random.default_rng(1), 4000)
    assert (few == again).all()
    assert many.std(ddof=1) == pytest.approx(few.std(ddof=1), rel=0.1)
    interval = percentile_interval(few)
    assert interval.low < auroc(scores, labels) < interval.high


def test_at_least_two_resamples_are_needed():
    scores, labels = noisy(np.random.default_rng(0), 150)
    interval, two = (
        percentile_interval(bootstrapped(scores, labels, np.random.default_rng(1), n)) for n in (1, 2)
    )
    assert np.isnan(interval.low)
    assert two.low < two.high


def test_resamples_of_one_class_are_left_out():
    scores, labels = [0.1, 0.2, 0.3], [0, 0, 1]
    drawn = bootstrapped(scores, labels, np.random.default_rng(0), 300)
    assert 0 < np.isfinite(drawn).sum() < 300
    assert auroc(scores, labels) == 1
    assert percentile_interval(drawn).low == 1


def test_small_curve_by_hand():
    curve = accuracy_rejection([0.9, 0.5, 0.7, 0.1], [1, 0, 1, 0])
    assert curve.rejected.tolist() == [0, 0.25, 0.5, 0.75]
    assert curve.accuracy == pytest.approx([1 / 2, 2 / 3, 1, 1])
    assert curve.area == pytest.approx((1 / 2 + 2 / 3 + 2) / 4)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_uninformative_score_gets_the_accuracy(labels):
    curve = accuracy_rejection(np.full(len(labels), 0.4), labels)
    assert curve.accuracy == pytest.approx(np.mean(labels))
    assert curve.area == pytest.approx(np.mean(labels))


@given(rows)
def test_perfect_scores_have_the_largest_area(rows):
    scores, labels = np.array(rows).T
    best = accuracy_rejection(labels, labels).area
    assert accuracy_rejection(scores, labels).area <= best + 1e-12
    assert accuracy_rejection(scores, labels).accuracy[0] == pytest.approx(labels.mean())
