"""Random parts of rows that hold right and wrong answers in equal shares (stratified)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int_]


def verdicts(labels: ArrayLike) -> NDArray[np.bool_]:
    """Return labels (n,) in {0, 1} as booleans, True = right. Raises ValueError for anything else."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.size == 0 or not np.isin(values, (0, 1)).all():
        raise ValueError("verdicts must be a non-empty vector of 0 and 1")
    return values.astype(bool)


def stratified_folds(labels: ArrayLike, folds: int, rng: np.random.Generator) -> Ints:
    """Return a random fold 0 .. folds - 1 for each row (n,), both kinds spread as evenly as can be.

    The second kind begins where the first ended, so that folds are of equal size, too. Raises ValueError for
    fewer than two folds, or labels that are no verdicts.
    """
    right = verdicts(labels)
    if folds < 2:
        raise ValueError("at least two folds are needed")
    order = np.concatenate([rng.permutation(np.flatnonzero(right == kind)) for kind in (True, False)])
    found = np.empty(right.size, dtype=np.int_)
    found[order] = np.arange(right.size) % folds
    return found


def stratified_split(labels: ArrayLike, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask (n,): True for a random `share` in (0, 1) of the rows of either kind, rounded.

    Raises ValueError for a share outside of (0, 1), or labels that are no verdicts.
    """
    right = verdicts(labels)
    if not 0 < share < 1:
        raise ValueError("share must be in (0, 1)")
    taken = np.zeros(right.size, dtype=np.bool_)
    for kind in (True, False):
        rows = rng.permutation(np.flatnonzero(right == kind))
        taken[rows[: round(share * rows.size)]] = True
    return taken
