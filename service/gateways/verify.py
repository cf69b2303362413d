"""POST /verify, with which vLLM's semantic router checks the answer of a small model."""

import math
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, read_json, while_connected
from service.api.openapi import json_body, responses
from service.embedding.port import FAILED
from service.errors import NoProbability
from service.gateways.shared import GatewayModel, keep_and_head, why_no_probability
from service.llm.port import Message, is_blank
from service.scoring.routes import BODY_CODES, LLM_CODES, PART_CODES, Answer, PromptText
from service.scoring.score import Claim, Score, ScoreCommand
from service.scoring.services import ScoringDep, ScoringServices

router = APIRouter(tags=["gateways"], dependencies=[Depends(score_scope)])
DEADLINE_S = 50.0  # the router's default timeout is 60 s; a score of fewer answers is better than none
EXAMPLE = {"question": "What is the capital of France?", "answer": "Paris", "threshold": 0.7}


class VerifyRequest(GatewayModel):
    """An answer that somebody has, and the question that it answers. Further fields are passed over."""

    question: Annotated[PromptText, Field(pattern=r"\S", description="The question.")]
    answer: Answer = Field(description="The answer to judge.")
    threshold: float = Field(
        ge=0, le=1, allow_inf_nan=False, description="Least confidence that is not to be escalated."
    )
    context: PromptText | None = Field(
        None, description="What the question is asked about: a system message before it."
    )


class Verified(BaseModel):
    """Whether the answer will do."""

    confidence: float = Field(
        description="Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for "
        "an answer that no drawn answer supports."
    )
    should_escalate: bool = Field(
        description="True if the confidence is below the threshold, if most drawn answers are refusals, or "
        "if the question is out of distribution (unless `EIGENCAL_OOD_ABSTAIN` is off)."
    )
    verified_count: int = Field(
        description="How many of the answers drawn lie on the mode of the answer: closest to the eigenvector "
        "of their density matrix that the answer belongs to, so that they mean the same. 0 where it belongs "
        "to none."
    )
    total_samples: int = Field(description="How many answers were drawn.")
    samples: list[str] = Field(description="The answers, in the order drawn.")
    threshold: float = Field(description="The threshold that was sent.")
    claims: list[Claim] | None = Field(
        None, description="The claims of a long answer, as POST /score has them; null of a short one."
    )


@router.post(
    "/verify",
    summary="Is this answer right? As vLLM's semantic router asks it",
    response_model=Verified,
    responses=responses(*BODY_CODES, *KEY_CODES, *LLM_CODES, *PART_CODES, "no_probability"),
    openapi_extra={**json_body("VerifyRequest", {"question": EXAMPLE}), **BEARER},
)
async def post_verify(request: Request, app: ScoringDep) -> Response:
    """Draw answers to the question and judge the given one by them.

    `confidence` is P(correct) by the calibration in force. Where none tells it, 503 `no_probability` says
    why: raw values are no probabilities, and are not passed off as such.
    """
    app.admission.refuse_if_full("gateway")
    body = await read_json(request, VerifyRequest)
    with app.admission.one("gateway"):
        arrived = request.scope.get("eigencal.arrived")
        verified = await while_connected(request, _verified(app, body, arrived))
    if verified is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    score, confidence = verified
    content = Verified(
        confidence=confidence,
        should_escalate=confidence < body.threshold or score.unlike or score.is_refused,
        verified_count=score.num_agreeing,
        total_samples=score.num_samples,
        samples=score.samples or [],
        threshold=body.threshold,
        claims=score.claims,
    )
    headers = keep_and_head(app, score, owner_of(request))
    return Response(content.model_dump_json(), headers=headers, media_type="application/json")


async def _verified(app: ScoringServices, body: VerifyRequest, arrived: float | None) -> tuple[Score, float]:
    """Return the score, and P(correct) of the given answer."""
    if body.context:
        turns = (Message("system", body.context), Message("user", body.question))
        generation = app.serving.request(messages=turns)
    else:
        generation = app.serving.request(prompt=body.question)
    # A blank answer is right with probability 0, unless empty answers have a meaning.
    is_failed = is_blank(body.answer) and app.scorer.empty_answers == FAILED
    candidate = None if is_failed else body.answer
    command = ScoreCommand(replace(generation, deadline_s=DEADLINE_S), candidate=candidate, arrived=arrived)
    with app.metrics.under_way():
        score = await app.scorer.score(command)
        confidence = 0.0 if is_failed else probability_correct(score)
    app.metrics.scored(score)
    return score, confidence


def probability_correct(score: Score) -> float:
    """Return P(correct) of a score's candidate, in [0, 1]. Raises NoProbability if it is unknown."""
    candidate = score.candidate
    correct = None if candidate is None else candidate.probability_correct
    if score.no_model is None and (not score.supported or (score.is_refused and correct is None)):
        # Decisions never let such a text through. After an error, a router that fails open would forward it.
        correct = 0.0
    if score.no_model is not None or correct is None or not math.isfinite(correct):
        raise NoProbability(why_no_probability(score))
    return min(max(correct, 0.0), 1.0)
