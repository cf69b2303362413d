import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.correctness_model import stratified_folds

labels = st.lists(st.integers(0, 1), min_size=1, max_size=80)


@settings(deadline=None)
@given(labels, st.integers(2, 7), st.integers(0, 99))
def test_folds_are_stratified(right: list[int], folds: int, seed: int) -> None:
    fold = stratified_folds(right, folds, np.random.default_rng(seed))
    sizes = [np.bincount(fold[np.array(right) == kind], minlength=folds) for kind in (0, 1)]
    for size in [*sizes, sizes[0] + sizes[1]]:
        assert size.max() - size.min() <= 1
    assert fold.tolist() == stratified_folds(right, folds, np.random.default_rng(seed)).tolist()


def test_folds_depend_on_the_seed() -> None:
    right = [1, 0] * 20
    folds = {tuple(stratified_folds(right, 2, np.random.default_rng(seed)).tolist()) for seed in range(5)}
    assert len(folds) == 5


def test_unusable_arguments_are_refused() -> None:
    rng = np.random.default_rng(0)
    for bad in ([], [0, 2], [[0, 1]], [np.nan]):
        with pytest.raises(ValueError, match="verdicts"):
            stratified_folds(bad, 2, rng)
    with pytest.raises(ValueError, match="two folds"):
        stratified_folds([0, 1], 1, rng)
