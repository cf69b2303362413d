"""POST /beta/litellm_basic_guardrail_api, as LiteLLM's proxy calls it before and after each chat.

Drawing begins with the request to an LLM, the verdict comes with its answer. What is drawn is in this
replica's memory: where several run, the gateway sends both calls of a chat to one.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from service.api.auth import BEARER, KEY_CODES, owner_of, score_scope
from service.api.bodies import CLIENT_CLOSED_REQUEST, read_json, while_connected
from service.api.deps import Services, ServicesDep
from service.api.errors import request_id_of
from service.api.openapi import json_body, responses
from service.errors import EigencalError, Overloaded, Unscorable
from service.gateways.shared import GatewayModel, conversation, keep_and_head, why_no_probability
from service.llm.port import Generation, GenerationRequest
from service.scoring.judging import HELD_BACK
from service.scoring.score import EFFORTS, DrawnEffort, Score, ScoreCommand, Serving, Target
from service.scoring.scorer import Drawn, Scorer

router = APIRouter(tags=["gateways"], dependencies=[Depends(score_scope)])
log = logging.getLogger(__name__)
PATH = "/beta/litellm_basic_guardrail_api"
MAX_REASON_CHARS = 500  # in a header
HEADERS: dict[str, Any] = {
    "X-Eigencal-Reason": {
        "description": "Why there is no score to decide by; absent where there is one.",
        "schema": {"type": "string"},
    }
}


KEEP_S = 600.0  # between the two calls of one chat lies one answer of the LLM
WAIT_S = 30.0
MAX_KNOWN = 1024  # calls whose answers are in memory: some 20 short texts each
MAX_UNDER_WAY = 256
_TWO_CHATS = "Two chats came under this litellm_call_id: which of them an answer belongs to cannot be told."
_STOPPED = "The drawing was broken off."
_SLOW = "The answers were not drawn in time."
_UNKNOWN = (
    "No request call came here under this litellm_call_id, so nothing was drawn: the guardrail needs "
    "`pre_call` beside `post_call`, and both calls of a chat at the same replica."
)


@dataclass(frozen=True, slots=True)
class Key:
    """The id that a gateway has for a call, and the mark of the key that it calls with."""

    call_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A chat that is drawn beside, or why it is not. `since`: on the monotonic clock, in seconds."""

    since: float
    request: GenerationRequest | None = None
    drawing: asyncio.Task[Generation] | None = None
    refusal: str = ""


class Guardrail:
    """Draws for calls under way, `MAX_UNDER_WAY` at most, and judges their answers.

    `wait_s`: how long a verdict waits at most for answers that are still being drawn. `keep_s`: how long it
    may come after its request.
    """

    def __init__(self, scorer: Scorer, *, wait_s: float = WAIT_S, keep_s: float = KEEP_S) -> None:
        self._scorer = scorer
        self._wait_s = wait_s
        self._keep_s = keep_s
        self._calls: OrderedDict[Key, _Call] = OrderedDict()  # oldest first

    async def stop(self) -> None:
        """End what is under way; idempotent."""
        drawings = [call.drawing for call in self._calls.values() if call.drawing is not None]
        self._calls.clear()
        for drawing in drawings:
            drawing.cancel()
        await asyncio.gather(*drawings, return_exceptions=True)

    def begin(self, key: Key, request: GenerationRequest) -> None:
        """Begin to draw in the background, unless that is being done for this call; never waits.

        An answer comes with its id alone: of two chats under one id, neither is judged. Raises Overloaded
        when too many calls are under way.
        """
        self._expire()
        known = self._calls.get(key)
        if known is not None and known.request is None:  # refused before
            return
        if known is not None and known.request is not None and known.request.messages != request.messages:
            self.refuse(key, _TWO_CHATS)
            return
        if known is not None and not _has_failed(known.drawing):
            return
        self._forget(key)
        if sum(not _is_done(call.drawing) for call in self._calls.values()) >= MAX_UNDER_WAY:
            raise Overloaded("Too many calls of the guardrail are under way.")
        drawing = asyncio.create_task(self._draw(request), name="guardrail-draw")
        self._keep(key, _Call(time.monotonic(), request, drawing))

    def refuse(self, key: Key, reason: str) -> None:
        """Remember why a call is not scored, for whoever is asked for its verdict; never waits."""
        self._forget(key)
        self._keep(key, _Call(time.monotonic(), refusal=reason))

    async def score(self, key: Key, text: str, target: Target) -> Score:
        """Return the score of a call's answer, as far as it has come; nothing is drawn twice for it.

        Raises Unscorable, and what drawing and `Scorer.finish` raise.
        """
        self._expire()
        call = self._calls.get(key)
        if call is None or call.drawing is None or call.request is None:
            raise Unscorable("not_drawn", _UNKNOWN if call is None else call.refusal)
        # Not awaited itself, which would cancel it when the caller hangs up: another may ask later.
        await asyncio.wait({call.drawing}, timeout=self._wait_s)
        if not call.drawing.done():
            raise Unscorable("deadline_exceeded", _SLOW)
        if call.drawing.cancelled():
            raise Unscorable("overloaded", _STOPPED)
        return await self._scorer.finish(_drawn(call.request, call.drawing.result(), target), text)

    async def _draw(self, request: GenerationRequest) -> Generation:
        return (await self._scorer.draw(ScoreCommand(request))).generation

    def _keep(self, key: Key, call: _Call) -> None:
        self._calls[key] = call
        while len(self._calls) > MAX_KNOWN:
            self._forget(next(iter(self._calls)))

    def _forget(self, key: Key) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.drawing is not None:
            call.drawing.cancel()

    def _expire(self) -> None:
        """Forget calls that nobody has asked about for long."""
        before = time.monotonic() - self._keep_s
        while self._calls and next(iter(self._calls.values())).since < before:
            self._forget(next(iter(self._calls)))


def _is_done(drawing: "asyncio.Task[Generation] | None") -> bool:
    return drawing is None or drawing.done()


def _has_failed(drawing: "asyncio.Task[Generation] | None") -> bool:
    return drawing is not None and (
        drawing.cancelled() or (drawing.done() and drawing.exception() is not None)
    )


def _drawn(request: GenerationRequest, generation: Generation, target: Target) -> Drawn:
    # The verdict's time is not that of the drawing, which was beside the LLM's answer.
    seconds = {"queue": 0.0, "generate": 0.0}
    return Drawn(ScoreCommand(request, target=target), None, generation, seconds)


async def guardrail_of(request: Request) -> Guardrail:
    """Return the guardrail of the application that got the request."""
    guardrail: Guardrail = request.app.state.guardrail
    return guardrail


GuardrailDep = Annotated[Guardrail, Depends(guardrail_of)]


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
    effort: DrawnEffort | None = Field(None, description="How many answers are drawn.")
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
async def post_guardrail(request: Request, app: ServicesDep, guardrail: GuardrailDep) -> Response:
    """At `request`, begin to draw answers to the chat, which goes on at once; at `response`, judge.

    BLOCKED when the decision at the target error (of the settings, or of
    `additional_provider_specific_params`) is to abstain. NONE when it is to answer, when no target is set,
    and when no score is possible, unless `fail_closed` is true: `X-Eigencal-Reason` and the log say why.
    """
    call = await read_json(request, GuardrailCall)
    key = Key(call.litellm_call_id or "", owner_of(request))
    params, fault = _params(call)
    # An answer that brings its messages is drawn for now, where its request went elsewhere or was never sent.
    if key.call_id and (call.input_type == "request" or call.structured_messages):
        _begin(call, params, key, guardrail, app.serving)
    if call.input_type == "request":
        return _answer(None, {})
    score, reason, headers = None, "", {}
    try:
        score = await while_connected(request, _score(app, guardrail, call, params, key, fault))
        if score is None:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        headers = keep_and_head(app, score, key.owner)
        if score.decision is None or score.no_model is not None:
            reason = why_no_probability(score)
    except Unscorable as error:
        reason = error.message
    except EigencalError as error:
        reason = error.detail
    except Exception:  # of whatever kind: a score that fails must not fail the chat
        log.exception("an unforeseen error in a guardrail")
        reason = "Something went wrong in the service."
    blocked = None
    if reason and params.fail_closed:
        blocked = f"The answer could not be judged, and is held back. {reason}"
    elif not reason and score is not None and score.decision and score.decision.action == "abstain":
        # Told to whoever waits for the answer, not to who decides about it.
        blocked = f"This answer is held back. {score.decision.reason.removeprefix(HELD_BACK)}"
    if score is None or score.decisive is None:
        why = blocked or reason
        _note(app, request, why)
        headers["X-Eigencal-Reason"] = why.encode("ascii", "replace").decode()[:MAX_REASON_CHARS]
    return _answer(blocked, headers)


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
    if call.tools or call.images:
        guardrail.refuse(key, f"The chat has {'tools' if call.tools else 'images'}.")
        return
    try:
        number = None if params.effort is None else EFFORTS[params.effort]
        messages = conversation(call.structured_messages or ())
        guardrail.begin(key, serving.request(messages=messages, num_samples=number))
    except Unscorable as error:
        guardrail.refuse(key, error.message)
    except EigencalError as error:
        guardrail.refuse(key, error.detail)


async def _score(
    app: Services, guardrail: Guardrail, call: GuardrailCall, params: GuardrailParams, key: Key, fault: str
) -> Score:
    """Return the score of an answer. Raises Unscorable, and what scoring raises."""
    if fault:
        raise Unscorable("invalid_request", fault)
    if call.tool_calls:
        raise Unscorable("tool_call", "The answer calls tools.")
    if not call.texts or not isinstance(call.texts[0], str):
        raise Unscorable("no_text", "The answer has no text.")
    if not key.call_id:
        raise Unscorable("not_drawn", "The call has no litellm_call_id.")
    target = app.serving.target(params.target_error, params.confidence)
    with app.admission.one("gateway"), app.metrics.under_way():
        score = await guardrail.score(key, call.texts[0], target)
    app.metrics.scored(score)
    return score


def _note(app: Services, request: Request, reason: str) -> None:
    """Log why a chat goes unjudged, as errors are: of a storm a few and their number."""
    body = {"status": 503, "code": "guardrail_unscored", "retryable": True, "detail": reason}
    app.errors.note(body | {"request_id": request_id_of(request)}, f"POST {PATH}")


def _answer(blocked: str | None, headers: dict[str, str]) -> Response:
    verdict = GuardrailVerdict(action="BLOCKED" if blocked else "NONE", blocked_reason=blocked)
    content = verdict.model_dump_json(exclude_none=True)
    return Response(content, headers=headers, media_type="application/json")
