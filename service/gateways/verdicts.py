"""How likely an answer is right, for a router that asks another model when it is not likely enough."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from service.errors import NoProbability
from service.llm.port import FAILED, GenerationRequest, Message, is_blank
from service.scoring.command import ScoreCommand
from service.scoring.judging import HELD_BACK
from service.scoring.score import Score
from service.scoring.scorer import Scorer
from service.scoring.serving import Serving

DEADLINE_S = 50.0  # the router gives up after 60 by default, and a score of fewer answers is better than none


@dataclass(frozen=True, slots=True)
class Verification:
    """What the answers drawn say of a given one.

    `confidence`: P(correct), in [0, 1]; 0 for an answer that none of those drawn supports.
    `num_agreeing`: how many of the answers drawn lie on its mode.
    """

    confidence: float
    num_agreeing: int
    score: Score


class Verifier:
    """Judges answers given by others."""

    def __init__(self, scorer: Scorer, serving: Serving) -> None:
        self._scorer = scorer
        self._serving = serving

    async def verify(
        self, question: str, answer: str, context: str | None = None, *, arrived: float | None = None
    ) -> Verification:
        """Return what is to be said of an answer to a question, which `context` precedes as a system message.

        A blank answer is right with probability 0, unless empty answers mean something. Raises NoProbability
        where nothing tells P(correct), and what `Scorer.score` raises.
        """
        blank = is_blank(answer) and self._scorer.empty_answers == FAILED
        candidate = None if blank else answer
        command = ScoreCommand(self._request(question, context), candidate=candidate, arrived=arrived)
        score = await self._scorer.score(command)
        return Verification(0.0, 0, score) if blank else verification(score)

    def _request(self, question: str, context: str | None) -> GenerationRequest:
        if context:
            turns = (Message("system", context), Message("user", question))
            request = self._serving.request(messages=turns)
        else:
            request = self._serving.request(prompt=question)
        return replace(request, deadline_s=DEADLINE_S)


def verification(score: Score) -> Verification:
    """Return what a score says of its candidate. Raises NoProbability where nothing tells P(correct)."""
    judged = score.candidate
    correct = None if judged is None else judged.probability_correct
    if not score.supported and score.no_model is None:
        # Decisions never let such a text through. As a failure, a router that fails open would send it on.
        correct = 0.0
    if judged is None or correct is None or not math.isfinite(correct):
        raise NoProbability(reason(score))
    return Verification(min(max(correct, 0.0), 1.0), score.num_agreeing, score)


def reason(score: Score) -> str:
    """Return why a score has no P(correct), with what its warnings say of the calibration."""
    why = score.no_model or "its model gives no finite number"
    about = [w.message for w in score.warnings if w.code.startswith(("calibration_", "evidence_"))]
    return " ".join([f"Nothing tells how likely an answer is right: {why}.", *about])


# What a gateway is told to do with an answer, and why, in words.


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
    decision = score.decision
    if decision is None or score.no_model is not None:
        return unscored(reason(score), fail_closed=fail_closed, score=score)
    if decision.action == "answer":
        return Verdict("NONE", score=score)
    # Told to whoever waits for the answer, not to who decides about it.
    why = decision.reason.removeprefix(HELD_BACK)
    return Verdict("BLOCKED", f"This answer is held back. {why}", score)
