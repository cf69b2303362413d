"""Bootstrap over prompts: intervals, and paired differences between two figures on the same prompts.

Source: Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993 (percentile intervals).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


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


def resample_counts(groups: Ints, resamples: int, rng: np.random.Generator) -> Ints:
    """Return the count of each row in each of B resamples of the groups, (B, n). groups: from `grouped`."""
    number = int(groups.max()) + 1
    return rng.multinomial(number, np.full(number, 1 / number), size=resamples)[:, groups]


def resampled(size: int, rng: np.random.Generator, groups: Ints | None = None) -> Ints:
    """Return the rows (..,) of one resample of n = `size` rows. groups: (n,), drawn as a whole."""
    if groups is None:
        return rng.integers(0, size, size)
    [counts] = resample_counts(grouped(groups, size), 1, rng)
    return np.repeat(np.arange(size), counts)


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
    means = np.array([gaps[resampled(gaps.size, rng, groups)].mean() for _ in range(resamples)])
    spread = percentile_interval(means)
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
        return cls(resample_counts(grouped(groups, size), number, rng).astype(np.float64))

    @classmethod
    def picked(
        cls,
        size: int,
        rng: np.random.Generator,
        number: int = DEFAULT.auroc,
        groups: Ints | None = None,
    ) -> Self:
        """Return resamples like `of`, but drawn one by one with `resampled`.

        The AUROCs of reports depend on this random stream.
        """
        counts = np.empty((number, size))
        for row in counts:
            row[:] = np.bincount(resampled(size, rng, groups), minlength=size)
        return cls(counts)

    @classmethod
    def once(cls, size: int) -> Self:
        """Return a single resample with each prompt once."""
        return cls(np.ones((1, size)))

    def means(self, values: ArrayLike) -> Floats:
        """Return the mean of values (n,) in each resample, (B,)."""
        column = np.asarray(values, dtype=np.float64)
        return np.asarray(self.counts @ column / self.counts.sum(axis=1))
