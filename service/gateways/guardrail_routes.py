"""POST /beta/litellm_basic_guardrail_api, as LiteLLM's proxy calls it before and after each chat."""

from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, read_json, while_connected
from service.api.deps import Services, ServicesDep
from service.api.errors import request_id_of
from service.api.openapi import json_body, responses
from service.errors import EigencalError
from service.gateways.guardrail import Guardrail, Key, NotScoredError, reason_of
from service.gateways.shared import GatewayModel, GatewaysDep, UnscorableError, conversation, told
from service.gateways.verdicts import Verdict, unscored, verdict
from service.llm.port import GenerationRequest
from service.scoring.serving import Effort, Serving

router = APIRouter(tags=["gateways"], dependencies=[Depends(score_scope)])
PATH = "/beta/litellm_basic_guardrail_api"
MAX_REASON_CHARS = 500  # in a header
HEADERS: dict[str, Any] = {
    "X-Eigencal-Reason": {
        "description": "Why there is no score to decide by; absent where there is one.",
        "schema": {"type": "string"},
    }
}


class GuardrailParams(GatewayModel):
    """What the gateway's configuration, or a call, adds for this guardrail."""

    # Numbers and flags may come from the environment by way of YAML: as texts.
    model_config = ConfigDict(strict=False)

    target_error: float | None = Field(
        None, gt=0, lt=1, description="Share of wrong ones allowed among the answers let through."
    )
    confidence: float | None = Field(
        None, gt=0, lt=1, description="Confidence with which the target is kept."
    )
    effort: Effort | None = Field(None, description="How many answers are drawn.")
    fail_closed: bool = Field(
        False,
        description="Whether to block an answer that cannot be scored; so where it cannot be read.",
    )


class GuardrailCall(GatewayModel):
    """A chat before it goes to the LLM (`request`), or its answer, as far as it has come (`response`)."""

    input_type: Literal["request", "response"] = Field(description="Which of the two calls it is.")
    litellm_call_id: str | None = Field(None, description="The same in both calls of one chat.")
    structured_messages: list[Any] | None = Field(None, description="The chat's messages (`request`).")
    texts: list[Any] | None = Field(None, description="The texts; of an answer, the first is judged.")
    images: list[Any] | None = Field(None, description="A chat with images is not scored.")
    tools: list[Any] | None = Field(None, description="A chat with tools is not scored.")
    tool_calls: list[Any] | None = Field(None, description="An answer that calls tools is not scored.")
    additional_provider_specific_params: dict[str, Any] | None = Field(
        None, description="`target_error`, `confidence`, `effort`, `fail_closed`; others are passed over."
    )


class GuardrailVerdict(BaseModel):
    """What the gateway is to do."""

    action: Literal["NONE", "BLOCKED"] = Field(description="Go on, or do not.")
    blocked_reason: str | None = Field(None, description="Of BLOCKED: why, for a person.")


@router.post(
    PATH,
    summary="LiteLLM's guardrail: hold answers back that are not sure enough",
    response_model=GuardrailVerdict,
    responses={
        200: {"headers": HEADERS},
        **responses("invalid_request", "body_too_large", "unsupported_media_type", *KEY_CODES, "internal"),
    },
    openapi_extra={**json_body("GuardrailCall"), **BEARER},
)
async def post_guardrail(request: Request, app: ServicesDep, gateways: GatewaysDep) -> Response:
    """At `request`, begin to draw answers to the chat, which goes on at once; at `response`, judge.

    BLOCKED when the decision at the target error (of the settings, or of
    `additional_provider_specific_params`) is to abstain. NONE when it is to answer, when no target is set,
    and when no score is possible, unless `fail_closed` is true: `X-Eigencal-Reason` and the log say why.
    """
    call = await read_json(request, GuardrailCall)
    key = Key(call.litellm_call_id or "", owner_of(request))
    params, wrong = _params(call)
    if call.input_type == "request":
        _begin(call, params, key, gateways.guardrail, app.serving)
        return _answer(Verdict("NONE"), {})
    if call.structured_messages:
        # Where its request went to another replica, or was never sent, it is drawn for now.
        _begin(call, params, key, gateways.guardrail, app.serving)
    work = _judged(app, gateways.guardrail, call, params, key, wrong)
    found = await while_connected(request, work)
    if found is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    headers = {} if found.score is None else told(app, found.score, key.owner)
    if found.score is None or found.score.decisive is None:
        _note(app, request, found.reason)
        headers["X-Eigencal-Reason"] = found.reason.encode("ascii", "replace").decode()[:MAX_REASON_CHARS]
    return _answer(found, headers)


def _params(call: GuardrailCall) -> tuple[GuardrailParams, str]:
    """Return the parameters, and what is wrong with them: a mistake there must not fail chats."""
    sent = call.additional_provider_specific_params or {}
    try:
        return GuardrailParams.model_validate(sent), ""
    except ValidationError as error:
        names = ", ".join(sorted({str(item["loc"][0]) for item in error.errors(include_input=False)}))
        closed = GuardrailParams(fail_closed=_closed(sent))
        return closed, f"additional_provider_specific_params has no usable {names}."


def _closed(sent: dict[str, Any]) -> bool:
    """Return `fail_closed` among parameters that are wrong; where it cannot be read, it is meant."""
    try:
        return GuardrailParams.model_validate(
            {n: v for n, v in sent.items() if n == "fail_closed"}
        ).fail_closed
    except ValidationError:
        return True


def _begin(
    call: GuardrailCall, params: GuardrailParams, key: Key, guardrail: Guardrail, serving: Serving
) -> None:
    """Begin to draw, or remember why not for the second call."""
    if not key.call_id:
        return
    try:
        guardrail.begin(key, _asked(call, params, serving))
    except UnscorableError as error:
        guardrail.refuse(key, str(error))
    except EigencalError as error:
        guardrail.refuse(key, error.detail)


def _asked(call: GuardrailCall, params: GuardrailParams, serving: Serving) -> GenerationRequest:
    if call.tools:
        raise UnscorableError("The chat has tools.")
    if call.images:
        raise UnscorableError("The chat has images.")
    number = None if params.effort is None else serving.efforts.num_samples(params.effort)
    return serving.request(messages=conversation(call.structured_messages or ()), num_samples=number)


async def _judged(
    app: Services, guardrail: Guardrail, call: GuardrailCall, params: GuardrailParams, key: Key, wrong: str
) -> Verdict:
    closed = params.fail_closed
    target = app.serving.target(params.target_error, params.confidence)
    why_not = wrong or _unjudged(call, key)
    if why_not:
        return unscored(why_not, fail_closed=closed)
    try:
        with app.metrics.under_way():
            score = await guardrail.score(key, str((call.texts or [""])[0]), target)
    except NotScoredError as error:
        return unscored(str(error), fail_closed=closed)
    except Exception as error:  # of whatever kind: a score that fails must not fail the chat
        return unscored(reason_of(error), fail_closed=closed)
    app.metrics.scored(score)
    return verdict(score, fail_closed=closed)


def _unjudged(call: GuardrailCall, key: Key) -> str:
    """Return why an answer cannot be judged, whatever was drawn; "" when it can."""
    if call.tool_calls:
        return "The answer calls tools."
    if not call.texts or not isinstance(call.texts[0], str):
        return "The answer has no text."
    return "" if key.call_id else "The call has no litellm_call_id."


def _note(app: Services, request: Request, reason: str) -> None:
    """Log why a chat goes unjudged, as errors are: of a storm a few and their number."""
    body = {"status": 503, "code": "guardrail_unscored", "retryable": True, "detail": reason}
    app.errors.note(body | {"request_id": request_id_of(request)}, f"POST {PATH}")


def _answer(found: Verdict, headers: dict[str, str]) -> Response:
    reason = found.reason if found.action == "BLOCKED" else None
    content = GuardrailVerdict(action=found.action, blocked_reason=reason).model_dump_json(exclude_none=True)
    return Response(content, headers=headers, media_type="application/json")
