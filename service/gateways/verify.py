"""POST /verify, as vLLM's semantic router asks whether the answer of a small model will do."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, read_json, while_connected
from service.api.deps import Services, ServicesDep
from service.api.openapi import json_body, responses
from service.gateways.shared import GatewayModel, GatewaysDep, told
from service.gateways.verdicts import Verification, Verifier
from service.scoring.request import Answer, PromptText
from service.scoring.routes import BODY_CODES, LLM_CODES, PART_CODES

router = APIRouter(tags=["gateways"], dependencies=[Depends(score_scope)])
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
        description="Probability that the answer is right, 0..1, by the calibration; 0 for one that says "
        "what none of those drawn said."
    )
    should_escalate: bool = Field(
        description="Whether the confidence is below the threshold, or the question unlike those of the "
        "calibration (unless `EIGENCAL_OOD_ABSTAIN` is off)."
    )
    verified_count: int = Field(
        description="How many of the answers drawn lie on the mode of the answer: closest to the eigenvector "
        "of their density matrix that the answer belongs to, so that they mean the same. 0 where it belongs "
        "to none."
    )
    total_samples: int = Field(description="How many answers were drawn.")
    samples: list[str] = Field(description="The answers, in the order drawn.")
    threshold: float = Field(description="The threshold that was sent.")


@router.post(
    "/verify",
    summary="Is this answer right? As vLLM's semantic router asks it",
    response_model=Verified,
    responses=responses(*BODY_CODES, *KEY_CODES, *LLM_CODES, *PART_CODES, "no_probability"),
    openapi_extra={**json_body("VerifyRequest", {"question": EXAMPLE}), **BEARER},
)
async def post_verify(request: Request, app: ServicesDep, gateways: GatewaysDep) -> Response:
    """Draw answers to the question and judge the given one by them.

    `confidence` is P(correct) by the calibration in force. Where none tells it, 503 `no_probability` says
    why: raw values are no probabilities, and are not passed off as such.
    """
    body = await read_json(request, VerifyRequest)
    arrived = request.scope.get("eigencal.arrived")
    found = await while_connected(request, _verified(app, gateways.verifier, body, arrived))
    if found is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    headers = told(app, found.score, owner_of(request))
    content = _view(found, body.threshold).model_dump_json()
    return Response(content, headers=headers, media_type="application/json")


async def _verified(
    app: Services, verifier: Verifier, body: VerifyRequest, arrived: float | None
) -> Verification:
    with app.metrics.under_way():
        found = await verifier.verify(body.question, body.answer, body.context, arrived=arrived)
    app.metrics.scored(found.score)
    return found


def _view(found: Verification, threshold: float) -> Verified:
    return Verified(
        confidence=found.confidence,
        should_escalate=found.confidence < threshold or found.score.unlike,
        verified_count=found.num_agreeing,
        total_samples=found.score.num_samples,
        samples=found.score.samples or [],
        threshold=threshold,
    )
