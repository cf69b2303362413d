"""Answering with a guarantee (**ours**, method, section 8): the lowest threshold whose error is kept.

"With 90 % confidence, at most 10 % of the answers let through are wrong, on questions like these." Valid only
on rows that no part of the score has seen: see `strata.stratified_split`. The counts kept here suffice for
any target asked for later.

Sources: Geifman and El-Yaniv, *Selective Classification for Deep Neural Networks*, 2017; Angelopoulos et al.,
*Learn then Test*, 2021 (fixed-sequence testing); Clopper and Pearson, Biometrika, 1934.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.correctness_model import verdicts
from service.spectral.reliability import rounded_ties

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

CONFIDENCE = 0.9
# The sequence of tests stops at its first failure. Begun at one or two answers, as a lax target would allow,
# it mostly stops there by bad luck: that one answer is wrong.
MIN_ANSWERED = 20
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class SelectiveCounts:
    """What every threshold would have let through, strictest first: numbers only.

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
    [0, 1]. lowest_error: the target where it is kept, else the lowest error above it that these rows allow
    to promise; None where they allow none.
    """

    target_error: float
    confidence: float
    threshold: float | None
    answered: int
    wrong: int
    coverage: float
    lowest_error: float | None


def selective_counts(
    scores: ArrayLike, labels: ArrayLike, answerable: ArrayLike | None = None
) -> SelectiveCounts:
    """Return the counts for scores (n,) and verdicts (n,), 1 = right; higher scores are more certain.

    answerable: (n,) bool, which rows may be let through at all, whatever their score; None: all. Scores that
    differ in their last bits only are one. Raises ValueError for other lengths or no numbers.

    >>> selective_counts([0.9, 0.4, 0.4, 0.8], [1, 0, 1, 0], [True, True, True, False])
    SelectiveCounts(thresholds=(0.9, 0.4), answered=(1, 3), wrong=(0, 1), never_answered=1)
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
    tied = rounded_ties(values[order])
    last = np.append(np.flatnonzero(np.diff(tied)), values.size - 1)
    wrong = np.cumsum(~right[order])[last]
    thresholds, answered = values[order][last].tolist(), (last + 1).tolist()
    return SelectiveCounts(tuple(thresholds), tuple(answered), tuple(wrong.tolist()), never)


def thinned(counts: SelectiveCounts, most: int) -> SelectiveCounts:
    """Return the counts at no more than `most` >= 2 of the thresholds, evenly by rank, the last included.

    Promises stay valid: which are kept does not depend on who is right.

    >>> thinned(SelectiveCounts((0.9, 0.8, 0.4), (1, 2, 4), (0, 1, 2)), 2)
    SelectiveCounts(thresholds=(0.9, 0.4), answered=(1, 4), wrong=(0, 2), never_answered=0)
    """
    size = len(counts.thresholds)
    if size == 0:
        return counts
    kept = np.unique(np.rint(np.linspace(0, size - 1, min(most, size))).astype(np.int_))
    answered, wrong = (tuple(column[i] for i in kept) for column in (counts.answered, counts.wrong))
    return replace(
        counts, thresholds=tuple(counts.thresholds[i] for i in kept), answered=answered, wrong=wrong
    )


def error_bound(wrong: ArrayLike, answered: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Return the exact upper bound on the error rate (..,) when `wrong` of `answered` >= 1 were wrong.

    Clopper and Pearson, one-sided: an error rate above it would give so few wrong, or fewer, with a
    probability of at most 1 - confidence. Raises ValueError for a confidence outside of (0, 1).

    >>> error_bound([0, 1], [29, 1], 0.95).round(3).tolist()
    [0.098, 1.0]
    """
    from scipy.special import betaincinv

    if not 0 < confidence < 1:
        raise ValueError("confidence must be in (0, 1)")
    k, n = np.broadcast_arrays(np.asarray(wrong, dtype=np.float64), np.asarray(answered, dtype=np.float64))
    # All wrong has no beta law: its bound is 1, and this 1 only keeps the call valid.
    right = np.maximum(n - k, 1.0)
    return np.asarray(np.where(k < n, betaincinv(k + 1.0, right, confidence), 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """Bounds (K,) by threshold, with the errors there were and with none."""

    bounds: Floats
    least: Floats
    fewest: int

    @classmethod
    def of(cls, counts: SelectiveCounts, confidence: float, fewest: int) -> "_Sequence":
        answered = np.array(counts.answered)
        bounds = error_bound(counts.wrong, answered, confidence)
        least = -np.expm1(np.log1p(-confidence) / answered)  # `error_bound` of none wrong, in closed form
        return cls(bounds, least, int(np.searchsorted(answered, fewest)))

    def start(self, target: ArrayLike) -> Ints:
        """Return where tests begin: the fewest answered that pass if all are right; K: nowhere."""
        wanted = np.asarray(target, dtype=np.float64) + ROUNDING
        # Negated: searchsorted wants ascending values, and `least` falls as more are answered.
        return np.maximum(np.searchsorted(-self.least, -wanted), self.fewest)

    def passed(self, target: float) -> int:
        """Return how many tests pass before the first that fails."""
        kept = self.bounds[int(self.start(target)) :] <= target + ROUNDING
        return int(kept.size if kept.all() else kept.argmin())  # argmin: the first False

    def lowest(self, target: float) -> float | None:
        """Return the lowest error from `target` up, below 1, that passes a test; it is one of the bounds."""
        errors = np.unique(self.bounds[(self.bounds >= target) & (self.bounds < 1)])
        start = self.start(errors)
        # A start of K is nowhere: infinity passes no test.
        bounds = np.append(self.bounds, np.inf)[start]
        reached = errors[bounds <= errors + ROUNDING]
        return float(reached[0]) if reached.size else None


def _promise(counts: SelectiveCounts, tests: _Sequence, target: float, confidence: float) -> Promise:
    passed = tests.passed(target)
    if passed == 0:
        return Promise(target, confidence, None, 0, 0, 0.0, tests.lowest(target))
    at = int(tests.start(target)) + passed - 1
    kept, wrong = counts.answered[at], counts.wrong[at]
    return Promise(target, confidence, counts.thresholds[at], kept, wrong, kept / counts.num_rows, target)


def promises(
    counts: SelectiveCounts,
    targets: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    fewest: int = MIN_ANSWERED,
) -> list[Promise]:
    """Return for each target the lowest threshold whose error among the answered is at most that.

    Fixed-sequence testing: thresholds from the fewest answered that could pass at all (and at least `fewest`)
    to all that may be answered, each by `error_bound`; the last before the first failure. So the error
    exceeds the target with a probability of at most 1 - confidence over the draw of the rows, for one target
    at a time; exactly so where the error among the answered does not fall as the threshold does. Raises
    ValueError for a target or confidence outside of (0, 1).
    """
    if not all(0 < target < 1 for target in targets):
        raise ValueError("a target error must be in (0, 1)")
    tests = _Sequence.of(counts, confidence, fewest)
    return [_promise(counts, tests, target, confidence) for target in targets]
