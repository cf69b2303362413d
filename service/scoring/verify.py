"""POST /verify, with which vLLM's semantic router checks the answer of a small model."""

from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.errors import NoProbability
from service.http.openapi import BEARER, KEY_CODES, responses
from service.llm.prompt import Message
from service.llm.samples import is_blank
from service.scoring.request import Answer, PromptText
from service.scoring.routes import BODY_CODES, LLM_CODES, PART_CODES
from service.scoring.score import Claim, Score, ScoreCommand
from service.scoring.service import ScoringDep

router = APIRouter(tags=["gateways"])
DEADLINE_S = 50.0  # the router's default timeout is 60 s
EXAMPLE = {"question": "What is the capital of France?", "answer": "Paris", "threshold": 0.7}


class VerifyRequest(BaseModel):
    """An answer to judge, and its question. Further fields are ignored."""

    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    question: Annotated[PromptText, Field(pattern=r"\S", description="The question.")]
    answer: Answer = Field(description="The answer to judge.")
    threshold: float = Field(
        ge=0, le=1, allow_inf_nan=False, description="Lowest confidence that is not escalated, 0..1."
    )
    context: PromptText | None = Field(
        None, description="Context of the question, sent as a system message before it."
    )


class Verified(BaseModel):
    """The verdict on the answer."""

    confidence: float = Field(
        description="Calibrated probability that the answer is right, 0..1. It is 0 for a refusal, and for "
        "an answer that no drawn answer supports."
    )
    should_escalate: bool = Field(
        description="True if the confidence is below the threshold, or if most drawn answers are refusals."
    )
    verified_count: int = Field(
        description="Number of drawn answers on the mode of the judged answer: they are closest to the same "
        "eigenvector of the density matrix, so they have the same meaning. 0 if the answer belongs to no "
        "mode."
    )
    total_samples: int = Field(description="Number of answers drawn.")
    samples: list[str] = Field(description="The answers in the order drawn.")
    threshold: float = Field(description="Threshold of the request.")
    claims: list[Claim] | None = Field(
        None, description="Claims of a long answer, as in POST /score. Null for a short answer."
    )


@router.post(
    "/verify",
    summary="Is this answer right? In the format of vLLM's semantic router",
    response_model=Verified,
    responses=responses(*BODY_CODES, *KEY_CODES, *LLM_CODES, *PART_CODES, "no_probability"),
    openapi_extra=BEARER,
)
async def post_verify(
    request: Request,
    app: ScoringDep,
    body: Annotated[VerifyRequest, Body(openapi_examples={"question": {"value": EXAMPLE}})],
) -> Response:
    """Draw answers to the question and judge the given answer by them.

    `confidence` is P(correct) of the active calibration. If no calibration provides it, the error 503
    `no_probability` gives the reason. Raw values are not probabilities and are not returned as `confidence`.
    """
    if body.context:
        turns = (Message("system", body.context), Message("user", body.question))
        prompt, sampling = app.serving.template.prompt(None, turns), app.serving.messages_sampling
    else:
        prompt, sampling = app.serving.template.prompt(body.question), app.serving.sampling
    is_failed = is_blank(body.answer)  # it is right with probability 0
    command = ScoreCommand(
        app.serving.num_samples,
        sampling,
        prompt,
        deadline_s=DEADLINE_S,
        candidate=None if is_failed else body.answer,
        arrived=request.scope.get("eigencal.arrived"),
    )
    with app.metrics.under_way():
        score = await app.scorer.score(command)
        confidence = 0.0 if is_failed else probability_correct(score)
    content = Verified(
        confidence=confidence,
        should_escalate=confidence < body.threshold or score.is_held_back,
        verified_count=score.num_agreeing,
        total_samples=score.num_samples,
        samples=score.samples or [],
        threshold=body.threshold,
        claims=score.claims,
    )
    app.save(score, request.state.caller, ["modes"])
    return Response(content.model_dump_json(), headers=score.headers(), media_type="application/json")


def probability_correct(score: Score) -> float:
    """Return P(correct) of a score's candidate, 0..1. Raises NoProbability if no calibration gives it."""
    if score.unavailable_reason is not None:
        codes = ("calibration_", "evidence_", "self_check_")
        about = [warning.message for warning in score.warnings if warning.code.startswith(codes)]
        text = f"The probability that an answer is right is unknown: {score.unavailable_reason}."
        raise NoProbability(" ".join([text, *about]))
    # Refusals have no P(correct), and decisions let neither them nor unsupported answers through.
    return (score.decisive or 0.0) if score.supported else 0.0
