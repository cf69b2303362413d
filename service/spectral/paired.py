"""Is a difference real? Bootstrap of the difference between two figures on the same prompts, in pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two figures, its percentile interval, and the share of resamples above 0."""

    value: float
    low: float
    high: float
    share_above: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def _difference(value: float, drawn: Floats, level: float) -> Difference:
    drawn = drawn[np.isfinite(drawn)]
    if drawn.size == 0:
        return Difference(value, float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Difference(value, float(low), float(high), float((drawn > 0).mean()))


def mean_difference(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Difference:
    """Return the mean of first - second (n,), paired by prompt. Raises ValueError for other shapes."""
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if gaps.ndim != 1 or gaps.size == 0:
        raise ValueError("a paired difference needs two vectors of one length")
    means = np.array([gaps[rng.integers(0, gaps.size, gaps.size)].mean() for _ in range(resamples)])
    return _difference(float(gaps.mean()), means, level)


def figure_difference(
    figure: Callable[[Ints], tuple[float, float]],
    size: int,
    rng: np.random.Generator,
    *,
    resamples: int = 500,
    level: float = 0.95,
) -> Difference:
    """Return the difference of two figures that are no means (AUROC, ECE).

    figure: from prompts picked (size,) to both figures. Resamples where one is NaN are left out.
    """
    value = np.subtract(*figure(np.arange(size)))
    picks = (rng.integers(0, size, size) for _ in range(resamples))
    # Both figures of each pick: that is what pairs them.
    drawn = np.array([np.subtract(*figure(pick)) for pick in picks])
    return _difference(float(value), drawn, level)
