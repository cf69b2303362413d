"""Answering with a guarantee (**ours**, method, sections 8 and 11): a bound on the error at a few thresholds.

"With 90 % confidence, at most 10 % of the answers let through are wrong, on questions like these." All bounds
hold at once, so a target may be chosen after looking at them. Valid only on scores of rows that had no part
in making the score. The counts kept here suffice for any target and confidence asked for later.

Sources: Clopper and Pearson, Biometrika, 1934; Geifman and El-Yaniv, *Selective Classification for Deep
Neural Networks*, 2017, which also divides the error probability by the number of bounds (Bonferroni).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.correctness_model import verdicts
from service.spectral.reliability import rounded_ties

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

CONFIDENCE = 0.9
# Of a promise: the bound on fewer is so wide that a share of the error probability spent on it is wasted.
MIN_ANSWERED = 20
POINTS_PER_DOUBLING = 1.5


@dataclass(frozen=True, slots=True)
class SelectiveCounts:
    """What a few thresholds would have let through, strictest first: numbers only.

    thresholds: distinct scores, descending; a threshold answers all scores at or above it. answered: how many
    of the rows that is, ascending; wrong: how many of those are wrong. The last answers all rows but
    never_answered, which no threshold lets through. No thresholds: there are no others.
    """

    thresholds: tuple[float, ...]
    answered: tuple[int, ...]
    wrong: tuple[int, ...]
    never_answered: int = 0

    @property
    def num_rows(self) -> int:
        """Rows that the counts are of."""
        return (self.answered[-1] if self.answered else 0) + self.never_answered


@dataclass(frozen=True, slots=True)
class Promise:
    """A target error and what keeps it.

    threshold: answer scores at or above it; None where the target cannot be promised. answered, wrong: rows
    let through and wrong among them (0 without a threshold); coverage: share of the rows let through, in
    [0, 1]. lowest_error: the target where it is kept, else the lowest that these rows allow to promise; None
    where they allow none.
    """

    target_error: float
    confidence: float
    threshold: float | None
    answered: int
    wrong: int
    coverage: float
    lowest_error: float | None


def numbers_answered(answerable: int) -> Ints:
    """Return the numbers of answered rows that bounds are for: from `MIN_ANSWERED` to all, evenly by ratio.

    answerable >= 1: rows that may be answered. With fewer than 32 all of them alone; fewer than
    `MIN_ANSWERED` allow no promise.

    >>> numbers_answered(160).tolist()
    [20, 34, 57, 95, 160]
    """
    points = 1 + max(0, int(POINTS_PER_DOUBLING * np.log2(answerable / MIN_ANSWERED)))
    # From the most, which is the one that is left where there is but one.
    return np.rint(np.geomspace(answerable, MIN_ANSWERED, points)).astype(np.int_)[::-1]


def selective_counts(
    scores: ArrayLike, labels: ArrayLike, answerable: ArrayLike | None = None
) -> SelectiveCounts:
    """Return the counts for scores (n,) and verdicts (n,), 1 = right; higher scores are more certain.

    answerable: (n,) bool, which rows may be let through at all, whatever their score; None: all. Scores that
    differ in their last bits only are one. The thresholds are the scores at `numbers_answered`, whoever is
    right; one that others share answers those, too, and is counted with them. Raises ValueError for other
    lengths or no numbers.

    >>> selective_counts([0.9, 0.4, 0.4, 0.8], [1, 0, 1, 0], [True, True, True, False])
    SelectiveCounts(thresholds=(0.4,), answered=(3,), wrong=(1,), never_answered=1)
    """
    values, right = np.asarray(scores, dtype=np.float64), verdicts(labels)
    if values.shape != right.shape or not np.isfinite(values).all():
        raise ValueError("every verdict needs a finite score")
    may = np.ones(values.size, dtype=np.bool_) if answerable is None else np.asarray(answerable)
    if may.shape != values.shape or may.dtype != np.bool_:
        raise ValueError("every verdict is answerable or not")
    never = int((~may).sum())
    if never == values.size:
        return SelectiveCounts((), (), (), never)
    values, right = values[may], right[may]
    order = np.argsort(-values, kind="stable")
    falling = -rounded_ties(values[order])
    last = np.unique(np.searchsorted(falling, falling[numbers_answered(values.size) - 1], side="right")) - 1
    wrong = np.cumsum(~right[order])[last]
    thresholds, answered = values[order][last].tolist(), (last + 1).tolist()
    return SelectiveCounts(tuple(thresholds), tuple(answered), tuple(wrong.tolist()), never)


def error_bound(wrong: ArrayLike, answered: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Return the exact upper bound on the error rate (..,) when `wrong` of `answered` >= 1 were wrong.

    Clopper and Pearson, one-sided: an error rate above it would give so few wrong, or fewer, with a
    probability of at most 1 - confidence. Raises ValueError for a confidence outside of (0, 1].

    >>> error_bound([0, 1], [29, 1], 0.95).round(3).tolist()
    [0.098, 1.0]
    """
    from scipy.special import betaincinv

    if not 0 < confidence <= 1:
        raise ValueError("confidence must be in (0, 1]")
    k, n = np.broadcast_arrays(np.asarray(wrong, dtype=np.float64), np.asarray(answered, dtype=np.float64))
    # All wrong has no beta law: its bound is 1, and this 1 only keeps the call valid.
    right = np.maximum(n - k, 1.0)
    return np.asarray(np.where(k < n, betaincinv(k + 1.0, right, confidence), 1.0))


def simultaneous_bounds(counts: SelectiveCounts, confidence: float = CONFIDENCE) -> Floats:
    """Return upper bounds (K,) on the error among the answered, by threshold; 1 below `MIN_ANSWERED`.

    Each at (1 - confidence) / K, so that all hold at once with probability `confidence` over the draw of the
    rows: exactly so where no scores tie and the error among the answered does not fall as the threshold does.
    Raises ValueError for a confidence outside of (0, 1].
    """
    each = 1 - (1 - confidence) / max(len(counts.thresholds), 1)
    bounds = error_bound(counts.wrong, counts.answered, each)
    return np.where(np.array(counts.answered) < MIN_ANSWERED, 1.0, bounds)


def lowest_error(counts: SelectiveCounts, confidence: float = CONFIDENCE) -> float | None:
    """Return the lowest error that can be promised, rounded up to a tenth of a percent; None: none can."""
    lowest = math.ceil(1000 * simultaneous_bounds(counts, confidence).min(initial=1.0)) / 1000
    return lowest if lowest < 1 else None


def promise(counts: SelectiveCounts, target: float, confidence: float = CONFIDENCE) -> Promise:
    """Return what keeps a target error: the threshold that answers most with a bound of at most that.

    With probability `confidence` the promises of all targets are kept at once, however a target was chosen;
    see `simultaneous_bounds`. Raises ValueError for a target outside of (0, 1) or a confidence outside of
    (0, 1].
    """
    if not 0 < target < 1:
        raise ValueError("a target error must be in (0, 1)")
    kept = np.flatnonzero(simultaneous_bounds(counts, confidence) <= target)
    if kept.size == 0:
        return Promise(target, confidence, None, 0, 0, 0.0, lowest_error(counts, confidence))
    at = int(kept[-1])
    answered, wrong = counts.answered[at], counts.wrong[at]
    coverage = answered / counts.num_rows
    return Promise(target, confidence, counts.thresholds[at], answered, wrong, coverage, target)
