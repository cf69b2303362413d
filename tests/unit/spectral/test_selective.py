import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from benchmarks.selective_worlds import KINDS, TARGETS, VerdictWorld, World, broken_by, naive, tally
from service.spectral.correctness_model import (
    FEATURES_OF_CLAIMS,
    FEATURES_OF_TOKENS,
    fit_model,
    held_out_predictions,
    stratified_folds,
)
from service.spectral.selective import (
    MIN_ANSWERED,
    SelectiveCounts,
    error_bound,
    lowest_error,
    numbers_answered,
    promise,
    selective_counts,
    simultaneous_bounds,
)

scored = st.lists(
    st.tuples(st.integers(0, 40).map(lambda x: x / 40), st.integers(0, 1)), min_size=1, max_size=120
)
confidences = st.floats(0.05, 0.999)


def counted(rows: list[tuple[float, int]]) -> SelectiveCounts:
    return selective_counts([score for score, _ in rows], [right for _, right in rows])


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 300), st.floats(0.5, 0.999))
def test_the_bound_is_exact(answered: int, wrong: int, confidence: float) -> None:
    wrong = min(wrong, answered)
    bound = float(error_bound(wrong, answered, confidence))
    expected = binomtest(wrong, answered, alternative="less").proportion_ci(confidence, "exact").high
    assert bound == pytest.approx(expected, abs=1e-9)
    if wrong < answered:
        assert binom.cdf(wrong, answered, bound) == pytest.approx(1 - confidence, rel=1e-6)


def test_numbers_of_answered_rows_are_geometric_and_few() -> None:
    """1.5 log2(n / 20) + 1 of them."""
    assert numbers_answered(40).tolist() == [20, 40]
    assert numbers_answered(80).tolist() == [20, 32, 50, 80]
    assert numbers_answered(320).tolist() == [20, 32, 50, 80, 127, 202, 320]
    assert numbers_answered(31).tolist() == [31]
    assert numbers_answered(20).tolist() == [20]
    assert numbers_answered(5).tolist() == [5]
    assert numbers_answered(10_000).size == 14


def test_equal_scores_are_answered_together() -> None:
    """80 rows: the ranks 20, 32, 50 and 80 fall on scores shared by 30, 20 and 30 rows."""
    scores = [0.9] * 30 + [0.5] * 10 + [0.5 + 1e-14] * 10 + [0.2] * 30
    counts = selective_counts(scores, [1] * 30 + [0] * 20 + [1] * 30)
    assert counts == SelectiveCounts((0.9, 0.5, 0.2), (30, 50, 80), (0, 20, 20))


@settings(deadline=None)
@given(scored, st.randoms(use_true_random=False))
def test_threshold_counts_do_not_depend_on_the_order(rows: list, random) -> None:
    counts = counted(rows)
    for threshold, answered, wrong in zip(counts.thresholds, counts.answered, counts.wrong, strict=True):
        kept = [right for score, right in rows if score >= threshold]
        assert (len(kept), kept.count(0)) == (answered, wrong)
    assert counts.answered[-1] == len(rows)
    random.shuffle(rows)
    assert counted(rows) == counts


def test_thresholds_do_not_depend_on_the_verdicts() -> None:
    rng = np.random.default_rng(0)
    scores, right = rng.random(500).round(2), rng.random(500) < 0.5
    counts, other = selective_counts(scores, right), selective_counts(scores, ~right)
    assert (counts.thresholds, counts.answered) == (other.thresholds, other.answered)
    assert counts.wrong != other.wrong


def test_small_promises_by_hand() -> None:
    """40 rows: bounds on 20 and on all, each at half of 10 %: 1 - 0.05^(1/20) = 0.139 for 20 right ones."""
    counts = selective_counts(np.arange(40, 0, -1.0), [1] * 30 + [0] * 10)
    assert counts == SelectiveCounts((21.0, 1.0), (20, 40), (0, 10))
    first, last = simultaneous_bounds(counts)
    assert first == pytest.approx(1 - 0.05 ** (1 / 20))
    assert binom.cdf(10, 40, last) == pytest.approx(0.05)
    strict, lax, none = (promise(counts, target) for target in (0.14, 0.4, 0.13))
    assert (strict.threshold, strict.answered, strict.wrong, strict.coverage) == (21.0, 20, 0, 0.5)
    assert strict.lowest_error == strict.target_error == 0.14
    assert last < 0.4
    assert (lax.threshold, lax.answered, lax.wrong, lax.coverage) == (1.0, 40, 10, 1.0)
    assert (none.threshold, none.answered, none.coverage) == (None, 0, 0.0)
    assert none.lowest_error == lowest_error(counts) == 0.14


def test_no_promise_with_too_few_or_only_wrong_rows() -> None:
    assert MIN_ANSWERED == 20
    for size, result in ((20, 0.109), (19, None)):
        assert lowest_error(selective_counts(np.arange(float(size)), np.ones(size))) == result
    for counts in (
        selective_counts(np.arange(19.0), np.ones(19)),
        selective_counts(np.arange(50.0), np.zeros(50)),
        # One right at the end of 600: the bound, above 0.9995, would be rounded to 1, which is not a target.
        selective_counts(np.arange(600, 0, -1.0), [0] * 599 + [1]),
    ):
        made = promise(counts, 0.9)
        assert (made.threshold, made.lowest_error) == (None, None)


@settings(deadline=None)
@given(scored, confidences, st.floats(0.01, 0.99))
def test_bounds_share_the_error_probability_and_promises_maximise_coverage(
    rows: list, confidence: float, target: float
) -> None:
    counts = counted(rows)
    bounds = simultaneous_bounds(counts, confidence)
    for bound, answered, wrong in zip(bounds, counts.answered, counts.wrong, strict=True):
        if answered < MIN_ANSWERED:
            assert bound == 1
        elif wrong < answered:
            missed = binom.cdf(wrong, answered, bound)
            assert missed * len(bounds) == pytest.approx(1 - confidence, rel=1e-6)
    made = promise(counts, target, confidence)
    within = [at for at, bound in zip(counts.answered, bounds, strict=True) if bound <= target]
    assert made.answered == max(within, default=0)
    assert (made.threshold is None) == (not within)
    assert made.answered == sum(made.threshold is not None and score >= made.threshold for score, _ in rows)


@settings(deadline=None)
@given(scored, confidences, st.floats(0.01, 0.98), st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_laxer_target_or_confidence_answers_at_least_as_much(
    rows: list, confidence: float, target: float, more: float, less: float
) -> None:
    counts = counted(rows)
    made = promise(counts, target, confidence)
    assert promise(counts, min(target + more, 0.99), confidence).answered >= made.answered
    assert promise(counts, target, confidence * (1 - less)).answered >= made.answered


@settings(deadline=None)
@given(scored, confidences)
def test_lowest_error_is_reachable_and_nothing_lower_is(rows: list, confidence: float) -> None:
    counts = counted(rows)
    lowest = lowest_error(counts, confidence)
    if lowest is None:
        assert promise(counts, 0.999, confidence).threshold is None
    else:
        assert promise(counts, lowest, confidence).threshold is not None
        assert lowest <= 0.001 or promise(counts, lowest - 0.001, confidence).lowest_error == lowest


def test_never_answered_rows_count_only_in_the_total() -> None:
    counts = selective_counts([0.9, 1.0, 0.2], [1, 0, 1], np.array([True, False, True]))
    assert counts == SelectiveCounts((0.2,), (2,), (0,), 1)
    assert counts.num_rows == 3
    none = selective_counts([0.9, 0.2], [1, 0], np.array([False, False]))
    assert (none, none.num_rows) == (SelectiveCounts((), (), (), 2), 2)
    made = promise(none, 0.9)
    assert (made.threshold, made.coverage, made.lowest_error) == (None, 0.0, None)
    many = selective_counts(np.arange(80, 0, -1.0), [1] * 40 + [0] * 40, np.arange(80) % 2 == 0)
    assert many.answered == (20, 40)
    assert promise(many, 0.9).coverage == 0.5
    for wrong in ([True], [1, 0]):
        with pytest.raises(ValueError, match="answerable"):
            selective_counts([0.9, 0.2], [1, 0], wrong)


def test_extreme_confidence_promises_nothing() -> None:
    """Divided among the bounds, the remaining error probability is below machine precision."""
    counts = selective_counts(np.arange(40, 0, -1.0), np.ones(40))
    assert promise(counts, 0.999, np.nextafter(1.0, 0.0)).threshold is None


def test_invalid_arguments_are_refused() -> None:
    counts = selective_counts([0.5], [1])
    for target in (0.0, 1.0):
        with pytest.raises(ValueError, match="target"):
            promise(counts, target)
    for confidence in (0.0, 1.1):
        with pytest.raises(ValueError, match="confidence"):
            promise(counts, 0.5, confidence)
    for scores in ([0.5, 0.4], [np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="score"):
            selective_counts(scores, [1])


WORLDS = 1000
# Three standard errors of a share of 0.1.
ALLOWED = 0.1 + 3 * np.sqrt(0.1 * 0.9 / WORLDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [4000, 10])
@pytest.mark.parametrize("size", [40, 300])
def test_all_promises_are_kept_at_once_in_simulated_worlds(kind: str, steps: int, size: int) -> None:
    """For scores with and without ties, on `steps` + 1 values."""
    tally_ = tally(World(KINDS[kind], steps), WORLDS, size)
    assert tally_.broken / WORLDS <= ALLOWED
    assert tally_.broken / max(tally_.shown, 1) <= ALLOWED
    # The promises are not vacuous: bounds are near the errors.
    assert tally_.broken / WORLDS > 0.01


def test_a_naive_threshold_breaks_its_target() -> None:
    assert broken_by(naive, World(KINDS["few right"]), TARGETS, 300, 200).max() > 0.45


@pytest.mark.parametrize("law", ["as the prior", "worthless"])
def test_folds_keep_the_bounds_on_the_model_of_all_rows(law: str) -> None:
    """All rows are counted, each scored by the model of the other folds."""
    world, rng, worlds, broken = VerdictWorld(law, 0.3), np.random.default_rng(0), 150, 0
    for _ in range(worlds):
        counts, truth = world.rivals(rng, 300)["folds"]
        errors = np.array([truth.error(threshold) for threshold in counts.thresholds])
        broken += bool((errors > simultaneous_bounds(counts)).any())
    assert broken / worlds <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / worlds)


def test_rows_that_fitted_a_model_of_many_features_break_bounds_that_folds_keep() -> None:
    """Claims that no feature can rank, 70 % of them wrong."""
    names, worlds, broken = (*FEATURES_OF_CLAIMS, *FEATURES_OF_TOKENS), 200, {"folds": 0, "fitted": 0}
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        columns = dict(zip(names, rng.standard_normal((len(names), 100)), strict=True))
        right = rng.random(100) < 0.3
        fold = stratified_folds(right, 5, rng)
        scores = {
            "folds": held_out_predictions(columns, right, names, fold),
            "fitted": fit_model(columns, right, names).predict(columns),
        }
        for way, values in scores.items():
            broken[way] += bool((simultaneous_bounds(selective_counts(values, right)) < 0.7).any())
    assert broken["folds"] / worlds <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / worlds)
    assert broken["fitted"] > 2 * broken["folds"]
