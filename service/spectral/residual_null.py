"""What the projection ECE reads under calibration, with the spread of real references (method, section 4).

The mean of c_1 = u_1^T Y u_1 in a bin is unbiased, but the ECE is a sum of absolute gaps: chance alone makes
it greater than 0, by more for fewer prompts. How much more depends on how c_1 spreads around its mean. So the
null keeps that spread: it is a residual bootstrap. (A reference drawn as one eigenvector has c_1 of 0 or 1
and about twice the spread of a real one; its band is about twice too wide.)

Sources: method, section 4 (ours); Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 9
(residual bootstrap); Phipson and Smyth, *Permutation P-values Should Never Be Zero*, 2010 (the + 1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.reliability import (
    ConsistencyBand,
    bin_index,
    bin_means,
    consistency_band,
    equal_mass_bins,
    rounded_ties,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Prompts of like lambda_max. Fewer, and their spread is known badly (20 of 30 prompts: 6 to 8 % of calibrated
# worlds are called miscalibrated at 5 %); more, and the spread of unlike prompts is mixed in.
NEIGHBOURS = 40
BLOCK_ENTRIES = 2_000_000  # of one block of draws: 16 MB
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """A figure's null: its band, and the share of null worlds that read as much as was observed.

    p_value: (1 + draws at or above the figure) / (1 + draws), in (0, 1]. Small = not calibrated. NaN where
    the figure is unknown.
    """

    band: ConsistencyBand
    p_value: float


def upper_p_value(drawn: Floats, observed: float) -> float:
    """Return (1 + number of draws (D,) >= observed, but for rounding) / (1 + D); NaN for a NaN figure."""
    if np.isnan(observed):
        return float("nan")
    return float((1 + np.count_nonzero(drawn >= observed - ROUNDING)) / (1 + drawn.size))


def neighbourhoods(lambda_max: Floats, rng: np.random.Generator, neighbours: int = NEIGHBOURS) -> Ints:
    """Return for each prompt the k nearest in the order of lambda_max (n,), itself included: (n, k), k <= n.

    Ties stand in random order: in the order of the file, like neighbours could be alike in c_1, too.
    """
    size = lambda_max.size
    # lexsort sorts by its last key first.
    order = np.lexsort((rng.random(size), rounded_ties(lambda_max)))
    k = min(neighbours, size)
    # At both ends the window is shifted, not cut: everyone has k neighbours.
    first = np.clip(np.arange(size) - k // 2, 0, size - k)
    near = np.empty((size, k), dtype=np.intp)
    near[order] = order[first[:, None] + np.arange(k)]
    return near


def centred_residuals(gaps: Floats, near: Ints) -> Floats:
    """Return the residuals (n, k) of each prompt's neighbourhood: its gaps less their mean, rescaled.

    gaps = c_1 - lambda_max (n,), near: (n, k). So E[c_1 | lambda_max] is taken to be lambda_max plus a gap
    that is the same in a neighbourhood: true under calibration, and a good line elsewhere. The factor
    sqrt(k / (k - 1)) gives back the degree of freedom that the mean takes: each row has mean 0 and
    an unbiased variance.
    """
    k, likely = near.shape[1], gaps[near]
    return np.asarray((likely - likely.mean(axis=1, keepdims=True)) * np.sqrt(k / max(k - 1, 1)))


def _null_gaps(residuals: Floats, bins: Ints, rng: np.random.Generator, num_draws: int) -> Floats:
    """Return the mean residual (num_draws, B) of each bin, one drawn for each prompt from its row (n, k)."""
    size, k = residuals.shape
    # In order of bins each bin is a run, and one reduceat sums them all.
    by_bin = np.argsort(bins, kind="stable")
    starts = np.searchsorted(bins[by_bin], np.arange(bins.max() + 1))
    block = max(BLOCK_ENTRIES // size, 1)
    sums = []
    for start in range(0, num_draws, block):
        picked = rng.integers(0, k, (min(block, num_draws - start), size))
        sums.append(np.add.reduceat(residuals[by_bin, picked], starts, axis=1))
    return np.asarray(np.concatenate(sums) / np.bincount(bins))


def projection_null(
    lambda_max: ArrayLike,
    c1: ArrayLike,
    rng: np.random.Generator,
    *,
    num_bins: int = 8,
    num_draws: int = 1000,
    neighbours: int = NEIGHBOURS,
) -> Null:
    """Return the residual null of the projection diagram and its ECE.

    lambda_max, c1: (n,) in [0, 1]. A null world is lambda_max of each prompt plus a centred residual of one
    of the prompts nearest in lambda_max, in the bins of the diagram. A projection ECE above the band (a small
    p-value) shows miscalibration; one inside shows that these prompts cannot tell it from calibration. One
    prompt alone has no spread: its p-value is NaN. Ends of a bin's band may lie outside [0, 1].
    Raises ValueError for unusable values, unequal lengths, or fewer than 20 draws.

    >>> lambda_max = np.linspace(0.1, 0.9, 80)
    >>> projection_null(lambda_max, lambda_max**3, np.random.default_rng(0)).p_value < 0.01
    True
    """
    predicted, target = np.asarray(lambda_max, dtype=np.float64), np.asarray(c1, dtype=np.float64)
    if predicted.shape != target.shape:
        raise ValueError(f"lambda_max and c1 differ in shape: {predicted.shape} and {target.shape}")
    if not np.isfinite(target).all():
        raise ValueError("c1 must be finite")
    edges = equal_mass_bins(predicted, num_bins)
    bins, size = bin_index(predicted, edges), edges.size - 1
    near, gaps = neighbourhoods(predicted, rng, neighbours), target - predicted
    null = _null_gaps(centred_residuals(gaps, near), bins, rng, num_draws)
    mass = np.bincount(bins) / bins.size
    eces, observed = np.abs(null) @ mass, float(np.abs(bin_means(gaps, bins, size)) @ mass)
    band = consistency_band(null + bin_means(predicted, bins, size), eces)
    return Null(band, upper_p_value(eces, observed) if predicted.size > 1 else float("nan"))
