"""Bootstrap over prompts: intervals, and paired differences between two figures on the same prompts.

Source: Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993 (percentile intervals).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
BLOCK = 100  # resamples in memory at a time


@dataclass(frozen=True, slots=True)
class Resamples:
    """Numbers of resamples or null worlds, by kind of figure. A band needs at least 20.

    band: worlds of the projection null and the label band. auroc: resamples of an AUROC. difference:
    resamples of a mean difference. answers: resamples shared by all numbers of answers.
    """

    band: int = 1000
    auroc: int = 1000
    difference: int = 2000
    answers: int = 1000


DEFAULT = Resamples()


def grouped(groups: ArrayLike | None, size: int) -> Ints:
    """Return the group 0 .. G - 1 of each of n = `size` rows; None: each row is its own group.

    Rows of a group, such as the claims of one answer, are drawn and held out together. Raises ValueError
    unless there is one group per row.
    """
    if groups is None:
        return np.arange(size)
    numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
    if numbers.shape != (size,):
        raise ValueError("every row needs a group")
    return numbers


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, low <= high; NaN if unknown."""

    low: float
    high: float


def percentile_interval(values: Floats, level: float = 0.95) -> Interval:
    """Return the interval of the central `level` (0..1) of resampled values (B,).

    Non-finite values are left out. NaN for fewer than two finite values.
    """
    finite = values[np.isfinite(values)]
    if finite.size < 2:
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two figures, and its percentile interval."""

    value: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """True if the interval excludes 0."""
        return self.low > 0 or self.high < 0


def mean_difference(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    resamples: int = DEFAULT.difference,
    groups: Ints | None = None,
) -> Difference:
    """Return the mean of first - second (n,), paired by prompt, with its interval.

    groups: (n,), prompts of a group are drawn together; None: each prompt is its own group. Raises ValueError
    for other shapes.
    """
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if gaps.ndim != 1 or gaps.size == 0:
        raise ValueError("a paired difference needs two vectors of one length")
    blocks = [min(BLOCK, resamples - start) for start in range(0, resamples, BLOCK)]
    means = [ResampleCounts.of(gaps.size, rng, number, groups).means(gaps) for number in blocks]
    spread = percentile_interval(np.concatenate(means))
    return Difference(float(gaps.mean()), spread.low, spread.high)


def one_of_each(groups: ArrayLike, rng: np.random.Generator) -> Ints:
    """Return one random row per group (n,), ascending: such rows are independent, as exact bounds require."""
    numbers = np.asarray(groups)
    order = rng.permutation(numbers.size)
    return np.sort(order[np.unique(numbers[order], return_index=True)[1]])


@dataclass(frozen=True, slots=True, eq=False)
class ResampleCounts:
    """A set of resamples shared by many figures of the same n prompts, so that all figures are paired.

    counts: (B, n), the count of each prompt in each of B resamples; rows sum to n, except with groups of
    unequal sizes. With dozens of figures, one product per figure costs less than drawing resamples again.
    """

    counts: Floats

    @classmethod
    def of(
        cls,
        size: int,
        rng: np.random.Generator,
        number: int = DEFAULT.answers,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Return `number` resamples of n = `size` prompts. groups: (n,), drawn as a whole.

        Raises ValueError for no prompts, or unless there is one group per prompt.
        """
        if size < 1:
            raise ValueError("nothing to resample")
        of_row = grouped(groups, size)
        num_groups = int(of_row.max()) + 1
        counts = np.empty((number, size))
        for row in counts:
            row[:] = np.bincount(rng.integers(0, num_groups, num_groups), minlength=num_groups)[of_row]
        return cls(counts)

    @classmethod
    def once(cls, size: int) -> Self:
        """Return a single resample with each prompt once."""
        return cls(np.ones((1, size)))

    def means(self, values: ArrayLike) -> Floats:
        """Return the mean of values (n,) in each resample, (B,)."""
        column = np.asarray(values, dtype=np.float64)
        return np.asarray(self.counts @ column / self.counts.sum(axis=1))
