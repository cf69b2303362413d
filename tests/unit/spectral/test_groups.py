"""Grouped rows, such as the claims of one answer, are folded, resampled and counted together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.correctness_model import fit_correctness, stratified_folds
from service.spectral.fit import assign_folds, bootstrap, cross_validated_risks, fit
from service.spectral.resampling import ResampleCounts, one_of_each
from service.spectral.selective import selective_counts, simultaneous_bounds
from tests.unit.spectral.worlds import random_dev_set, seeds

groups = st.lists(st.integers(0, 9), min_size=12, max_size=40).filter(lambda item: len(set(item)) > 4)


def whole(fold: np.ndarray, group: list[int]) -> bool:
    """Return whether each group is in one fold."""
    return len(set(zip(group, fold.tolist(), strict=True))) == len(set(group))


@settings(deadline=None)
@given(groups, seeds)
def test_folds_keep_groups_whole_and_are_balanced(group: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    right = rng.random(len(group)) < 0.4
    for fold in (assign_folds(len(group), 5, rng, group), stratified_folds(right, 5, rng, group)):
        assert whole(fold, group)
        sizes = np.bincount([fold[group.index(item)] for item in set(group)], minlength=5)
        assert sizes.max() - sizes.min() <= 1


def test_groups_are_stratified_by_the_number_of_right_rows() -> None:
    group = np.repeat(np.arange(20), 3)
    right = np.isin(group, range(5)) & (np.arange(60) % 3 < 2)
    fold = stratified_folds(right, 5, np.random.default_rng(0), group)
    assert np.bincount(fold[right]).tolist() == [2] * 5


def test_single_row_groups_equal_ungrouped_rows() -> None:
    dev, own = random_dev_set(1), np.arange(30)[::-1]
    plain, each = (
        bootstrap(dev, "depolarized", rng=np.random.default_rng(0), resamples=3, groups=item)
        for item in (None, np.arange(30))
    )
    assert plain.parameters["temperature"].tolist() == each.parameters["temperature"].tolist()
    resamples, other = (ResampleCounts.of(30, np.random.default_rng(0), 9, by) for by in (None, own))
    assert resamples.counts.tolist() == other.counts[:, ::-1].tolist()


def test_resamples_keep_groups_whole() -> None:
    group = np.array([0, 0, 0, 1, 2, 2])
    counts = ResampleCounts.of(6, np.random.default_rng(0), 50, group)
    assert (counts.counts[:, [0, 0, 4]] == counts.counts[:, [1, 2, 5]]).all()
    assert (counts.counts[:, [0, 3, 4]].sum(axis=1) == 3).all()
    assert counts.means(np.full(6, 0.7)) == pytest.approx(np.full(50, 0.7))


def test_duplicated_rows_do_not_narrow_intervals() -> None:
    """Repeating each prompt four times adds no data."""
    dev, rows = random_dev_set(2), np.repeat(np.arange(30), 4)
    once = bootstrap(dev, "depolarized", rng=np.random.default_rng(0), resamples=5)
    copied = bootstrap(dev.take(rows), "depolarized", rng=np.random.default_rng(0), resamples=5, groups=rows)
    assert copied.parameters["temperature"] == pytest.approx(once.parameters["temperature"], rel=1e-6)


def test_group_is_predicted_by_maps_fitted_without_it() -> None:
    dev, group = random_dev_set(3), np.arange(30) // 3
    risks = cross_validated_risks(dev, {"d": "depolarized"}, rng=np.random.default_rng(0), groups=group)
    assert whole(risks.fold, group.tolist())
    assert risks.maps["d"][0] == fit(dev.take(risks.fold != 0), "depolarized").map


def test_gain_on_duplicated_rows_is_not_more_significant() -> None:
    """Twelve rows, forty times each: significant by row, but not by group."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(12), 40)
    right = np.arange(12) % 2
    columns = {"logit_probability": (right + 2 * rng.standard_normal(12))[group]}
    fold = stratified_folds(right[group], 4, rng, group)
    by_row, by_group = (fit_correctness(columns, right[group], fold, groups=item) for item in (None, group))
    assert by_row.scores == by_group.scores
    assert by_row.model is not None
    assert by_group.why_none == "no_better_than_base_rate"


def test_one_random_row_of_each_group() -> None:
    group = np.array([3, 1, 3, 1, 7])
    drawn = [one_of_each(group, np.random.default_rng(seed)) for seed in range(40)]
    assert {tuple(sorted(group[item].tolist())) for item in drawn} == {(1, 3, 7)}
    assert {row for item in drawn for row in item.tolist()} == set(range(5))


def test_bounds_hold_on_one_row_per_group_but_not_on_all_rows() -> None:
    """Groups of three claims, all right or all wrong; P(correct) is calibrated. Confidence 90 %."""
    rng, worlds, broken = np.random.default_rng(0), 150, {"all": 0, "one of each": 0}
    group = np.repeat(np.arange(200), 3)
    for _ in range(worlds):
        p = rng.random(200)
        right = rng.random(200) < p
        for name, rows in (("all", np.arange(600)), ("one of each", one_of_each(group, rng))):
            counts = selective_counts(p[group[rows]], right[group[rows]])
            errors = (1 - np.array(counts.thresholds)) / 2  # the mean of 1 - p above each threshold
            broken[name] += bool((errors > simultaneous_bounds(counts)).any())
    assert broken["one of each"] <= 0.1 * worlds
    assert broken["all"] > 0.15 * worlds


def test_groups_must_fit_the_rows() -> None:
    with pytest.raises(ValueError, match="every row needs a group"):
        assign_folds(3, 2, np.random.default_rng(0), [0, 1])
    with pytest.raises(ValueError, match="at least two prompts"):
        assign_folds(3, 2, np.random.default_rng(0), [0, 0, 0])
