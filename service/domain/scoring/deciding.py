"""Whether a text is let through: by the thresholds that a calibration's counts allow (method, section 8)."""

import math
from functools import lru_cache

from service.domain.decider import PROMISE_MEANING
from service.domain.scoring.judgement import Decision, Target
from service.domain.scoring.model import ScoreWarning
from service.spectral.reliability import rounded_ties
from service.spectral.selective import Promise, SelectiveCounts, promises

# Callers choose targets freely; those of the settings, and of most callers, are few.
KEPT_PROMISES = 256
# Digits of the lowest error named, most readable first.
NAMED_DIGITS = (3, 6, 9)


def decide(
    counts: SelectiveCounts, correct: float | None, target: Target
) -> tuple[Decision, list[ScoreWarning]]:
    """Return whether to let a text of this P(correct) through, and what to know about it.

    `correct`: None for a text that no answer supports: it is let through by no threshold.
    """
    found = promise(counts, target)
    if found.threshold is None:
        return Decision("abstain", target), [_unreachable(counts, found, target)]
    # Without support there is none, whatever the threshold: so were the rows counted.
    # Rounded as the counts were: scores that differ in their last bits only are one.
    passes = correct is not None and rounded_ties(correct) >= rounded_ties(found.threshold)
    return Decision("answer" if passes else "abstain", target, found.threshold, found.coverage), []


@lru_cache(KEPT_PROMISES)
def promise(counts: SelectiveCounts, target: Target) -> Promise:
    """Return the threshold that keeps the target, or the lowest error that can be kept instead.

    Remembered: a bound for every threshold takes a millisecond for a thousand of them.
    """
    [found] = promises(counts, [target.error], target.confidence)
    return found


def _unreachable(counts: SelectiveCounts, found: Promise, target: Target) -> ScoreWarning:
    lowest = lowest_named(counts, found)
    instead = "no error can" if lowest is None else f"the lowest that can is {lowest}"
    message = (
        f"An error of {target.error} among the answers let through cannot be promised with a confidence of "
        f"{target.confidence}: {instead}. So none is let through. {PROMISE_MEANING}"
    )
    return ScoreWarning("target_unreachable", message)


def lowest_named(counts: SelectiveCounts, found: Promise) -> float | None:
    """Return the lowest error that can be promised, rounded up to a target that is kept when asked for."""
    if found.lowest_error is None:
        return None
    for digits in NAMED_DIGITS:
        # Not always kept: tests of a laxer target may begin at fewer answers, and fail there.
        rounded: float = math.ceil(found.lowest_error * 10**digits) / 10**digits
        if rounded < 1 and promise(counts, Target(rounded, found.confidence)).threshold is not None:
            return rounded
    return found.lowest_error
