"""The quality of scores (method, section 4): reliability diagrams and AUROC.

Reliability diagrams have equal-mass bins, and a band of their values under calibration.

If a density matrix D is calibrated for the target Y, then E[u_1^T Y u_1 | lambda_max] = lambda_max. So the
plain mean of c_1 = u_1^T Y u_1 in a bin should be the mean of lambda_max in the bin. The mean of a bin is
unbiased and needs no clusters. The ECE, a sum of absolute gaps, is above 0 even under perfect calibration, so
read it together with its null: `projection_null` (ours).

The null is a residual bootstrap: it keeps the spread of real references around their mean. (A reference drawn
as one eigenvector has a c_1 of 0 or 1, about twice the spread of a real reference. The band of such
references is about twice too wide.)

Sources: Nixon et al., *Measuring Calibration in Deep Learning*, 2019 (equal-mass bins); Bröcker and Smith,
*Increasing the Reliability of Reliability Diagrams*, 2007 (consistency bands); Efron and Tibshirani, *An
Introduction to the Bootstrap*, 1993, chapter 9 (residual bootstrap); Phipson and Smyth, *Permutation P-values
Should Never Be Zero*, 2010 (the + 1).

AUROC measures how well scores separate right answers from wrong ones. It takes any finite scores, higher =
more certain (lambda_max, or the negated entropy), and labels, 1 = right, 0 = wrong. The correctness diagram
is `reliability_diagram(lambda_max, labels)`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.resampling import DEFAULT, ResampleCounts

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# An eigensolver returns equal spectra with different last bits (1 and 1 - 4e-16). Rounding makes them ties
# again; otherwise bins and all binned figures would depend on the BLAS in use.
TIE_DECIMALS = 12
NUM_BINS = 8  # as in the paper
# Prompts of similar lambda_max. With fewer, the estimate of their spread is poor (20 of 30 prompts: 6 to 8 %
# of calibrated worlds are called miscalibrated at 5 %). With more, dissimilar prompts distort it.
NEIGHBOURS = 40
AUROC_BLOCK = 50  # resamples per block of AUROCs, so that the sums stay in the cache
NULL_BLOCK_ENTRIES = 2_000_000  # of one block of draws: 16 MB
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityDiagram:
    """Observed against predicted values, by bins of the prediction. No bin is empty.

    edges: (B + 1,) ascending from 0 to 1; bin b is (edges[b], edges[b + 1]], the first bin includes 0.
    mean_predicted, mean_target: (B,) in [0, 1]; the target is NaN for a bin without a usable target.
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
    """The values of a diagram for predictions that are calibrated by construction.

    mean, low, high: (B,), for the bins' targets. ece_mean, ece_low, ece_high: for the ECE. low and high are
    the ends of the central 95 % interval over `num_draws` draws.
    """

    mean: Floats
    low: Floats
    high: Floats
    ece_mean: float
    ece_low: float
    ece_high: float
    num_draws: int

    def holds(self, ece: float) -> bool:
        """Return True if an ECE lies in the band, ends included."""
        return self.ece_low <= ece <= self.ece_high


def rounded_ties(values: ArrayLike) -> Floats:
    """Return values rounded so that equal spectra tie despite different last bits."""
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
    # Only inner edges, so that 0 and 1 fall into the outer bins; "left" closes bins on the right.
    return np.searchsorted(edges[1:-1], _probabilities(values, "values"), side="left")


def equal_mass_bins(values: ArrayLike, num_bins: int) -> Floats:
    """Return edges (B + 1,), B <= num_bins, at the quantiles of values (n,) in [0, 1].

    The outer edges are 0 and 1. Equal edges are merged, and a bin left empty by ties joins its neighbour.
    Raises ValueError for fewer than one bin, or values that are empty, not finite or outside [0, 1].

    >>> equal_mass_bins([0.1, 0.2, 0.3, 0.4], 2).tolist()
    [0.0, 0.25, 1.0]
    """
    if num_bins < 1:
        raise ValueError("num_bins must be at least 1")
    predicted = _probabilities(values, "values")
    # Rounded like the values, because a quantile interpolates and has its own last bits.
    inner = np.round(np.quantile(predicted, np.linspace(0, 1, num_bins + 1)[1:-1]), TIE_DECIMALS)
    edges = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    filled = np.unique(bin_index(predicted, edges))
    # The right ends of non-empty bins: an empty bin joins the bin after it.
    return np.concatenate([[0.0], edges[filled[:-1] + 1], [1.0]])


def bin_means(values: Floats, bins: Ints, num_bins: int) -> Floats:
    """Return the mean (B,) of values (n,) in each bin. No bin may be empty."""
    sums = np.bincount(bins, weights=values, minlength=num_bins)
    return np.asarray(sums / np.bincount(bins, minlength=num_bins))


def expected_calibration_error(predicted: Floats, target: Floats, mass: Floats) -> float:
    """Return the mass-weighted mean of |predicted - target| (B,), in [0, 1]. Lower = better.

    A bin with a NaN target is left out, and the mass of the others is scaled to 1: a gap of 0 would lower the
    ECE unduly. NaN if no bin has a target.
    """
    usable = ~np.isnan(target)
    if not usable.any():
        return float("nan")
    return float(np.average(np.abs(predicted - target)[usable], weights=mass[usable]))


def reliability_diagram(
    predicted: ArrayLike, target: ArrayLike, num_bins: int = NUM_BINS
) -> ReliabilityDiagram:
    """Return the diagram of predictions (n,) in [0, 1] against targets (n,) in [0, 1] over equal-mass bins.

    With targets c_1 = u_1^T Y u_1 it is the projection diagram, with labels 0 and 1 the correctness diagram.
    Raises ValueError for unusable values.
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


def projection_brier(lambda_max: ArrayLike, c1: ArrayLike) -> float:
    """Return mean (lambda_max - c_1)^2 over prompts, in [0, 1]. Lower = better."""
    gap = np.asarray(lambda_max, dtype=np.float64) - np.asarray(c1, dtype=np.float64)
    return float(np.mean(np.square(gap)))


def consistency_band(targets: Floats, eces: Floats) -> ConsistencyBand:
    """Return the band of bin targets (draws, B) and ECEs (draws,). NaN targets are left out of their bin.

    Raises ValueError for fewer than 20 draws; with 20, the 95 % interval already spans nearly all draws.
    """
    if eces.size < 20:
        raise ValueError("a band needs at least 20 draws")
    ends = [0.025, 0.975]
    # numpy warns about columns that are all NaN, so a bin without any target is skipped.
    usable = ~np.isnan(targets).all(axis=0)
    columns = np.full((3, targets.shape[1]), np.nan)
    if usable.any():
        columns[0, usable] = np.nanmean(targets[:, usable], axis=0)
        columns[1:, usable] = np.nanquantile(targets[:, usable], ends, axis=0)
    low, high = np.quantile(eces, ends)
    mean, lows, highs = columns
    return ConsistencyBand(mean, lows, highs, float(eces.mean()), float(low), float(high), eces.size)


def label_band(
    lambda_max: ArrayLike, rng: np.random.Generator, *, num_draws: int = DEFAULT.band
) -> ConsistencyBand:
    """Return the band of a diagram of labels: 1 with probability lambda_max (n,), else 0.

    The band is exact for right and wrong answers. For c_1 it is too wide: calibration fixes only the mean of
    c_1, and of all distributions on [0, 1] with this mean, labels vary most, about twice as much as the c_1
    of real references. For c_1, use `projection_null`.
    """
    predicted = np.asarray(lambda_max, dtype=np.float64)
    edges = equal_mass_bins(predicted, NUM_BINS)
    bins, size = bin_index(predicted, edges), edges.size - 1
    mass, means = np.bincount(bins, minlength=size) / predicted.size, bin_means(predicted, bins, size)
    hits = (rng.random(predicted.size) < predicted for _ in range(num_draws))
    targets = np.stack([bin_means(hit.astype(np.float64), bins, size) for hit in hits])
    return consistency_band(targets, np.abs(targets - means) @ mass)


@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """The null of a figure: its band and p-value.

    p_value: (1 + draws at or above the figure) / (1 + draws), in (0, 1]. Small = not calibrated. NaN for an
    unknown figure.
    """

    band: ConsistencyBand
    p_value: float


def upper_p_value(drawn: Floats, observed: float) -> float:
    """Return (1 + number of draws (D,) >= observed, up to rounding) / (1 + D); NaN for a NaN figure."""
    if np.isnan(observed):
        return float("nan")
    return float((1 + np.count_nonzero(drawn >= observed - ROUNDING)) / (1 + drawn.size))


def neighbourhoods(lambda_max: Floats, rng: np.random.Generator, neighbours: int = NEIGHBOURS) -> Ints:
    """Return the k prompts nearest to each prompt in rank of lambda_max (n,), with itself: (n, k), k <= n.

    Ties are in random order: adjacent rows of a file may also have similar c_1.
    """
    size = lambda_max.size
    # lexsort sorts by its last key first.
    order = np.lexsort((rng.random(size), rounded_ties(lambda_max)))
    k = min(neighbours, size)
    # At both ends the window is shifted, not cut, so that each prompt has k neighbours.
    first = np.clip(np.arange(size) - k // 2, 0, size - k)
    near = np.empty((size, k), dtype=np.intp)
    near[order] = order[first[:, None] + np.arange(k)]
    return near


def centred_residuals(gaps: Floats, near: Ints) -> Floats:
    """Return the residuals (n, k) of each prompt's neighbourhood: its gaps minus their mean, rescaled.

    gaps: c_1 - lambda_max (n,). near: (n, k). This assumes that E[c_1 | lambda_max] is lambda_max plus a gap
    that is constant in a neighbourhood: exact under calibration, a good approximation elsewhere. The factor
    sqrt(k / (k - 1)) corrects for the degree of freedom of the mean, so each row has mean 0 and an unbiased
    variance.
    """
    k, nearby = near.shape[1], gaps[near]
    return np.asarray((nearby - nearby.mean(axis=1, keepdims=True)) * np.sqrt(k / max(k - 1, 1)))


def _null_gaps(residuals: Floats, bins: Ints, rng: np.random.Generator, num_draws: int) -> Floats:
    """Return the mean residual (num_draws, B) of each bin; each prompt draws from its row of (n, k)."""
    size, k = residuals.shape
    # Sorted by bin, each bin is a run, and one reduceat sums all bins.
    by_bin = np.argsort(bins, kind="stable")
    starts = np.searchsorted(bins[by_bin], np.arange(bins.max() + 1))
    block = max(NULL_BLOCK_ENTRIES // size, 1)
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
    num_draws: int = DEFAULT.band,
) -> Null:
    """Return the residual null of the projection diagram and its ECE.

    lambda_max, c1: (n,) in [0, 1]. A null world is lambda_max of each prompt plus a centred residual of one
    of the prompts nearest in lambda_max, in the bins of the diagram. A projection ECE above the band (a small
    p-value) shows miscalibration. An ECE inside the band shows no difference from calibration on these
    prompts. The p-value of a single prompt is NaN. Ends of a bin's band may lie outside [0, 1].
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
    edges = equal_mass_bins(predicted, NUM_BINS)
    bins, size = bin_index(predicted, edges), edges.size - 1
    near, gaps = neighbourhoods(predicted, rng), target - predicted
    null = _null_gaps(centred_residuals(gaps, near), bins, rng, num_draws)
    mass = np.bincount(bins) / bins.size
    eces, observed = np.abs(null) @ mass, float(np.abs(bin_means(gaps, bins, size)) @ mass)
    band = consistency_band(null + bin_means(predicted, bins, size), eces)
    return Null(band, upper_p_value(eces, observed) if predicted.size > 1 else float("nan"))


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """Return scores, rounded so that equal spectra tie, and labels as 0.0 and 1.0."""
    values = rounded_ties(scores)
    right = np.asarray(labels, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or values.shape != right.shape:
        raise ValueError(
            f"scores and labels must be vectors of one length, got {values.shape}, {right.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite")
    if not np.isin(right, (0.0, 1.0)).all():
        raise ValueError("labels must be 0 or 1")
    return values, right


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the AUROC of scores (n,) for labels (n,) in {0, 1}; in [0, 1], NaN when one class is missing.

    Raises ValueError for unequal lengths, no values, non-finite scores, or other labels.

    >>> auroc([0.9, 0.8, 0.3], [1, 0, 0])
    1.0
    """
    values, right = _checked(scores, labels)
    return float(resampled_aurocs(ResampleCounts.once(values.size), values, right)[0])


def resampled_aurocs(resamples: ResampleCounts, scores: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the AUROC of scores (n,), higher = more certain, in each resample, (B,).

    As in `auroc`, it is Mann-Whitney's U: ties count half. NaN for a resample with one class only.
    """
    values, right = rounded_ties(scores), np.asarray(labels, dtype=np.bool_)
    rights, wrongs = np.flatnonzero(right), np.flatnonzero(~right)
    wrongs = wrongs[np.argsort(values[wrongs])]
    least, most = (np.searchsorted(values[wrongs], values[rights], side) for side in ("left", "right"))
    blocks = []
    for start in range(0, len(resamples.counts), AUROC_BLOCK):
        counts = resamples.counts[start : start + AUROC_BLOCK].T
        held, below = counts[rights], np.zeros((wrongs.size + 1, counts.shape[1]))
        np.cumsum(counts[wrongs], axis=0, out=below[1:])
        ordered = np.einsum("ij,ij->j", held, below[least] + below[most]) / 2
        with np.errstate(invalid="ignore"):  # 0 / 0: such a resample has no AUROC
            blocks.append(ordered / (held.sum(axis=0) * below[-1]))
    return np.concatenate(blocks)
