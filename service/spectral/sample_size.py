"""How many samples are enough (method, section 4): lambda_max over random subsets of the answers drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class SampleSizeCurve:
    """lambda_max against the number of answers, over prompts and random subsets.

    sizes: (K,) ascending; mean: (K,) of lambda_max in (0, 1], falling towards its large-sample value.
    std: (K,) spread between subsets of one prompt (root of the mean variance). Subsets of one draw overlap,
    so it falls to 0 at the full size and understates the spread of fresh draws near it.
    """

    sizes: Ints
    mean: Floats
    std: Floats


def subset_sizes(num_samples: int, step: int = 5) -> Ints:
    """Return step, 2 step, .. up to num_samples, which is always the last.

    >>> subset_sizes(12).tolist()
    [5, 10, 12]
    """
    if num_samples < 1 or step < 1:
        raise ValueError("num_samples and step must be at least 1")
    return np.array([*range(step, num_samples, step), num_samples], dtype=np.intp)


def subset_lambda_max(
    cosines: ArrayLike, outcomes: ArrayLike, size: int, num_subsets: int, rng: np.random.Generator
) -> Floats:
    """Return lambda_max (num_subsets,) of random subsets of `size` answers, drawn without replacement.

    cosines: (k, k) Gram matrix of the distinct answers; outcomes: (m,) which of them each sample is.
    Raises ValueError when size is not in 1 .. m.
    """
    gram, drawn = np.asarray(cosines, dtype=np.float64), np.asarray(outcomes, dtype=np.intp)
    if not 1 <= size <= drawn.size:
        raise ValueError(f"size must be in 1 .. {drawn.size}, got {size}")
    # `permuted` shuffles every row by itself; `permutation` would shuffle the rows.
    picks = rng.permuted(np.tile(drawn, (num_subsets, 1)), axis=1)[:, :size]
    counts = (picks[:, :, None] == np.arange(gram.shape[0])).sum(axis=1)
    roots = np.sqrt(counts / size)
    return np.asarray(np.linalg.eigvalsh(roots[:, :, None] * gram * roots[:, None, :])[:, -1])


def lambda_max_by_size(
    cosines: Sequence[ArrayLike],
    outcomes: Sequence[ArrayLike],
    rng: np.random.Generator,
    *,
    step: int = 5,
    num_subsets: int = 20,
) -> SampleSizeCurve:
    """Return the curve over n prompts up to the smallest m among them.

    cosines, outcomes: as in `subset_lambda_max`, one of each per prompt.

    Raises ValueError when there are no prompts or the two differ in length.
    """
    if len(cosines) == 0:
        raise ValueError("a curve needs at least one prompt")
    sizes = subset_sizes(min(np.asarray(drawn).size for drawn in outcomes), step)
    pairs = list(zip(cosines, outcomes, strict=True))
    values = np.array(
        [[subset_lambda_max(gram, drawn, s, num_subsets, rng) for s in sizes] for gram, drawn in pairs]
    )
    return SampleSizeCurve(sizes, values.mean(axis=(0, 2)), np.sqrt(values.var(axis=2).mean(axis=0)))
