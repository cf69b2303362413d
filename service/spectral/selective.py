"""Answering with a guarantee (**ours**, method, sections 8 and 11): error bounds at a few thresholds.

"With 90 % confidence, at most 10 % of the answers let through are wrong, on questions like these." All bounds
hold at once, so a target may be chosen after looking at them. The bounds are valid only on rows that were not
used to make the score. The counts suffice for any later target and confidence.

Sources: Clopper and Pearson, Biometrika, 1934; Geifman and El-Yaniv, *Selective Classification for Deep
Neural Networks*, 2017, which also divides the error probability by the number of bounds (Bonferroni).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.correctness_model import verdicts
from service.spectral.reliability import rounded_ties

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

CONFIDENCE = 0.9
# Fewest answered rows of a promise: with fewer, the bound is too wide to be worth its share of the error
# probability.
MIN_ANSWERED = 20
POINTS_PER_DOUBLING = 1.5
MAX_GROWTH = 20  # further rows, as a multiple of the present rows


@dataclass(frozen=True, slots=True)
class SelectiveCounts:
    """Numbers of rows that a few thresholds would have let through, strictest first.

    thresholds: distinct scores, descending; a threshold answers all scores at or above it. answered: number
    of rows answered, ascending. wrong: number of these that are wrong. never_answered: rows that no threshold
    lets through. The last threshold answers all other rows; without other rows there are no thresholds.
    """

    thresholds: tuple[float, ...]
    answered: tuple[int, ...]
    wrong: tuple[int, ...]
    never_answered: int = 0

    @property
    def num_rows(self) -> int:
        """Number of labelled rows."""
        return (self.answered[-1] if self.answered else 0) + self.never_answered


@dataclass(frozen=True, slots=True)
class Promise:
    """A target error and the threshold that keeps it.

    threshold: scores at or above it are answered; None if the target cannot be promised. answered, wrong:
    rows let through, and wrong rows among them (0 without a threshold). coverage: share of the rows let
    through, in [0, 1]. lowest_error: the target if it can be promised, else the lowest error that can be;
    None if none can.
    """

    target_error: float
    confidence: float
    threshold: float | None
    answered: int
    wrong: int
    coverage: float
    lowest_error: float | None


def numbers_answered(answerable: int) -> Ints:
    """Return the numbers of answered rows to bound: a geometric grid from `MIN_ANSWERED` to all.

    answerable >= 1: number of rows that may be answered. With fewer than 32, the result is this number only;
    fewer than `MIN_ANSWERED` allow no promise.

    >>> numbers_answered(160).tolist()
    [20, 34, 57, 95, 160]
    """
    # Starts at the largest number, which is kept if there is only one point.
    points = np.geomspace(answerable, MIN_ANSWERED, num_points(answerable))
    return np.rint(points).astype(np.int_)[::-1]


def num_points(answerable: float) -> int:
    """Return the number of thresholds if `answerable` > 0 rows may be answered."""
    return 1 + max(0, int(POINTS_PER_DOUBLING * math.log2(answerable / MIN_ANSWERED)))


def selective_counts(
    scores: ArrayLike, labels: ArrayLike, answerable: ArrayLike | None = None
) -> SelectiveCounts:
    """Return the counts for scores (n,) and verdicts (n,), 1 = right; higher scores are more certain.

    answerable: (n,) bool, the rows that may be let through; None: all. Scores that differ only in their last
    bits are equal. The thresholds are the scores at `numbers_answered`, independent of the verdicts; each
    counts all rows with an equal score. Raises ValueError for other lengths or non-finite scores.

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

    The bound is Clopper and Pearson's, one-sided: with a higher error rate, the probability of at most
    `wrong` wrong answers is at most 1 - confidence. Raises ValueError for a confidence outside (0, 1].

    >>> error_bound([0, 1], [29, 1], 0.95).round(3).tolist()
    [0.098, 1.0]
    """
    from scipy.special import betaincinv

    if not 0 < confidence <= 1:
        raise ValueError("confidence must be in (0, 1]")
    k, n = np.broadcast_arrays(np.asarray(wrong, dtype=np.float64), np.asarray(answered, dtype=np.float64))
    # If all are wrong, the bound is 1 and there is no beta quantile; this 1 only keeps the call valid.
    right = np.maximum(n - k, 1.0)
    return np.asarray(np.where(k < n, betaincinv(k + 1.0, right, confidence), 1.0))


def simultaneous_bounds(
    counts: SelectiveCounts, confidence: float = CONFIDENCE, *, more_rows: int = 0
) -> Floats:
    """Return upper bounds (K,) on the error among the answered, by threshold; 1 below `MIN_ANSWERED`.

    more_rows: number of additional rows, assumed to be let through, and to be wrong, in the same proportions
    as the present rows. As with real rows, there are then more thresholds, and each bound is stricter.

    Each bound has error probability (1 - confidence) / K, so that all hold at once with probability
    `confidence` over the draw of the rows. This is exact if no scores tie and the error among the answered
    does not fall as the threshold falls. Raises ValueError for a confidence outside (0, 1].
    """
    growth = 1 + more_rows / max(counts.num_rows, 1)
    wrong, answered = (np.array(n) * growth for n in (counts.wrong, counts.answered))
    num_bounds = max(len(counts.thresholds), 1)
    if more_rows and counts.answered:
        num_bounds += num_points(answered[-1]) - num_points(counts.answered[-1])
    each = 1 - (1 - confidence) / num_bounds
    return np.where(answered < MIN_ANSWERED, 1.0, error_bound(wrong, answered, each))


def lowest_error(
    counts: SelectiveCounts, confidence: float = CONFIDENCE, *, more_rows: int = 0
) -> float | None:
    """Return the lowest error that can be promised, rounded up to 0.1 %; None if none can be promised.

    more_rows: see `simultaneous_bounds`.
    """
    bounds = simultaneous_bounds(counts, confidence, more_rows=more_rows)
    lowest = math.ceil(1000 * bounds.min(initial=1.0)) / 1000
    return lowest if lowest < 1 else None


def rows_to_promise(counts: SelectiveCounts, target: float, confidence: float = CONFIDENCE) -> int | None:
    """Return the fewest further rows with which a target error can be promised; 0 if it can be now.

    The further rows are like the present ones: each threshold lets through the same shares, right and wrong.
    The number is an estimate: the shares of real rows differ. None if `MAX_GROWTH` times the
    present rows do not suffice. confidence: at least 0.5, where each bound falls with the number of rows.

    >>> rows_to_promise(SelectiveCounts((0.5,), (30,), (0,)), 0.05)  # 67 have 3 bounds: 0.95**67 < 0.1 / 3
    37
    """

    def suffice(more_rows: int) -> bool:
        return bool((simultaneous_bounds(counts, confidence, more_rows=more_rows) <= target).any())

    most = MAX_GROWTH * counts.num_rows
    if suffice(0) or not suffice(most):
        return 0 if suffice(0) else None
    return bisect_left(range(most), True, key=suffice)


def promise(counts: SelectiveCounts, target: float, confidence: float = CONFIDENCE) -> Promise:
    """Return the promise of a target error: the threshold that answers most rows with a bound within it.

    With probability `confidence`, the promises of all targets are kept at once, even for targets chosen after
    looking at the counts; see `simultaneous_bounds`. Raises ValueError for a target outside (0, 1) or a
    confidence outside (0, 1].
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
