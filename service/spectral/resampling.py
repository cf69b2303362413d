"""Bootstrap over prompts: intervals, and differences between two figures on the same prompts, in pairs.

Source: Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993 (percentile intervals).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Resamples:
    """How many resamples, or null worlds, stand behind each kind of figure. At least 20 for a band.

    bootstrap: refits of a map; nulls: worlds of Algorithm 1; band: worlds of the projection and of labels;
    auroc, difference: of an AUROC, and of a mean difference; figure_difference: of figures that are no means,
    each binned or ranked anew; answers: those that all numbers of answers share.
    """

    bootstrap: int = 200
    nulls: int = 100
    band: int = 1000
    auroc: int = 1000
    difference: int = 2000
    figure_difference: int = 500
    answers: int = 1000


DEFAULT = Resamples()


def grouped(groups: ArrayLike | None, size: int) -> Ints:
    """Return the group 0 .. G - 1 of each of n = `size` rows; None: each row is one of its own.

    Rows that go together, as the claims of one answer do, are drawn and held out together: a group
    counts for one. Raises ValueError for groups that are not one for each row.
    """
    if groups is None:
        return np.arange(size)
    numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
    if numbers.shape != (size,):
        raise ValueError("every row needs a group")
    return numbers


def resample_counts(groups: Ints, resamples: int, rng: np.random.Generator) -> Ints:
    """Return how often each of B resamples of the groups holds each row, (B, n); groups: as `grouped`."""
    number = int(groups.max()) + 1
    return rng.multinomial(number, np.full(number, 1 / number), size=resamples)[:, groups]


def resampled(size: int, rng: np.random.Generator, groups: Ints | None = None) -> Ints:
    """Return the rows (..,) of one resample of n = `size` rows, or of their groups (n,), whole."""
    if groups is None:
        return rng.integers(0, size, size)
    [counts] = resample_counts(grouped(groups, size), 1, rng)
    return np.repeat(np.arange(size), counts)


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, low <= high; NaN where nothing is known."""

    low: float
    high: float


def percentile_interval(values: Floats, level: float = 0.95) -> Interval:
    """Return the interval that holds the middle `level` (0..1) of resampled values (B,).

    Values that are NaN are left out; of fewer than two others there is no interval: NaN.
    """
    known = values[np.isfinite(values)]
    if known.size < 2:
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two figures, and its percentile interval."""

    value: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def mean_difference(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    resamples: int = DEFAULT.difference,
    groups: Ints | None = None,
) -> Difference:
    """Return the mean of first - second (n,), paired by prompt.

    groups: (n,), those that are drawn whole; None: each prompt is one. Raises ValueError for other shapes.
    """
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if gaps.ndim != 1 or gaps.size == 0:
        raise ValueError("a paired difference needs two vectors of one length")
    means = np.array([gaps[resampled(gaps.size, rng, groups)].mean() for _ in range(resamples)])
    spread = percentile_interval(means)
    return Difference(float(gaps.mean()), spread.low, spread.high)


def figure_difference(
    figure: Callable[[Ints], tuple[float, float]],
    size: int,
    rng: np.random.Generator,
    *,
    resamples: int = DEFAULT.figure_difference,
) -> Difference:
    """Return the difference of two figures that are no means (AUROC, ECE).

    figure: from prompts picked (size,) to both figures. Resamples where one is NaN are left out.
    """
    value = np.subtract(*figure(np.arange(size)))
    picks = (rng.integers(0, size, size) for _ in range(resamples))
    # Both figures of each pick: that is what pairs them.
    spread = percentile_interval(np.array([np.subtract(*figure(pick)) for pick in picks]))
    return Difference(float(value), spread.low, spread.high)


def one_of_each(groups: ArrayLike, rng: np.random.Generator) -> Ints:
    """Return a random row of each group (n,), ascending: rows that exact bounds may take for independent."""
    numbers = np.asarray(groups)
    order = rng.permutation(numbers.size)
    return np.sort(order[np.unique(numbers[order], return_index=True)[1]])


@dataclass(frozen=True, slots=True, eq=False)
class ResampleCounts:
    """One set of resamples for many figures of the same n prompts, so that all of them pair.

    counts: (B, n), how often each of B resamples holds each prompt; of sum n, but for groups of unequal
    sizes. Where dozens of figures are compared, as by number of answers, a product each costs less than
    drawing anew.
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
        """Return so many resamples of n = `size` prompts, or of their groups (n,), whole.

        Raises ValueError for no prompts, or groups that are not one for each.
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
        """Return as `of`, but drawn one by one as `resampled` does: AUROCs of reports rest on this stream."""
        counts = np.empty((number, size))
        for row in counts:
            row[:] = np.bincount(resampled(size, rng, groups), minlength=size)
        return cls(counts)

    @classmethod
    def once(cls, size: int) -> Self:
        """Return the prompts as they are, each once."""
        return cls(np.ones((1, size)))

    def means(self, values: ArrayLike) -> Floats:
        """Return the mean of values (n,) in each resample, (B,)."""
        column = np.asarray(values, dtype=np.float64)
        return np.asarray(self.counts @ column / self.counts.sum(axis=1))
