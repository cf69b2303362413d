import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from benchmarks.selective_worlds import KINDS, VerdictWorld, World, tally
from service.spectral.selective import (
    SelectiveCounts,
    error_bound,
    lowest_error,
    promise,
    rows_to_promise,
    selective_counts,
    simultaneous_bounds,
)

scored = st.lists(
    st.tuples(st.integers(0, 40).map(lambda x: x / 40), st.integers(0, 1)), min_size=1, max_size=120
)


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


@pytest.mark.parametrize(
    ("counts", "target", "rows"),
    [
        # 67 rows have three thresholds: log(0.1 / 3) / log(0.95) = 66.3.
        (SelectiveCounts((0.5,), (30,), (0,)), 0.05, 37),
        (SelectiveCounts((0.5,), (45,), (0,)), 0.05, 0),
        # Half of the rows are let through, so 132.6 rows are needed.
        (SelectiveCounts((0.5,), (15,), (0,), never_answered=15), 0.05, 103),
        # Four thresholds: log(0.1 / 4) / log(0.95) = 71.9 answers, which are three in four rows.
        (SelectiveCounts((0.9, 0.5), (30, 40), (0, 40)), 0.05, 56),
        # 20 answered rows are the fewest of a promise.
        (SelectiveCounts((0.5,), (10,), (0,)), 0.5, 10),
        # A tenth is wrong: no number of rows promises that at most a tenth is.
        (SelectiveCounts((0.5,), (100,), (10,)), 0.1, None),
        (SelectiveCounts((), (), (), 30), 0.1, None),
    ],
)
def test_rows_that_a_promise_lacks(counts: SelectiveCounts, target: float, rows: int | None) -> None:
    assert rows_to_promise(counts, target) == rows


@settings(deadline=None)
@given(scored, st.floats(0.05, 0.95), st.floats(0.5, 0.999))
def test_a_target_is_promised_with_the_rows_that_it_lacks(
    rows: list[tuple[float, int]], target: float, confidence: float
) -> None:
    counts = counted(rows)
    missing = rows_to_promise(counts, target, confidence)
    assert (missing == 0) == (promise(counts, target, confidence).threshold is not None)
    if missing:
        assert (simultaneous_bounds(counts, confidence, more_rows=missing) <= target).any()
        assert (simultaneous_bounds(counts, confidence, more_rows=missing - 1) > target).all()


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


@pytest.mark.parametrize("law", ["as the prior", "worthless"])
def test_folds_keep_the_bounds_on_the_model_of_all_rows(law: str) -> None:
    """All rows are counted, each scored by the model of the other folds."""
    world, rng, worlds, broken = VerdictWorld(law, 0.3), np.random.default_rng(0), 150, 0
    for _ in range(worlds):
        counts, truth = world.rivals(rng, 300)["folds"]
        errors = np.array([truth.error(threshold) for threshold in counts.thresholds])
        broken += bool((errors > simultaneous_bounds(counts)).any())
    assert broken / worlds <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / worlds)
