"""The routes under /v1 for clients of OpenAI's API: chats, responses, models."""

import json
import logging
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import APIRouter, Depends, Request
from pydantic import Field, ValidationError
from starlette.responses import Response

from service.errors import (
    EigencalError,
    InvalidRequest,
    LLMBadResponse,
    Overloaded,
    Unscorable,
)
from service.http.bodies import RequestModel, refuse_heavy
from service.http.disconnect import StreamingBody
from service.http.openapi import BEARER
from service.http.problems import refusal, request_id_of
from service.http.problems import report as report_error
from service.llm.client import LLM
from service.llm.forward import Reply, read_ahead
from service.llm.prompt import Priority
from service.llm.sse import is_heavy, parse_object, prepend, too_long
from service.llm.wire import MAX_MESSAGE_CHARS, NONSENSE
from service.proxy.chat_score import (
    BUSY,
    ID_HEADER,
    ChatScorer,
    Plan,
    RunningScore,
    Uncertainty,
    judged_choice,
    plan_for,
)
from service.proxy.completions import Completions
from service.proxy.formats import Format
from service.proxy.responses import Responses
from service.proxy.stream import TOO_LONG, as_it_is, encoded, scored_stream
from service.scoring.score import AUTO, NumSamples, ScoreCommand, Target
from service.scoring.service import ScoringService

log = logging.getLogger(__name__)

CHAT, RESPONSES = Completions(), Responses()
Mode = Literal["off", "async", "on"]
HEADER = "X-Eigencal"
FIELD = "eigencal"
UNREADABLE = Unscorable("unreadable_request", "The call is not a JSON object that can be sent again.")
# Headers of the caller that the server gets: for reading the body and for traces. The key is the service's.
REQUEST_HEADERS_PASSED = ("traceparent", "tracestate", "accept", "content-encoding")
# Proxies may answer 203 or 206 with a complete body. 204 and 205 have no body.
GOOD = frozenset(range(200, 300)) - {204, 205}


class ScoreOptions(RequestModel):
    """Options for the score of the answer: the field `eigencal` of a call. See docs/drop-in.md."""

    num_samples: NumSamples | None = None
    target_error: float | None = Field(None, gt=0, lt=1)
    confidence: float | None = Field(None, gt=0, lt=1)
    calibration: str = Field("active", pattern=r"^(active|none|cal_[0-9A-Z]{26})$")
    claims: bool | None = None
    mark: bool = False
    abstain: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call to the drop-in.

    `body`: the bytes to forward. `payload`: their JSON object, or None if it cannot be sent again as JSON.
    `streams`: whether the caller wants a stream. `abstains`: the answer waits until it is judged, and may be
    withheld; the server is asked for a whole answer.
    """

    body: bytes
    options: ScoreOptions
    mode: Mode
    payload: dict[str, Any] | None = None
    streams: bool = False
    abstains: bool = False


async def read_call(request: Request, api: Format, default: Mode, *, abstains: bool) -> ChatCall:
    """Return the call. Raises InvalidRequest for a bad `eigencal` field or header.

    `abstains`: the operator withholds answers by their score, so callers always wait for it. A body without
    the field is forwarded byte for byte, even if it is not JSON: the server has the better error message. A
    body that only the server could read is refused, since it may contain the field.
    """
    mode = request.headers.get(HEADER, default).strip().lower()
    if mode not in get_args(Mode):
        raise InvalidRequest(f"{HEADER}: send `off`, `async` or `on`.")
    if abstains:
        mode = "on"
    body = await request.body()
    has_field, has_score = f'"{FIELD}"'.encode() in body, b'"uncertainty"' in body
    if mode == "off" and not (has_field or has_score or api.always):
        return ChatCall(body, ScoreOptions(), "off")
    # Also for a call that cannot be scored: the field must not reach the server.
    if has_field or api.always:
        refuse_heavy(body)
    given, options = None if is_heavy(body) else parse_object(body), ScoreOptions()
    if given is None:
        in_other_form = body.startswith(BOM_UTF8) or b"\0" in body or "content-encoding" in request.headers
        if in_other_form or has_field or api.always:
            raise InvalidRequest("The body is not a JSON object in UTF-8.")
        return ChatCall(body, options, cast("Mode", mode), abstains=abstains)
    if FIELD in given:
        try:
            options = ScoreOptions.model_validate_json(json.dumps(given[FIELD]))
        except ValidationError as error:
            raise refusal(error, within=[FIELD]) from None
    sent = {**given, **api.always}
    sent.pop(FIELD, None)
    # Clients send an answer back as a turn, including its score.
    if has_score and "messages" in sent:
        sent["messages"] = _without_scores(sent["messages"])
    streams, abstains = bool(given.get("stream")), abstains or bool(options.abstain)
    if streams and abstains:
        sent = {name: value for name, value in sent.items() if name not in ("stream", "stream_options")}
    if sent != given or api.always:  # a name that occurs twice is sent once
        body = json.dumps(sent).encode()
    sendable = sent if is_sendable(sent) else None
    return ChatCall(body, options, cast("Mode", mode), sendable, streams, abstains)


def _without_scores(turns: Any) -> Any:
    """Remove `uncertainty` from the assistant's turns."""
    if not isinstance(turns, list):
        return turns
    return [
        {name: value for name, value in turn.items() if name != "uncertainty"}
        if isinstance(turn, dict) and turn.get("role") == "assistant"
        else turn
        for turn in turns
    ]


def is_sendable(payload: object) -> bool:
    """Return True if the payload can be sent again as JSON."""
    try:
        # Fails for infinities and for half a surrogate pair.
        json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Chat:
    """The drop-in: the LLM server, the scorer of its answers, and their settings.

    `service`: counts scores and stores them, as for the other routes. `deadline_s`: how
    long an answer waits for its score, in seconds. `num_samples`: samples drawn for a score by default.
    `abstain`: withhold every answer whose decision is to abstain, regardless of the caller's options, and
    send `abstain_text` instead.
    """

    llm: LLM
    service: ScoringService
    scorer: ChatScorer
    mode: Mode = "on"
    deadline_s: float = 10.0
    num_samples: NumSamples = AUTO
    abstain: bool = False
    abstain_text: str = ""

    async def begin(self, call: ChatCall, api: Format, owner: str) -> RunningScore:
        """Return the score of the answer to come. Raises InvalidRequest if `abstain` is not possible."""
        if call.options.abstain and call.mode != "on":
            # An error, because callers that ask for it rely on it.
            msg = "needs an answer that waits for its score: `X-Eigencal: on`"
            raise InvalidRequest(f"{FIELD}.abstain: {msg}", [{"loc": ["body", FIELD, "abstain"], "msg": msg}])
        is_full = call.mode == "async" and not self.scorer.has_room
        plan = BUSY if is_full else await self._plan(call, api)
        return RunningScore(self.scorer, plan, owner)

    def withholds(self, call: ChatCall, uncertainty: Uncertainty) -> bool:
        """Return True if the answer is withheld: by its decision, or because there is none.

        If the score failed, only the operator's policy withholds the answer.
        """
        if not call.abstains or (uncertainty.warning and uncertainty.warning.code == "no_text"):
            return False
        score = uncertainty.score
        if score is None:
            return self.abstain
        return score.decision is None or score.decision.action == "abstain"

    async def _plan(self, call: ChatCall, api: Format) -> Plan | Unscorable:
        if call.payload is None:
            return UNREADABLE
        options, target = self._allowed(call.options)
        number = self.num_samples if options.num_samples is None else options.num_samples
        as_recommended = number == AUTO
        chosen = None
        if as_recommended:
            with suppress(EigencalError):  # the score will report it
                chosen = await self.service.scorer.choice.named(options.calibration)
        try:
            return plan_for(
                api.call(call.payload),
                self.service.serving,
                ScoreCommand(
                    calibration=options.calibration,
                    as_recommended=as_recommended,
                    target=target,
                    claims=options.mark or options.claims,
                ),
                self.service.serving.number_of(number),
                partial(self.service.scorer.choice.recommended, chosen=chosen),
                # If no answer is sent without its score, both are equally urgent.
                Priority.LIVE if self.abstain else Priority.BESIDE,
                marks=options.mark,
            )
        except Unscorable as reason:
            return reason

    def _allowed(self, options: ScoreOptions) -> tuple[ScoreOptions, Target]:
        """Return the caller's options that are allowed, and the target of the decision."""
        if self.abstain:  # callers can only make the target stricter
            target = self.service.serving.target()
            error, confidence = options.target_error or target.error, options.confidence or target.confidence
            # Claims quote the answer and the samples, which may be withheld.
            return ScoreOptions(claims=False), Target(
                min(error, target.error), max(confidence, target.confidence)
            )
        return options, self.service.serving.target(options.target_error, options.confidence)


async def chat_of(request: Request) -> Chat:
    """Return the application's drop-in."""
    chat: Chat = request.app.state.chat
    return chat


ChatDep = Annotated[Chat, Depends(chat_of)]


def reporter(service: ScoringService) -> Callable[[Uncertainty], None]:
    """Return a function that counts, logs and stores each score of an answer."""
    metrics, pending = service.metrics, set[str]()

    def report(uncertainty: Uncertainty) -> None:
        if uncertainty.status == "pending":
            pending.add(uncertainty.id)
        elif uncertainty.id in pending:
            pending.remove(uncertainty.id)
            metrics.was_pending(uncertainty.score)
        if uncertainty.score is not None:
            metrics.scored(uncertainty.score, uncertainty.response_id)
        if uncertainty.warning is not None and uncertainty.warning.code == Overloaded.code:
            metrics.was_shed()
        if (failure := uncertainty.failure) is not None:
            code = uncertainty.warning.code if uncertainty.warning else "internal"
            metrics.failed(code, uncertainty.response_id)
            report_error(failure, None, f"the score {uncertainty.id} of an answer")
        service.kept.save(uncertainty.id, uncertainty.owner, json.dumps(uncertainty.document()))

    return report


LOOSE: dict[str, Any] = {"type": "object", "additionalProperties": True}
ANSWER = (
    "The LLM server's response, with the field `uncertainty`: `{id, status}` and the fields of a score, or "
    "a `warning` {code, message} that gives the reason for a missing score. In streams, the field is in the "
    "chunk that finishes the answer, at the top level and in `delta`, or in the `response` of "
    "`response.completed` or `response.incomplete`. The header `X-Score-ID` is the "
    "score's id for GET /scores/{id}."
)
ASKED = (
    "The LLM server's request, with the optional field `eigencal`: {num_samples, target_error, "
    "confidence, calibration, claims, mark, abstain}. Header `X-Eigencal`: `off`, `async` or `on`."
)
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {**LOOSE, "description": ASKED}}},
    },
    **BEARER,
}


def _described(note: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of a route that answers in the LLM server's format."""
    error = "Error of the LLM server or of the service: `{error: {message, type, param, code}}`."
    json_ = {"application/json": {"schema": LOOSE}}
    return {200: {"description": note, "content": json_}, "default": {"description": error, "content": json_}}


router = APIRouter(prefix="/v1", tags=["drop-in"])


@router.post("/chat/completions", responses=_described(ANSWER), openapi_extra=BODY)
async def chat_completions(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's answer to a chat, with its uncertainty."""
    return await _complete(request, chat, CHAT)


@router.post("/responses", responses=_described(ANSWER), openapi_extra=BODY)
async def responses(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's response, with its uncertainty."""
    return await _complete(request, chat, RESPONSES)


@router.get("/models", responses=_described("The LLM server's list of models."), openapi_extra=BEARER)
async def models(request: Request, chat: ChatDep) -> Response:
    """List the models of the LLM server."""
    return await _forward(chat, "/models", _headers(request), None)


def _query(request: Request) -> str:
    """Return the query with its question mark, or "". Some servers take their version there."""
    return f"?{request.url.query}" if request.url.query else ""


async def _complete(request: Request, chat: Chat, api: Format) -> Response:
    call = await read_call(request, api, chat.mode, abstains=chat.abstain)
    path, headers = api.path + _query(request), _headers(request)
    if call.mode == "off" and not call.options.abstain:  # `begin` refuses that combination
        return await _forward(chat, path, headers, call.body)
    running = await chat.begin(call, api, request.state.caller)
    return await _score(chat, path, headers, api, call, running)


def _headers(request: Request) -> dict[str, str]:
    passed = {"X-Request-ID": request_id_of(request) or ""}
    for name in REQUEST_HEADERS_PASSED:
        value = request.headers.get(name, "")
        # The standards of these headers allow only printable ASCII.
        if value and value.isascii() and value.replace("\t", " ").isprintable():
            passed[name] = value
    return passed


async def _forward(chat: Chat, path: str, headers: dict[str, str], content: bytes | None) -> Response:
    """Return the server's answer unchanged. content: None for a GET."""
    async with AsyncExitStack() as ending:
        if content is not None:
            await ending.enter_async_context(chat.llm.permit())
        reply = await ending.enter_async_context(chat.llm.forward(path, content, headers=headers))
        _warn_without_route(path, reply)
        if reply.is_stream:
            return StreamingBody(reply.status, reply.headers, as_it_is(reply), ending.pop_all())
        pieces = reply.pieces()
        body, is_whole = await read_ahead(pieces)
        if not is_whole:
            return StreamingBody(reply.status, reply.headers, prepend(body, pieces), ending.pop_all())
        return Response(body, reply.status, dict(reply.headers))
    raise AssertionError("unreachable: the block returns or raises")


def _warn_without_route(path: str, reply: Reply) -> None:
    if reply.status == 404 and path.startswith(RESPONSES.path):
        log.warning("the LLM server answered POST /v1/responses with 404: it may not have this route")


async def _score(
    chat: Chat, path: str, headers: dict[str, str], api: Format, call: ChatCall, running: RunningScore
) -> Response:
    """Return the server's answer with its score.

    If the server refuses log-probabilities that the score needs, the call is sent again as the caller wrote
    it, so that callers never lose an answer.
    """
    contents, kind = [call.body], ""
    if running.needs_logprobs and call.payload is not None:
        contents.insert(0, encoded(api.asking_logprobs(call.payload)))
        # Some servers refuse log-probabilities only for streams with tools.
        has_tools, streams = bool(call.payload.get("tools")), bool(call.payload.get("stream"))
        kind = f"{api.path} {call.payload.get('model')}, stream {streams}, tools {has_tools}"
    async with AsyncExitStack() as ending:
        permit = await ending.enter_async_context(chat.llm.permit())
        ending.push_async_callback(running.discard)
        if not call.streams or call.abstains:
            running.start()
        forwarded = chat.llm.forward(path, *contents, headers=headers, kind=kind)
        reply = await ending.enter_async_context(forwarded)
        _warn_without_route(path, reply)
        hides = len(contents) > 1 and reply.attempt == 0
        with_id = {**reply.headers, ID_HEADER: running.uncertainty.id}
        if reply.is_stream and reply.status in GOOD:
            if call.abstains:
                raise LLMBadResponse("The LLM server sent a stream in place of a whole answer.")
            wait_s = chat.deadline_s if call.mode == "on" else None
            pieces = scored_stream(reply, permit, api, running, wait_s, hides_logprobs=hides)
            return StreamingBody(reply.status, with_id, pieces, ending.pop_all())
        rest = reply.pieces()
        content, is_whole = await read_ahead(rest)
        if not is_whole:
            if chat.abstain:
                raise too_long()
            await running.discard(TOO_LONG)
            return StreamingBody(reply.status, with_id, prepend(content, rest), ending.pop_all())
        permit.close()  # the samples may need it
        if reply.status not in GOOD:  # a failed call has no score
            if chat.abstain:
                content = _error_alone(content, reply.status)
            return Response(content, reply.status, dict(reply.headers))
        return await _judged(chat, reply, content, api, call, running, hides_logprobs=hides)
    raise AssertionError("unreachable: the block returns or raises")


def _error_alone(content: bytes, status: int) -> bytes:
    """Return an error of the server in OpenAI's form without other members: they may quote the answer."""
    error = (parse_object(content) or {}).get("error")
    told = {
        "message": f"The LLM server answered with status {status}.",
        "type": None,
        "param": None,
        "code": None,
    }
    given = {name: error.get(name) for name in told} if isinstance(error, dict) else {}
    short = {
        name: str(value)[:MAX_MESSAGE_CHARS] for name, value in given.items() if isinstance(value, str | int)
    }
    return encoded({"error": told | short})


async def _judged(
    chat: Chat,
    reply: Reply,
    content: bytes,
    api: Format,
    call: ChatCall,
    running: RunningScore,
    *,
    hides_logprobs: bool,
) -> Response:
    """Return a complete answer with its score, or the answer that replaces it."""
    payload = parse_object(content) or {}
    choice = judged_choice(api.read(payload))
    running.judge(choice, str(payload.get("model") or ""), str(payload.get("id") or ""))
    uncertainty = await running.wait(chat.deadline_s if call.mode == "on" else None)
    headers = {**reply.headers, ID_HEADER: uncertainty.id}
    if uncertainty.score is not None:
        headers |= uncertainty.score.headers()
    if hides_logprobs and payload:
        payload = api.without_logprobs(payload)
    if chat.withholds(call, uncertainty):
        if not chat.abstain:  # the caller asked to abstain, so it may see the text
            uncertainty = replace(uncertainty, withheld=running.choice_text)
        payload = api.abstaining(payload, chat.abstain_text)
        headers["content-type"] = "application/json"
        headers.pop("content-encoding", None)  # the new body is not compressed
    elif chat.abstain:
        payload = api.let_through(payload, running.judged_text)
    try:
        if payload and call.streams:
            content = api.stream(payload, uncertainty.document())
            headers["content-type"] = "text/event-stream"
        elif payload:
            content = encoded({**payload, "uncertainty": uncertainty.document()})
    except NONSENSE:
        raise LLMBadResponse("The LLM server's answer is not a completion.") from None
    return Response(content, reply.status, headers)
