"""Do scores tell right answers from wrong ones (method, section 4)? AUROC and accuracy-rejection.

Scores are any finite numbers, higher = more certain (lambda_max, or the entropy negated); labels are 1 for
right and 0 for wrong. The correctness diagram is `reliability.reliability_diagram(lambda_max, labels)`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.reliability import rounded_ties
from service.spectral.resampling import DEFAULT, ResampleCounts, percentile_interval, resampled

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Auroc:
    """AUROC in [0, 1], 0.5 = chance, with the percentile interval of a bootstrap over prompts.

    standard_error is the standard deviation of the bootstrap values (not divided by their number).
    All are NaN when the labels hold one class only.
    """

    value: float
    low: float
    high: float
    standard_error: float
    num_resamples: int


@dataclass(frozen=True, slots=True, eq=False)
class RejectionCurve:
    """Accuracy of the answers kept when the least certain are rejected.

    rejected: (n,) shares 0, 1/n, .. (n - 1)/n; accuracy: (n,) of the answers kept, in [0, 1].
    area: mean accuracy over the curve, in [0, 1]. Higher = better; a score that knows nothing gets the
    accuracy.
    """

    rejected: Floats
    accuracy: Floats
    area: float


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


def _tie_groups(values: Floats) -> Ints:
    """Return for each value (n,) the rank 0 .. G - 1 of its tie group, ascending."""
    return np.unique(values, return_inverse=True)[1]


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the AUROC of scores (n,) for labels (n,) in {0, 1}; in [0, 1], NaN when one class is missing.

    Raises ValueError for unequal lengths, no values, scores not finite, or other labels.

    >>> auroc([0.9, 0.8, 0.3], [1, 0, 0])
    1.0
    """
    values, right = _checked(scores, labels)
    return float(resampled_aurocs(ResampleCounts.once(values.size), values, right)[0])


def bootstrap_auroc(
    scores: ArrayLike,
    labels: ArrayLike,
    rng: np.random.Generator,
    *,
    num_resamples: int = DEFAULT.auroc,
    level: float = 0.95,
    groups: Ints | None = None,
) -> Auroc:
    """Return the AUROC with its interval over resamples of the prompts; see `auroc` for the arguments.

    groups: (n,), prompts that are drawn whole; None: each is one.
    Resamples with one class only have no AUROC and are left out; `num_resamples` counts the others. Equal
    seeds give equal resamples, so two scores on the same labels can be compared in pairs.
    """
    values, right = _checked(scores, labels)
    value = auroc(values, right)
    if math.isnan(value):
        return Auroc(value, value, value, value, 0)
    picks = (resampled(values.size, rng, groups) for _ in range(num_resamples))
    counts = np.array([np.bincount(pick, minlength=values.size) for pick in picks], dtype=np.float64)
    drawn = resampled_aurocs(ResampleCounts(counts), values, right)
    drawn = drawn[~np.isnan(drawn)]
    if drawn.size < 2:  # a standard deviation needs two
        return Auroc(value, math.nan, math.nan, math.nan, drawn.size)
    spread = percentile_interval(drawn, level)
    return Auroc(value, spread.low, spread.high, float(drawn.std(ddof=1)), drawn.size)


def resampled_aurocs(resamples: ResampleCounts, scores: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the AUROC of scores (n,), higher = more certain, in each resample, (B,).

    As `auroc`: ties count half. NaN in a resample that holds one kind only.
    """
    positives, negatives = _counted(resamples, scores, labels)
    below = np.cumsum(negatives, axis=1) - negatives
    ordered = (positives * (below + negatives / 2)).sum(axis=1)
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    with np.errstate(invalid="ignore"):  # 0 / 0: such a resample has no AUROC
        return np.asarray(ordered / pairs)


def resampled_half_errors(resamples: ResampleCounts, scores: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the share of wrong ones in the surer half of each resample, (B,), in [0, 1]. Lower = better.

    scores: (n,), higher = more certain; labels: (n,) in {0, 1}. Of those that tie at the middle an equal
    share of each counts.
    """
    positives, negatives = _counted(resamples, scores, labels)
    size = positives + negatives
    half = resamples.counts.sum(axis=1, keepdims=True) / 2
    surer = np.cumsum(size[:, ::-1], axis=1)[:, ::-1] - size
    taken = np.clip(half - surer, 0.0, size)
    # A group that a resample lacks has no share: 0 of 0.
    shares = np.divide(negatives, size, out=np.zeros_like(size), where=size > 0)
    return np.asarray((taken * shares).sum(axis=1) / half[:, 0])


def _counted(resamples: ResampleCounts, scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """Return how many right and wrong ones of each tie group, ascending, a resample holds: (B, G) each."""
    groups = _tie_groups(rounded_ties(scores))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    drawn, right = resamples.counts[:, order], np.asarray(labels, dtype=np.float64)[order]
    return np.add.reduceat(drawn * right, starts, axis=1), np.add.reduceat(
        drawn * (1 - right), starts, axis=1
    )


def half_error(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of wrong ones among the half of highest score, as `resampled_half_errors`.

    >>> half_error([0.9, 0.8, 0.3, 0.2], [1, 0, 0, 0])
    0.5
    """
    return float(resampled_half_errors(ResampleCounts.once(np.size(labels)), scores, labels)[0])


def accuracy_rejection(scores: ArrayLike, labels: ArrayLike) -> RejectionCurve:
    """Return the accuracy-rejection curve of scores (n,) for labels (n,) in {0, 1}.

    Answers with tied scores are rejected in random order: the curve holds the expected accuracy.
    Raises ValueError as `auroc` does.
    """
    values, right = _checked(scores, labels)
    # Negated: the most certain come first, since they are kept longest.
    groups = _tie_groups(-values)
    tie_means = np.bincount(groups, weights=right) / np.bincount(groups)
    kept = np.arange(1, values.size + 1)
    accuracy = (np.cumsum(tie_means[np.sort(groups)]) / kept)[::-1]
    return RejectionCurve(np.arange(values.size) / values.size, accuracy, float(accuracy.mean()))
