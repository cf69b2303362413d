"""Resampling that only experiments need: its numbers, its random streams, differences of figures."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral import resampling
from service.spectral.resampling import Difference, percentile_interval

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Resamples(resampling.Resamples):
    """Numbers of resamples or null worlds, by kind of figure.

    nulls: worlds of Algorithm 1. optimum: refits of the constant predictor. figure_difference: resamples of a
    difference of figures that are binned or ranked again for each.
    """

    nulls: int = 100
    optimum: int = 200
    figure_difference: int = 500


DEFAULT = Resamples()


# Streams of random numbers, besides those of `service.calibration.fitting.Stream`. Never change a number:
# every figure drawn with it would change.
ALGORITHM1, CONVERGENCE, CONSTANT = 4, 5, 6


def figure_difference(
    figure: Callable[[Ints], tuple[float, float]],
    size: int,
    rng: np.random.Generator,
    *,
    resamples: int = DEFAULT.figure_difference,
) -> Difference:
    """Return the paired difference of two figures that are not means (AUROC, ECE), with its interval.

    figure: maps indices of prompts (size,) to both figures. Resamples with a NaN figure are left out.
    """
    value = np.subtract(*figure(np.arange(size)))
    picks = (rng.integers(0, size, size) for _ in range(resamples))
    # Both figures are computed on the same prompts, which pairs them.
    spread = percentile_interval(np.array([np.subtract(*figure(pick)) for pick in picks]))
    return Difference(float(value), spread.low, spread.high)
