"""What a gateway is told to do with an answer, and why, in words."""

from dataclasses import dataclass
from typing import Literal

from service.domain.gateways.verifying import reason
from service.domain.scoring.judgement import Decision
from service.domain.scoring.judging import why_no_probability
from service.domain.scoring.model import Score


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to let an answer through.

    `reason`: of BLOCKED, what the caller is told; of NONE, why there was no score to decide by, else "".
    """

    action: Literal["NONE", "BLOCKED"]
    reason: str = ""
    score: Score | None = None


_UNSUPPORTED = (
    "This answer is held back: it says what none of the answers drawn to the same chat says, so nothing "
    "tells how likely it is right."
)

_UNLIKE = (
    "This answer is held back: the chat is unlike the questions that the calibration in force was made of, "
    "so nothing tells how likely it is right."
)


def unscored(why: str, *, fail_closed: bool, score: Score | None = None) -> Verdict:
    """Return the verdict where nothing can be decided: the chat goes on, unless it must not without one."""
    if fail_closed:
        return Verdict("BLOCKED", f"The answer could not be judged, and is held back. {why}", score)
    return Verdict("NONE", why, score)


def verdict(score: Score, *, fail_closed: bool) -> Verdict:
    """Return what the score's decision comes to."""
    decision, probability = score.judgement.decision, score.judgement.decisive
    if decision is not None and not score.judgement.supported and why_no_probability(score) is None:
        return Verdict("BLOCKED", _UNSUPPORTED, score)
    if decision is None or probability is None:
        return unscored(reason(score), fail_closed=fail_closed, score=score)
    if decision.action == "answer":
        return Verdict("NONE", score=score)
    if score.judgement.unlike:
        return Verdict("BLOCKED", _UNLIKE, score)
    return Verdict("BLOCKED", _in_words(decision, probability), score)


def _in_words(decision: Decision, probability: float) -> str:
    target = decision.target
    kept = f"at most {target.error:.3g} of the answers let through may be wrong"
    kept += f" (confidence {target.confidence:.3g}, on average over calibrations that might have been made)"
    if decision.threshold is None:
        return f"No answer is let through: that {kept} cannot be promised by the calibration in force."
    return (
        f"The model is not sure enough of this answer: it is right with a probability of {probability:.2f}, "
        f"and {decision.threshold:.2f} is needed, since {kept}."
    )
