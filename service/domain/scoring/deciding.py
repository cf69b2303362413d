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
HELD_BACK = "Hold it back. "
UNSUPPORTED = (
    "None of the answers drawn says what it says, so nothing tells how likely it is right. More answers may."
)
UNLIKE = (
    f"{HELD_BACK}The question, or the length of its answers, is unlike those that the calibration was made "
    "of: what it says of questions like those need not hold here."
)
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
        reason = _unreachable(counts, found, target)
        # Of a target that nobody named there is nothing to warn of.
        about = (
            [] if target.by_default else [ScoreWarning("target_unreachable", f"{reason} {PROMISE_MEANING}")]
        )
        return held_back(target, reason), about
    if correct is None:
        return held_back(target, UNSUPPORTED, found), []
    # Rounded as the counts were: scores that differ in their last bits only are one.
    passes = rounded_ties(correct) >= rounded_ties(found.threshold)
    kept = f"at most {percent(target.error)} of the answers let through are wrong ({_sure(target)})"
    told, needed = f"Right with a probability of {correct:.3f}", f"{found.threshold:.3f}"
    if not passes:
        return held_back(target, f"{told}, and {needed} is needed so that {kept}.", found), []
    reason = f"Let it through. {told}; from {needed} on, {kept}."
    return Decision("answer", target, reason, found.threshold, found.coverage), []


def held_back(target: Target, why: str, found: Promise | None = None) -> Decision:
    """Return the decision to abstain; found: the promise whose threshold the text misses."""
    reason = f"{HELD_BACK}{why}"
    if found is None:
        return Decision("abstain", target, reason)
    return Decision("abstain", target, reason, found.threshold, found.coverage)


@lru_cache(KEPT_PROMISES)
def promise(counts: SelectiveCounts, target: Target) -> Promise:
    """Return the threshold that keeps the target, or the lowest error that can be kept instead.

    Remembered: a bound for every threshold takes a millisecond for a thousand of them.
    """
    [found] = promises(counts, [target.error], target.confidence)
    return found


def _unreachable(counts: SelectiveCounts, found: Promise, target: Target) -> str:
    lowest = lowest_named(counts, found)
    instead = "no error can" if lowest is None else f"the lowest that can is {100 * lowest:g} %"
    return (
        f"That at most {percent(target.error)} of the answers let through are wrong cannot be promised "
        f"({_sure(target)}): {instead}."
    )


def _sure(target: Target) -> str:
    return f"kept by {100 * target.confidence:g} % of calibrations made like this one"


def percent(share: float) -> str:
    """Return a share in [0, 1] as percents, rounded up: a promise must not be rounded down."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} %"


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
