"""What a gateway is told to do with an answer, and why, in words."""

from dataclasses import dataclass
from typing import Literal

from service.domain.gateways.verifying import reason
from service.domain.scoring.deciding import HELD_BACK
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


def unscored(why: str, *, fail_closed: bool, score: Score | None = None) -> Verdict:
    """Return the verdict where nothing can be decided: the chat goes on, unless it must not without one."""
    if fail_closed:
        return Verdict("BLOCKED", f"The answer could not be judged, and is held back. {why}", score)
    return Verdict("NONE", why, score)


def verdict(score: Score, *, fail_closed: bool) -> Verdict:
    """Return what the score's decision comes to."""
    decision = score.judgement.decision
    if decision is None or why_no_probability(score) is not None:
        return unscored(reason(score), fail_closed=fail_closed, score=score)
    if decision.action == "answer":
        return Verdict("NONE", score=score)
    # Told to whoever waits for the answer, not to who decides about it.
    why = decision.reason.removeprefix(HELD_BACK)
    return Verdict("BLOCKED", f"This answer is held back. {why}", score)
