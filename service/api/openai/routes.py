"""POST /v1/chat/completions, POST /v1/completions and GET /v1/models, for clients of OpenAI's API."""

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.http.auth import BEARER, owner_of, score_scope
from service.api.http.problems import request_id_of
from service.api.openai.answers import (
    abstaining,
    has_others,
    object_of,
    replaced_stream,
    text_of,
    with_uncertainty,
)
from service.api.openai.chat import Chat, ChatDep
from service.api.openai.hidden_logprobs import encoded, open_with_logprobs, without_logprobs
from service.api.openai.let_through import let_through, let_through_stream
from service.api.openai.own_field import Incoming, read_call
from service.api.openai.relay import Relay, as_it_is, whole
from service.api.openai.scored_stream import held_stream, scored_stream
from service.api.openai.sse import Events
from service.api.openai.view import ID_HEADER, score_headers
from service.api.routes.score import CLIENT_CLOSED_REQUEST, while_connected
from service.domain.chat.own_answer import first_choice
from service.domain.chat.prompt import Api
from service.domain.chat.running import RunningScore
from service.domain.chat.upstream import Call, Reply

router = APIRouter(prefix="/v1", tags=["drop-in"], dependencies=[Depends(score_scope)])
PATHS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
# Of the caller's headers those by which its call is read, and found again in traces; its key is ours.
PASSED = ("traceparent", "tracestate", "accept", "content-encoding")
GOOD = range(200, 300)  # proxies say 203 or 206 of a whole answer, too
LOOSE: dict[str, Any] = {"type": "object", "additionalProperties": True}


def _described(note: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a route whose shapes are the LLM server's."""
    error = "What the LLM server, or the service, says went wrong: `{error: {message, type, param, code}}`."
    json_ = {"application/json": {"schema": LOOSE}}
    return {200: {"description": note, "content": json_}, "default": {"description": error, "content": json_}}


def _body(note: str) -> dict[str, Any]:
    schema = {**LOOSE, "description": note}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}, **BEARER}


ANSWER = (
    "As the LLM server answers, with `uncertainty` beside it: `{id, status}`, and the fields of a score, or "
    "a `warning` {code, message} that says why there is none. Streamed, it is on the chunk that finishes the "
    "answer, at the top and in `delta`. `X-Score-ID` names the score for GET /scores/{id}."
)
ASKED = (
    "As for the LLM server, and beside it `eigencal`: {effort | num_samples, target_error, confidence, "
    "calibration, abstain}. Header `X-Eigencal`: `off`, `async` or `on`."
)


@router.post("/chat/completions", responses=_described(ANSWER), openapi_extra=_body(ASKED))
async def chat_completions(request: Request, chat: ChatDep) -> Response:
    """Answer as the LLM server does, and say how uncertain the answer is."""
    return await _complete(request, chat, "chat")


@router.post("/completions", responses=_described(ANSWER), openapi_extra=_body(ASKED))
async def completions(request: Request, chat: ChatDep) -> Response:
    """Complete a text as the LLM server does, and say how uncertain the answer is."""
    return await _complete(request, chat, "completions")


@router.get("/models", responses=_described("As the LLM server lists its models."), openapi_extra=BEARER)
async def models(request: Request, chat: ChatDep) -> Response:
    """List the models of the LLM server."""
    return await _answered(request, _passed(request, chat, Call("/models", None, _headers(request))))


async def _complete(request: Request, chat: Chat, api: Api) -> Response:
    incoming = await read_call(request, chat.mode, abstains=chat.abstain)
    if chat.abstain and incoming.streams and chat.abstain_streams == "refuse":
        raise HTTPException(400, "Answers are not streamed here: they wait until they are judged.")
    query = f"?{request.url.query}" if request.url.query else ""  # some servers take their version there
    call = Call(PATHS[api] + query, incoming.body, _headers(request))
    if incoming.mode == "off":
        return await _answered(request, _passed(request, chat, call))
    running = chat.begin(incoming, api, owner_of(request))
    return await _answered(request, _scored(chat, call, api, incoming, running))


def _headers(request: Request) -> dict[str, str]:
    passed = {name: request.headers[name] for name in PASSED if name in request.headers}
    return {**passed, "X-Request-ID": request_id_of(request) or ""}


async def _answered(request: Request, work: Any) -> Response:
    """Return the answer that is made, unless the caller hangs up before it begins."""
    return await while_connected(request, work) or Response(status_code=CLIENT_CLOSED_REQUEST)


async def _passed(request: Request, chat: Chat, call: Call) -> Response:
    """Return the server's answer as it is."""
    async with AsyncExitStack() as ending:
        reply = await chat.upstream.open(call)
        ending.push_async_callback(reply.close)
        if reply.is_stream:
            return Relay(reply.status, reply.headers, as_it_is(reply), ending.pop_all())
        return Response(await whole(reply), reply.status, dict(reply.headers))
    raise AssertionError("unreachable: the block returns or raises")


async def _scored(chat: Chat, call: Call, api: Api, incoming: Incoming, running: RunningScore) -> Response:
    """Return the server's answer with its score."""
    async with AsyncExitStack() as ending:
        ending.push_async_callback(running.discard)
        if not incoming.streams:
            running.start()
        if running.needs_logprobs:
            reply, hides = await open_with_logprobs(chat.upstream, call, api)
        else:
            reply, hides = await chat.upstream.open(call), False
        ending.push_async_callback(reply.close)
        if reply.is_stream and reply.status in GOOD:
            wait_s = chat.deadline_s if incoming.mode == "on" else None
            pieces = scored_stream(reply, running, wait_s, hides_logprobs=hides)
            if chat.abstain:
                pieces = held_stream(pieces, partial(_shown, chat, api, incoming, running))
            headers = {**reply.headers, ID_HEADER: running.id}
            return Relay(reply.status, headers, pieces, ending.pop_all())
        content = await whole(reply)
        if reply.status not in GOOD:  # no score of a call that failed
            return Response(content, reply.status, dict(reply.headers))
        return await _judged(chat, reply, content, api, incoming, running, hides=hides)
    raise AssertionError("unreachable: the block returns or raises")


def _shown(chat: Chat, api: Api, incoming: Incoming, running: RunningScore, held: bytes) -> bytes:
    """Return what goes out of a stream that was held until its end."""
    several = any(has_others(event.chunk() or {}) for event in Events().feed(held))
    if chat.withholds(incoming, running.found, several=several):
        return replaced_stream(held, running.found, chat.abstain_text, api)
    if chat.abstain and not chat.abstain_fail_open:
        return let_through_stream(held, running.found, running.judged_text, api)
    return held


async def _judged(
    chat: Chat,
    reply: Reply,
    content: bytes,
    api: Api,
    incoming: Incoming,
    running: RunningScore,
    *,
    hides: bool,
) -> Response:
    payload = object_of(content)
    choice = partial(first_choice, payload)
    running.judge(choice, str(payload.get("model")))
    if hides and payload:
        payload = without_logprobs(payload)
        content = encoded(payload)
    found = await running.wait(chat.deadline_s) if incoming.mode == "on" else running.leave()
    headers = {**reply.headers, **score_headers(found)}
    if chat.withholds(incoming, found, several=has_others(payload)):
        if not chat.abstain:  # its caller asked for it, and may know
            found = replace(found, withheld=text_of(choice()))
        content = abstaining(payload, found, chat.abstain_text, api)
        headers["content-type"] = "application/json"
        headers.pop("content-encoding", None)  # what came packed is replaced
    elif chat.abstain and not chat.abstain_fail_open:
        content = let_through(content, payload, found, running.judged_text)
    elif payload:
        content = with_uncertainty(content, found)
    return Response(content, reply.status, headers)
