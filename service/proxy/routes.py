"""The routes under /v1 for clients of OpenAI's API: chats, responses, models."""

import json
from codecs import BOM_UTF8
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Depends, Request
from pydantic import ValidationError
from starlette.responses import Response

from service.errors import InvalidRequest, NotFound
from service.http.bodies import refuse_heavy
from service.http.openapi import BEARER
from service.http.problems import refusal, request_id_of
from service.llm.forward import read_ahead
from service.llm.sse import MAX_VALUES, parse_object, too_long
from service.proxy.answer import Answer
from service.proxy.call import Call, Mode, ScoreOptions
from service.proxy.chat import Chat
from service.proxy.responses import Compaction, ResponseAnswer

HEADER = "X-Eigencal"
FIELD = "eigencal"
# Headers of the caller that the server gets: for reading the body and for traces. The key is the service's.
REQUEST_HEADERS_PASSED = ("traceparent", "tracestate", "accept", "content-encoding")

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


def _body(asked: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {**LOOSE, "description": asked}}}
    return {"requestBody": {"required": True, "content": content}, **BEARER}


def _described(note: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of a route that answers in the LLM server's format."""
    error = "Error of the LLM server or of the service: `{error: {message, type, param, code}}`."
    json_ = {"application/json": {"schema": LOOSE}}
    return {200: {"description": note, "content": json_}, "default": {"description": error, "content": json_}}


async def chat_of(request: Request) -> Chat:
    """Return the application's drop-in."""
    chat: Chat = request.app.state.chat
    return chat


ChatDep = Annotated[Chat, Depends(chat_of)]
router = APIRouter(prefix="/v1", tags=["drop-in"])


@router.post("/chat/completions", responses=_described(ANSWER), openapi_extra=_body(ASKED))
async def chat_completions(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's answer to a chat, with its uncertainty."""
    return await chat.complete(await _read(request, Answer(), chat))


@router.post("/responses", responses=_described(ANSWER), openapi_extra=_body(ASKED))
async def responses(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's response, with its uncertainty."""
    return await chat.complete(await _read(request, ResponseAnswer(), chat))


@router.post(
    "/responses/compact",
    responses=_described("The LLM server's compaction of the turns."),
    openapi_extra=_body("The LLM server's request. `eigencal` has no effect."),
)
async def compact(request: Request, chat: ChatDep) -> Response:
    """Return the LLM server's compaction of a conversation, without a score.

    404 if the operator withholds answers by their score.
    """
    if chat.abstain:
        raise NotFound("This service withholds answers by their score, and a compaction has no score.")
    call = await _read(request, Compaction(), chat)
    call.mode, call.abstains = "off", False
    return await chat.complete(call)


@router.get("/models", responses=_described("The LLM server's list of models."), openapi_extra=BEARER)
async def models(request: Request, chat: ChatDep) -> Response:
    """List the models of the LLM server."""
    async with chat.llm.forward("/models", None, headers=_headers(request)) as reply:
        content, is_whole = await read_ahead(reply.pieces())
    if not is_whole:
        raise too_long()
    return Response(content, reply.status, reply.headers)


async def _read(request: Request, answer: Answer, chat: Chat) -> Call:
    """Return the call. Raises InvalidRequest for a bad `eigencal` field or header.

    A body without the field is forwarded byte for byte, even if it is not JSON: the server has the better
    error message. A body that only the server could read is refused, since it may contain the field.
    """
    mode = request.headers.get(HEADER, chat.mode).strip().lower()
    if mode not in get_args(Mode):
        raise InvalidRequest(f"{HEADER}: send `off`, `async` or `on`.")
    body = await request.body()
    call = Call(
        body=body,
        # Some servers take their version from the query.
        path=answer.path + (f"?{request.url.query}" if request.url.query else ""),
        headers=_headers(request),
        answer=answer,
        owner=request.state.caller,
        # If the operator withholds answers by their score, callers always wait for it.
        mode="on" if chat.abstain else cast("Mode", mode),
        abstains=chat.abstain,
    )
    has_field, has_score = f'"{FIELD}"'.encode() in body, b'"uncertainty"' in body
    if call.mode == "off" and not (has_field or has_score or answer.always):
        return call
    # Also for a call that cannot be scored: the field must not reach the server.
    if has_field or answer.always:
        refuse_heavy(body)
    given = parse_object(body, MAX_VALUES)
    if given is None:
        in_other_form = body.startswith(BOM_UTF8) or b"\0" in body or "content-encoding" in request.headers
        if in_other_form or has_field or answer.always:
            raise InvalidRequest("The body is not a JSON object in UTF-8.")
        return call
    if FIELD in given:
        call.options = _options(given[FIELD], call.mode)
    sent = {name: value for name, value in {**given, **answer.always}.items() if name != FIELD}
    # Clients send an answer back as a turn, including its score.
    if has_score and isinstance(sent.get("messages"), list):
        sent["messages"] = [_without_score(turn) for turn in sent["messages"]]
    call.streams, call.abstains = bool(given.get("stream")), chat.abstain or bool(call.options.abstain)
    if call.streams and call.abstains:
        sent = {name: value for name, value in sent.items() if name not in ("stream", "stream_options")}
    if sent != given or answer.always:  # a name that occurs twice is sent once
        call.body = json.dumps(sent).encode()
    call.payload = sent if _is_sendable(sent) else None
    return call


def _headers(request: Request) -> dict[str, str]:
    passed = {"X-Request-ID": request_id_of(request) or ""}
    for name in REQUEST_HEADERS_PASSED:
        value = request.headers.get(name, "")
        # The standards of these headers allow only printable ASCII.
        if value and value.isascii() and value.replace("\t", " ").isprintable():
            passed[name] = value
    return passed


def _options(given: object, mode: Mode) -> ScoreOptions:
    try:
        options = ScoreOptions.model_validate_json(json.dumps(given))
    except ValidationError as error:
        raise refusal(error, within=[FIELD]) from None
    if options.abstain and mode != "on":
        # An error, because callers that ask for it rely on it.
        msg = "needs an answer that waits for its score: `X-Eigencal: on`"
        raise InvalidRequest(f"{FIELD}.abstain: {msg}", [{"loc": ["body", FIELD, "abstain"], "msg": msg}])
    return options


def _without_score(turn: Any) -> Any:
    if not isinstance(turn, dict) or turn.get("role") != "assistant":
        return turn
    return {name: value for name, value in turn.items() if name != "uncertainty"}


def _is_sendable(payload: object) -> bool:
    """Return True if the payload can be sent again as JSON."""
    try:
        # Fails for infinities and for half a surrogate pair.
        json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
