"""Grouped rows, such as the claims of one answer, are folded, resampled and counted together."""

import numpy as np
import pytest

from service.spectral.correctness_model import fit_correctness, stratified_folds


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


def test_unusable_arguments_are_refused() -> None:
    rng = np.random.default_rng(0)
    for bad in ([], [0, 2], [[0, 1]], [np.nan]):
        with pytest.raises(ValueError, match="verdicts"):
            stratified_folds(bad, 2, rng)
    with pytest.raises(ValueError, match="two folds"):
        stratified_folds([0, 1], 1, rng)
    with pytest.raises(ValueError, match="every row needs a group"):
        stratified_folds([0, 1, 1], 2, rng, [0, 1])
