"""Reliability diagrams (method, section 4): equal-mass bins, projection reliability, bands of labels.

If a density matrix D is calibrated for the target Y, then E[u_1^T Y u_1 | lambda_max] = lambda_max. So the
plain mean of c_1 = u_1^T Y u_1 in a bin should be the mean of lambda_max there. The mean of a bin is unbiased
(it needs no clusters); the ECE, a sum of absolute gaps, is above 0 under perfect calibration, too. It goes
with its null: `residual_null.projection_null`.

Sources: Nixon et al., *Measuring Calibration in Deep Learning*, 2019 (equal-mass bins); Bröcker and Smith,
*Increasing the Reliability of Reliability Diagrams*, 2007 (consistency bands).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.resampling import DEFAULT

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Equal spectra come out of an eigensolver with different last bits (1 and 1 - 4e-16). Rounding first makes
# them ties again; otherwise bins, and with them every binned figure, would depend on the BLAS in use.
TIE_DECIMALS = 12


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityDiagram:
    """Predicted against observed, by bins of the prediction. No bin is empty.

    edges: (B + 1,) ascending from 0 to 1; bin b is (edges[b], edges[b + 1]], the first one holds 0 too.
    mean_predicted, mean_target: (B,) in [0, 1]; NaN where a bin has no usable target.
    mass: (B,) shares of the prompts, sum 1.
    ece: mass-weighted mean of |mean_predicted - mean_target| over bins with a target, in [0, 1]. Lower =
    better.
    """

    edges: Floats
    mean_predicted: Floats
    mean_target: Floats
    mass: Floats
    ece: float


@dataclass(frozen=True, slots=True, eq=False)
class ConsistencyBand:
    """What a diagram reads when the predictions are calibrated by construction.

    mean, low, high: (B,) of the bins' targets over draws; ece_mean, ece_low, ece_high: the same of the ECE.
    low and high are the ends of the central `level` interval of `num_draws` draws.
    """

    mean: Floats
    low: Floats
    high: Floats
    ece_mean: float
    ece_low: float
    ece_high: float
    num_draws: int
    level: float

    def holds(self, ece: float) -> bool:
        """Return whether an ECE lies in the band, ends included."""
        return self.ece_low <= ece <= self.ece_high


def rounded_ties(values: ArrayLike) -> Floats:
    """Return values rounded so that equal spectra tie whatever their last bits say."""
    return np.asarray(np.round(np.asarray(values, dtype=np.float64), TIE_DECIMALS), dtype=np.float64)


def _probabilities(values: ArrayLike, name: str) -> Floats:
    rounded = rounded_ties(values)
    if rounded.ndim != 1 or rounded.size == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {rounded.shape}")
    if not ((rounded >= 0) & (rounded <= 1)).all():
        raise ValueError(f"{name} must be finite and in [0, 1]")
    return rounded


def bin_index(values: ArrayLike, edges: Floats) -> Ints:
    """Return the bin (n,) in 0 .. B - 1 of each value (n,) in [0, 1]; bins are closed on the right."""
    # Inner edges alone, so that 0 and 1 fall into the outer bins; "left" closes bins on the right.
    return np.searchsorted(edges[1:-1], _probabilities(values, "values"), side="left")


def equal_mass_bins(values: ArrayLike, num_bins: int) -> Floats:
    """Return edges (B + 1,), B <= num_bins, at the quantiles of values (n,) in [0, 1].

    The outer edges are 0 and 1, equal edges are merged, and a bin that ties leave empty joins its neighbour.
    Raises ValueError for fewer than one bin, or values that are empty, not finite or outside [0, 1].

    >>> equal_mass_bins([0.1, 0.2, 0.3, 0.4], 2).tolist()
    [0.0, 0.25, 1.0]
    """
    if num_bins < 1:
        raise ValueError("num_bins must be at least 1")
    predicted = _probabilities(values, "values")
    # Rounded as the values are: a quantile interpolates, and has last bits of its own.
    inner = np.round(np.quantile(predicted, np.linspace(0, 1, num_bins + 1)[1:-1]), TIE_DECIMALS)
    edges = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    filled = np.unique(bin_index(predicted, edges))
    # The right ends of the bins that hold something: an empty one joins the bin after it.
    return np.concatenate([[0.0], edges[filled[:-1] + 1], [1.0]])


def bin_means(values: Floats, bins: Ints, num_bins: int) -> Floats:
    """Return the mean (B,) of values (n,) in each bin; every bin must hold one."""
    sums = np.bincount(bins, weights=values, minlength=num_bins)
    return np.asarray(sums / np.bincount(bins, minlength=num_bins))


def expected_calibration_error(predicted: Floats, target: Floats, mass: Floats) -> float:
    """Return the mass-weighted mean of |predicted - target| (B,), in [0, 1]. Lower = better.

    A bin whose target is NaN is left out and the mass of the others scaled to 1: counting its gap as 0 would
    flatter. NaN when no bin has a target.
    """
    usable = ~np.isnan(target)
    if not usable.any():
        return float("nan")
    return float(np.average(np.abs(predicted - target)[usable], weights=mass[usable]))


def reliability_diagram(predicted: ArrayLike, target: ArrayLike, num_bins: int = 8) -> ReliabilityDiagram:
    """Return the diagram of predictions (n,) in [0, 1] against targets (n,) in [0, 1] over equal-mass bins.

    With labels 0/1 as targets this is the correctness diagram. Raises ValueError for unusable values.
    """
    values = np.asarray(predicted, dtype=np.float64)
    observed = _probabilities(target, "target")
    if values.shape != observed.shape:
        raise ValueError(f"predicted and target differ in shape: {values.shape} and {observed.shape}")
    edges = equal_mass_bins(values, num_bins)
    bins, size = bin_index(values, edges), edges.size - 1
    mass = np.bincount(bins, minlength=size) / values.size
    means = bin_means(values, bins, size), bin_means(np.asarray(target, dtype=np.float64), bins, size)
    return ReliabilityDiagram(edges, *means, mass, expected_calibration_error(*means, mass))


def projection_reliability(lambda_max: ArrayLike, c1: ArrayLike, num_bins: int = 8) -> ReliabilityDiagram:
    """Return the projection diagram: lambda_max (n,) against c_1 = u_1^T Y u_1 (n,), both in [0, 1].

    Its `ece` is the projection ECE, above 0 by chance alone: see `residual_null.projection_null`.
    Source: method, section 4 (ours).
    """
    return reliability_diagram(lambda_max, c1, num_bins)


def projection_brier(lambda_max: ArrayLike, c1: ArrayLike) -> float:
    """Return mean (lambda_max - c_1)^2 over prompts, in [0, 1]. Lower = better."""
    gap = np.asarray(lambda_max, dtype=np.float64) - np.asarray(c1, dtype=np.float64)
    return float(np.mean(np.square(gap)))


def consistency_band(targets: Floats, eces: Floats, level: float = 0.95) -> ConsistencyBand:
    """Return the band of bin targets (draws, B) and ECEs (draws,); NaN targets are left out bin by bin.

    Raises ValueError for fewer than 20 draws: their outermost values are already the 95 % interval.
    """
    if eces.size < 20:
        raise ValueError("a band needs at least 20 draws")
    ends = [(1 - level) / 2, (1 + level) / 2]
    # numpy warns of a column that is all NaN: a bin without any target stays as it is.
    usable = ~np.isnan(targets).all(axis=0)
    columns = np.full((3, targets.shape[1]), np.nan)
    if usable.any():
        columns[0, usable] = np.nanmean(targets[:, usable], axis=0)
        columns[1:, usable] = np.nanquantile(targets[:, usable], ends, axis=0)
    low, high = np.quantile(eces, ends)
    mean, lows, highs = columns
    return ConsistencyBand(mean, lows, highs, float(eces.mean()), float(low), float(high), eces.size, level)


def label_band(
    lambda_max: ArrayLike, rng: np.random.Generator, *, num_bins: int = 8, num_draws: int = DEFAULT.band
) -> ConsistencyBand:
    """Return the band of a diagram of labels: 1 with probability lambda_max (n,), else 0.

    For right and wrong answers it is exact. It is not for c_1: calibration fixes the mean of c_1 only, and of
    all laws on [0, 1] with that mean labels vary most, about twice as much as the c_1 of real references. For
    those see `residual_null.projection_null`.
    """
    predicted = np.asarray(lambda_max, dtype=np.float64)
    edges = equal_mass_bins(predicted, num_bins)
    bins, size = bin_index(predicted, edges), edges.size - 1
    mass, means = np.bincount(bins, minlength=size) / predicted.size, bin_means(predicted, bins, size)
    hits = (rng.random(predicted.size) < predicted for _ in range(num_draws))
    targets = np.stack([bin_means(hit.astype(np.float64), bins, size) for hit in hits])
    return consistency_band(targets, np.abs(targets - means) @ mass)
