"""POST /beta/litellm_basic_guardrail_api, which LiteLLM's proxy calls before and after each chat.

The first call, with the request, starts to draw samples. The second call, with the answer, gets the verdict.
Samples are in this replica's memory, so with several replicas both calls of a chat must go to the same one.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, JsonBody, JsonRoute
from service.api.errors import request_id_of
from service.api.openapi import responses
from service.errors import EigencalError, Unscorable
from service.gateways.shared import GatewayModel, conversation, save, why_no_probability
from service.llm.port import GenerationRequest
from service.scoring.judging import HELD_BACK
from service.scoring.score import EFFORTS, DrawnEffort, Score, ScoreCommand, Serving, Target
from service.scoring.scorer import Samples, Scorer
from service.scoring.service import ScoringDep

router = APIRouter(tags=["gateways"], dependencies=[Depends(score_scope)], route_class=JsonRoute)
log = logging.getLogger(__name__)
PATH = "/beta/litellm_basic_guardrail_api"
MAX_REASON_CHARS = 500  # in a header
HEADERS: dict[str, Any] = {
    "X-Eigencal-Reason": {
        "description": "Reason why no score can decide. Absent if there is a score.",
        "schema": {"type": "string"},
    }
}


WAIT_S = 30.0  # longest wait of a verdict for samples that are still being drawn
MAX_KNOWN = 1024  # calls with samples in memory, about 20 short texts each
_TWO_CHATS = "Two chats have this litellm_call_id, so it is unknown to which chat the answer belongs."
_UNKNOWN = (
    "No request call came here with this litellm_call_id, so no answers were drawn. The guardrail needs both "
    "`pre_call` and `post_call`, and both calls of a chat must go to the same replica."
)
# The gateway's id of a call, and a hash of the gateway's API key.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Call:
    """A chat with its samples."""

    request: GenerationRequest
    drawing: "asyncio.Task[Samples]"


class Guardrail:
    """Draws samples while the LLM answers, and judges the answer."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        # Oldest first. Unscorable: the reason why the call is not scored.
        self._calls: OrderedDict[Key, _Call | Unscorable] = OrderedDict()

    async def stop(self) -> None:
        """Cancel all drawing; idempotent."""
        drawings = [call.drawing for call in self._calls.values() if isinstance(call, _Call)]
        self._calls.clear()
        for drawing in drawings:
            drawing.cancel()
        await asyncio.gather(*drawings, return_exceptions=True)

    def begin(self, key: Key, request: GenerationRequest) -> None:
        """Start to draw in the background, once per call. Does not wait.

        Answers carry only their call's id, so if two chats have the same id, neither is judged.
        """
        call = self._calls.get(key)
        if isinstance(call, Unscorable):
            return
        if call is not None and call.request.messages != request.messages:
            self.refuse(key, Unscorable("two_chats", _TWO_CHATS))
        elif call is None or (call.drawing.done() and call.drawing.exception() is not None):
            drawing = asyncio.create_task(self._scorer.draw(ScoreCommand(request)), name="guardrail-draw")
            self._keep(key, _Call(request, drawing))

    def refuse(self, key: Key, reason: Unscorable) -> None:
        """Remember why a call is not scored, for its second call. Does not wait."""
        self._keep(key, reason)

    async def score(self, key: Key, text: str, target: Target) -> Score:
        """Return the score of a call's answer, which may be incomplete. Samples are drawn only once.

        Raises Unscorable, and the errors of `Scorer.draw` and `Scorer.finish`.
        """
        call = self._calls.get(key, Unscorable("not_drawn", _UNKNOWN))
        if isinstance(call, Unscorable):
            raise Unscorable(call.code, call.message)
        # Awaiting the task itself would cancel it when the caller hangs up; a later call may need it.
        await asyncio.wait({call.drawing}, timeout=WAIT_S)
        if not call.drawing.done() or call.drawing.cancelled():
            raise Unscorable("deadline_exceeded", "The answers were not drawn in time.")
        # Drawing ran while the LLM answered, so it does not count in the verdict's time.
        generation, seconds = call.drawing.result().generation, {"queue": 0.0, "generate": 0.0}
        command = ScoreCommand(call.request, target=target)
        return await self._scorer.finish(Samples(command, None, generation, seconds), text)

    def _keep(self, key: Key, call: _Call | Unscorable) -> None:
        forgotten = [self._calls.pop(key, None)]
        self._calls[key] = call
        if len(self._calls) > MAX_KNOWN:
            forgotten.append(self._calls.popitem(last=False)[1])
        for old_call in forgotten:
            if isinstance(old_call, _Call):
                old_call.drawing.cancel()


async def guardrail_of(request: Request) -> Guardrail:
    """Return the application's guardrail."""
    guardrail: Guardrail = request.app.state.guardrail
    return guardrail


GuardrailDep = Annotated[Guardrail, Depends(guardrail_of)]


class GuardrailParams(GatewayModel):
    """Parameters of this guardrail, from the gateway's configuration or from a call."""

    # Numbers and flags may be strings, if YAML takes them from the environment.
    model_config = ConfigDict(strict=False)

    target_error: float | None = Field(None, gt=0, lt=1)
    confidence: float | None = Field(None, gt=0, lt=1)
    effort: DrawnEffort | None = None
    fail_closed: bool = False  # whether to block an answer that cannot be scored


class GuardrailCall(GatewayModel):
    """A chat before it goes to the LLM (`request`), or its answer received so far (`response`)."""

    input_type: Literal["request", "response"] = Field(
        description="Kind of the call: before the LLM (`request`) or after it (`response`)."
    )
    litellm_call_id: str | None = Field(
        None, description="Id of the chat. Both calls of a chat have the same id."
    )
    structured_messages: list[Any] | None = Field(None, description="The chat's messages (`request`).")
    texts: list[Any] | None = Field(None, description="The texts. For an answer, the first text is judged.")
    images: list[Any] | None = Field(None, description="A chat with images is not scored.")
    tools: list[Any] | None = Field(None, description="A chat with tools is not scored.")
    tool_calls: list[Any] | None = Field(None, description="An answer that calls tools is not scored.")
    additional_provider_specific_params: dict[str, Any] | None = Field(
        None,
        description="Options `target_error`, `confidence`, `effort` and `fail_closed`. Others are ignored.",
    )


class GuardrailVerdict(BaseModel):
    """The verdict for the gateway."""

    action: Literal["NONE", "BLOCKED"] = Field(description="`NONE`: continue. `BLOCKED`: hold the text back.")
    blocked_reason: str | None = Field(None, description="For `BLOCKED`: the reason in plain English.")


@router.post(
    PATH,
    summary="LiteLLM's guardrail: hold uncertain answers back",
    response_model=GuardrailVerdict,
    responses={
        200: {"headers": HEADERS},
        **responses("invalid_request", "body_too_large", "unsupported_media_type", *KEY_CODES, "internal"),
    },
    openapi_extra=BEARER,
)
async def post_guardrail(
    request: Request,
    app: ScoringDep,
    guardrail: GuardrailDep,
    call: Annotated[GuardrailCall, Depends(JsonBody(GuardrailCall))],
) -> Response:
    """At `request`, start to draw answers; the chat continues at once. At `response`, judge the answer.

    The action is BLOCKED if the decision at the target error (from the settings or
    `additional_provider_specific_params`) is to abstain. It is NONE if the decision is to answer, if no
    target is set, and if no score is possible, unless `fail_closed` is true. `X-Eigencal-Reason` and the log
    then give the reason.
    """
    key = (call.litellm_call_id or "", owner_of(request))
    params, fault = _params(call)
    # If an answer includes its messages, samples are drawn now in case its request call did not come here.
    if key[0] and (call.input_type == "request" or call.structured_messages):
        _begin(call, params, key, guardrail, app.serving)
    if call.input_type == "request":
        return _verdict(None, {})
    score, reason, headers = None, fault, {}
    try:
        if not fault:
            answer, target = _answer_of(call, key), app.serving.target(params.target_error, params.confidence)
            score = await app.serve(request, "gateway", lambda: guardrail.score(key, answer, target))
            if score is None:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            headers = save(app, request, score)
            if score.decision is None or (score.unavailable_reason is not None and not score.is_refused):
                reason = why_no_probability(score)
    except Unscorable as error:
        reason = error.message
    except EigencalError as error:
        reason = error.detail
    except Exception:  # a failed score must never fail the chat
        log.exception("unexpected error in a guardrail")
        reason = "Something went wrong in the service."
    blocked = None
    if reason and params.fail_closed:
        blocked = f"The answer could not be judged and is held back. {reason}"
    elif not reason and score is not None and score.decision and score.decision.action == "abstain":
        # This text is for the person who waits for the answer, so the advice to hold it back is removed.
        blocked = f"This answer is held back. {score.decision.reason.removeprefix(HELD_BACK)}"
    if reason or score is None or score.decisive is None:
        why = blocked or reason
        log.warning("guardrail_unscored, request %s: %s", request_id_of(request), why)
        headers["X-Eigencal-Reason"] = why.encode("ascii", "replace").decode()[:MAX_REASON_CHARS]
    return _verdict(blocked, headers)


def _params(call: GuardrailCall) -> tuple[GuardrailParams, str]:
    """Return the parameters and an error message, or "". Wrong parameters must not fail chats."""
    sent = call.additional_provider_specific_params or {}
    try:
        return GuardrailParams.model_validate(sent), ""
    except ValidationError as error:
        names = ", ".join(sorted({str(item["loc"][0]) for item in error.errors(include_input=False)}))
        closed = GuardrailParams(fail_closed=_is_closed(sent))
        return closed, f"additional_provider_specific_params: {names} cannot be used."


def _is_closed(sent: dict[str, Any]) -> bool:
    """Return `fail_closed` of parameters with errors; True if it cannot be read."""
    try:
        return GuardrailParams.model_validate({"fail_closed": sent.get("fail_closed", False)}).fail_closed
    except ValidationError:
        return True


def _begin(
    call: GuardrailCall, params: GuardrailParams, key: Key, guardrail: Guardrail, serving: Serving
) -> None:
    """Start to draw, or remember the reason why not for the second call."""
    if call.tools or call.images:
        reason = f"The chat has {'tools' if call.tools else 'images'}."
        guardrail.refuse(key, Unscorable("no_text", reason))
        return
    try:
        number = None if params.effort is None else EFFORTS[params.effort]
        messages = conversation(call.structured_messages or ())
        guardrail.begin(key, serving.request(messages=messages, num_samples=number))
    except Unscorable as error:
        guardrail.refuse(key, error)


def _answer_of(call: GuardrailCall, key: Key) -> str:
    """Return the text to judge. Raises Unscorable."""
    if call.tool_calls:
        raise Unscorable("tool_call", "The answer calls tools.")
    if not call.texts or not isinstance(call.texts[0], str):
        raise Unscorable("no_text", "The answer has no text.")
    if not key[0]:
        raise Unscorable("not_drawn", "The call has no litellm_call_id.")
    return call.texts[0]


def _verdict(blocked: str | None, headers: dict[str, str]) -> Response:
    verdict = GuardrailVerdict(action="BLOCKED" if blocked else "NONE", blocked_reason=blocked)
    content = verdict.model_dump_json(exclude_none=True)
    return Response(content, headers=headers, media_type="application/json")
