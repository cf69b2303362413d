import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from benchmarks.selective_worlds import KINDS, TARGETS, World, broken
from service.spectral.selective import (
    MIN_ANSWERED,
    SelectiveCounts,
    error_bound,
    promises,
    selective_counts,
    thinned,
)

scored = st.lists(
    st.tuples(st.integers(0, 8).map(lambda x: x / 8), st.integers(0, 1)), min_size=1, max_size=80
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


def test_counts_by_hand_with_ties() -> None:
    counts = selective_counts([0.2, 0.9, 0.5, 0.5, 0.5 + 1e-14, 0.2], [0, 1, 1, 0, 0, 1])
    assert counts.thresholds == (0.9, 0.5, 0.2)
    assert counts.answered == (1, 4, 6)
    assert counts.wrong == (0, 2, 3)
    assert counts.num_rows == 6


@settings(deadline=None)
@given(scored, st.randoms(use_true_random=False))
def test_a_threshold_answers_what_it_counts_in_any_order(rows: list, random) -> None:
    counts = counted(rows)
    for threshold, answered, wrong in zip(counts.thresholds, counts.answered, counts.wrong, strict=True):
        kept = [right for score, right in rows if score >= threshold]
        assert (len(kept), kept.count(0)) == (answered, wrong)
    random.shuffle(rows)
    assert counted(rows) == counts


def test_a_promise_by_hand() -> None:
    """30 right above 10 wrong: 25 % wrong of all 40. With 95 %, 29 right answers promise 0.098."""
    counts = selective_counts(np.arange(40, 0, -1.0), [1] * 30 + [0] * 10)
    [tight, lax, none] = promises(counts, [0.1, 0.4, 0.09], 0.95)
    assert (tight.threshold, tight.answered, tight.wrong) == (11.0, 30, 0)
    assert tight.coverage == 0.75
    assert tight.lowest_error == tight.target_error == 0.1
    assert error_bound(0, 30, 0.95) <= 0.1 < error_bound(1, 31, 0.95)
    assert (lax.threshold, lax.answered, lax.wrong) == (1.0, 40, 10)
    assert error_bound(10, 40, 0.95) <= 0.4
    assert (none.threshold, none.answered, none.coverage) == (None, 0, 0.0)
    assert none.lowest_error == pytest.approx(float(error_bound(0, 30, 0.95)))


def test_the_sequence_stops_at_its_first_failure() -> None:
    """Ten wrong in the middle end it, though all rows together would pass."""
    right = [1] * 25 + [0] * 10 + [1] * 365
    counts = selective_counts(np.arange(400, 0, -1.0), right)
    assert error_bound(10, 400) < 0.1
    [found] = promises(counts, [0.1])
    assert (found.answered, found.wrong) == (25, 0)
    assert found.coverage == 25 / 400


def test_a_target_that_needs_more_rows_than_there_are_is_unreachable() -> None:
    counts = selective_counts(np.arange(25, 0, -1.0), np.ones(25))
    [found] = promises(counts, [0.05])
    assert found.threshold is None
    assert found.lowest_error == pytest.approx(float(error_bound(0, 25)))
    [few] = promises(selective_counts(np.arange(5.0), np.ones(5)), [0.9])
    assert (few.threshold, few.lowest_error) == (None, None)
    [all_wrong] = promises(selective_counts(np.arange(50.0), np.zeros(50)), [0.9])
    assert (all_wrong.threshold, all_wrong.lowest_error) == (None, None)


def test_where_the_sequence_starts() -> None:
    """One wrong answer on top ends a sequence that starts there; one that starts at 20 goes on to the end."""
    counts = selective_counts(np.arange(200, 0, -1.0), [0] + [1] * 199)
    assert promises(counts, [0.9], fewest=1)[0].threshold is None
    assert promises(counts, [0.9])[0].coverage == 1.0
    assert promises(counts, [0.9], fewest=201)[0].lowest_error is None


@settings(deadline=None)
@given(scored, st.floats(0.01, 0.99), st.floats(0.5, 0.99), st.integers(1, 30))
def test_what_is_promised_passed_its_test_and_the_lowest_error_can_be_had(
    rows: list, target: float, confidence: float, fewest: int
) -> None:
    counts = counted(rows)
    [found] = promises(counts, [target], confidence, fewest=fewest)
    if found.threshold is None:
        assert (found.answered, found.wrong, found.coverage) == (0, 0, 0.0)
        if found.lowest_error is not None:
            assert found.lowest_error >= target
            [again] = promises(counts, [found.lowest_error], confidence, fewest=fewest)
            assert again.threshold is not None
            for error in np.linspace(target, found.lowest_error, 9)[:-1]:
                assert promises(counts, [error], confidence, fewest=fewest)[0].threshold is None
    else:
        assert error_bound(found.wrong, found.answered, confidence) <= target + 1e-9
        assert found.answered >= fewest
        assert found.answered == sum(score >= found.threshold for score, _ in rows)


@settings(deadline=None)
@given(scored, st.floats(0.11, 0.98), st.floats(0.0, 0.9))
def test_a_laxer_target_answers_no_less(rows: list, target: float, more: float) -> None:
    """Above 0.109, the bound of 20 right answers: there every sequence starts at the same threshold."""
    [strict, lax] = promises(counted(rows), [target, min(target + more, 0.99)])
    assert lax.answered >= strict.answered


def triples(counts: SelectiveCounts) -> list[tuple[float, int, int]]:
    return list(zip(counts.thresholds, counts.answered, counts.wrong, strict=True))


def test_rows_that_are_never_answered_count_as_rows_and_under_no_threshold() -> None:
    counts = selective_counts([0.9, 1.0, 0.2], [1, 0, 1], np.array([True, False, True]))
    assert counts == SelectiveCounts((0.9, 0.2), (1, 2), (0, 0), 1)
    assert counts.num_rows == 3
    none = selective_counts([0.9, 0.2], [1, 0], np.array([False, False]))
    assert (none, none.num_rows) == (SelectiveCounts((), (), (), 2), 2)
    assert thinned(none, 5) == none
    [found] = promises(none, [0.9])
    assert (found.threshold, found.coverage, found.lowest_error) == (None, 0.0, None)
    many = selective_counts(np.arange(80, 0, -1.0), [1] * 40 + [0] * 40, np.arange(80) % 2 == 0)
    assert thinned(many, 5).num_rows == many.num_rows == 80
    assert promises(many, [0.9])[0].coverage == 0.5
    for wrong in ([True], [1, 0]):
        with pytest.raises(ValueError, match="answerable"):
            selective_counts([0.9, 0.2], [1, 0], wrong)


def test_thinned_counts_are_some_of_the_thresholds_whoever_is_right() -> None:
    rng = np.random.default_rng(0)
    scores, right = rng.random(1000), rng.random(1000) < 0.6
    whole, other = selective_counts(scores, right), selective_counts(scores, ~right)
    kept = thinned(whole, 50)
    assert len(kept.thresholds) == 50
    assert (kept.num_rows, kept.answered[0]) == (1000, 1)
    assert set(triples(kept)) <= set(triples(whole))
    assert kept.thresholds == thinned(other, 50).thresholds
    assert max(np.diff(kept.answered)) <= 21
    assert thinned(whole, 1000) == thinned(whole, 5000) == whole


def test_unusable_arguments_are_refused() -> None:
    counts = selective_counts([0.5], [1])
    for target in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="target"):
            promises(counts, [target])
    for confidence in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="confidence"):
            promises(counts, [0.5], confidence)
    for scores in ([0.5, 0.4], [np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="score"):
            selective_counts(scores, [1])


WORLDS = 2000
# Three standard errors of a share of 0.1.
ALLOWED = 0.1 + 3 * np.sqrt(0.1 * 0.9 / WORLDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_is_kept_in_simulated_worlds_and_a_naive_threshold_breaks_it(kind: str) -> None:
    kept, naively = broken(World(KINDS[kind]), TARGETS, WORLDS, 200)
    assert (kept <= ALLOWED).all()
    assert kept.max() > 0.02  # it is no empty promise: thresholds near the target are chosen
    assert naively.max() > 0.45
    assert naively[0] > 0.2


@pytest.mark.parametrize("target", [0.3, 0.6, 0.9])
def test_the_promise_is_kept_where_every_threshold_would_break_it(target: float) -> None:
    """The hardest world: a score that knows nothing, and an error just above the target everywhere."""
    world = World(lambda s: np.full_like(s, 1 - target - 1e-6))
    kept, naively = broken(world, (target,), WORLDS, 100)
    assert 0.02 < kept[0] <= ALLOWED
    assert naively[0] > 0.5


def test_the_least_number_of_answers_is_what_makes_few_right_answers_usable() -> None:
    """Started at the first threshold that could pass at all, a target of 0.8 is reached a third as often."""
    world, rng = World(KINDS["few right"]), np.random.default_rng(0)
    drawn = [world.draw(rng, 200) for _ in range(200)]
    reached = [
        np.mean([promises(counts, [0.8], fewest=fewest)[0].threshold is not None for counts in drawn])
        for fewest in (1, MIN_ANSWERED)
    ]
    assert reached[0] < 0.4
    assert reached[1] > 0.75
