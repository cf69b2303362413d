"""An answer on its way from the LLM server to its caller, piece by piece."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.auth import BEARER, owner_of, score_scope
from service.api.deps import Metrics
from service.api.errors import ErrorLog, error_body, internal_body, openai_error, request_id_of
from service.errors import EigencalError, EmbedderUnavailable, InvalidRequest, LLMBadResponse
from service.proxy.answers import (
    abstaining,
    has_no_answer,
    has_others,
    is_abstained,
    is_judged,
    let_through,
    let_through_stream,
    object_of,
    replaced_stream,
    text_of,
    with_uncertainty,
)
from service.proxy.chat_score import (
    BUSY,
    ChatScorer,
    Options,
    Plan,
    RunningScore,
    Told,
    Uncertainty,
    first_choice,
    plan_for,
)
from service.proxy.prompt import Api, Unscorable
from service.proxy.request import FIELD, Incoming, Mode, OwnField, read_call
from service.proxy.stream import (
    ID_HEADER,
    Events,
    Tap,
    comment,
    document_of,
    encoded,
    event_of,
    open_with_logprobs,
    score_headers,
    without_logprobs,
)
from service.proxy.upstream import Call, Reply, Upstream
from service.scoring.routes import CLIENT_CLOSED_REQUEST, while_connected
from service.scoring.score import ScoreCommand, Target
from service.scoring.serving import Effort, Serving

# Of an answer that is not streamed: far more than any holds, and less than this process has.
MOST_BYTES = 64 << 20
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")


class Relay(Response):
    """Sends pieces as they come, until the last of them or until the caller hangs up; then all is let go."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncGenerator[bytes, None],
        ending: AsyncExitStack,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._ending:
            await while_connected(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._pieces):
            async for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def as_it_is(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield a stream as it comes; where the server breaks it off, an event says so."""
    last = b""
    try:
        async for piece in reply.pieces():
            last = (last + piece)[-4:]
            yield piece
    except EigencalError as error:
        # An event that was cut ends first, or the error would be part of it.
        yield (b"" if last.endswith(_BLANK_LINES) else b"\n\n") + broken_off(error)


def broken_off(error: EigencalError) -> bytes:
    """Return the event by which clients of OpenAI's API learn that a stream has failed."""
    return event_of(openai_error(error_body(error, None)))


async def whole(reply: Reply) -> bytes:
    """Return the body of an answer that is not streamed; raises LLMUnavailable, LLMBadResponse."""
    pieces, size = [], 0
    async for piece in reply.pieces():
        size += len(piece)
        if size > MOST_BYTES:
            raise LLMBadResponse("The LLM server's answer is longer than the service takes.")
        pieces.append(piece)
    return b"".join(pieces)


# What the drop-in's routes work with, and what they make of a call.

Keep = Callable[[str, str, str], None]
UNREADABLE = Unscorable("unreadable_request", "The call is no JSON object that could be sent once more.")
MANY_CHOICES = Unscorable("many_choices", "Of several choices only the first is judged: none is let through.")


@dataclass(frozen=True, slots=True)
class Chat:
    """The LLM server as its callers see it, the scores beside its answers, and the settings of both.

    `deadline_s`: how long a complete answer waits for its score. `effort`: None for the normal number of
    answers. `abstain`: whether answers are withheld by their decision whatever callers ask, `abstain_text` in
    their stead; `abstain_fail_open`: but those that cannot be judged go out; `abstain_streams`: what becomes
    of streams.
    """

    upstream: Upstream
    scorer: ChatScorer
    serving: Serving
    mode: Mode = "on"
    deadline_s: float = 10.0
    effort: Effort | None = None
    abstain: bool = False
    abstain_text: str = ""
    abstain_fail_open: bool = False
    abstain_streams: Literal["hold", "refuse"] = "hold"

    def begin(self, incoming: Incoming, api: Api, owner: str) -> RunningScore:
        """Return the score of the answer to come. Raises InvalidRequest for what may not be asked."""
        options = self._options_by_policy(incoming) if self.abstain else self._options(incoming)
        self._check_abstain(incoming)
        if incoming.mode == "async" and not self.scorer.has_room:
            return self.scorer.begin(BUSY, owner)
        return self.scorer.begin(self._plan(incoming, api, options), owner)

    def withholds(self, incoming: Incoming, found: Uncertainty, *, several: bool) -> bool:
        """Tell whether the answer is not to go out: by its decision, or for want of one by the settings."""
        if not self.abstain:
            return bool(incoming.own.abstain) and is_abstained(found)
        if is_judged(found) and is_abstained(found):
            return True
        judged = (is_judged(found) or has_no_answer(found)) and not several
        return not (judged or self.abstain_fail_open)

    def _plan(self, incoming: Incoming, api: Api, options: Options) -> Plan | Unscorable:
        if incoming.said is None:
            return UNREADABLE
        if self.abstain and not self.abstain_fail_open and incoming.said.get("n") not in (None, 1):
            return MANY_CHOICES
        try:
            return plan_for(incoming.said, api, self.serving, options, self._takes_evidence)
        except Unscorable as reason:
            return reason

    def _takes_evidence(self, command: ScoreCommand) -> bool:
        try:
            return self.scorer.scorer.takes_evidence(command)
        except EmbedderUnavailable:  # what comes of it is told in its place
            return False

    def _options(self, incoming: Incoming) -> Options:
        own = incoming.own
        target = self.serving.target(own.target_error, own.confidence)
        # Who asks for abstaining wants a decision, also where no calibration can make one.
        target = replace(target, by_default=target.by_default and not own.abstain)
        return Options(self._number(own), target, own.calibration)

    def _options_by_policy(self, incoming: Incoming) -> Options:
        """Return the options of the settings, and what of the caller's is stricter."""
        own, target = incoming.own, self.serving.target()
        error, confidence = own.target_error or target.error, own.confidence or target.confidence
        strict = Target(min(error, target.error), max(confidence, target.confidence))
        return Options(self._number(OwnField()), strict)

    def _number(self, own: OwnField) -> int:
        effort = own.effort or self.effort
        if own.num_samples is not None or effort is None:
            return own.num_samples or self.serving.num_samples
        return self.serving.efforts.num_samples(effort)

    def _check_abstain(self, incoming: Incoming) -> None:
        """Refuse to abstain where it could not be done: who asks for it relies on it."""
        if self.abstain or not incoming.own.abstain:
            return
        if incoming.streams or incoming.mode != "on":
            raise _refused("goes with an answer that waits for its score: `X-Eigencal: on`, and no stream")


def _refused(said: str) -> InvalidRequest:
    return InvalidRequest(f"{FIELD}.abstain: {said}", [{"loc": ["body", FIELD, "abstain"], "msg": said}])


async def chat_of(request: Request) -> Chat:
    """Return the drop-in of the application that got the request."""
    found: Chat = request.app.state.chat
    return found


ChatDep = Annotated[Chat, Depends(chat_of)]


def telling(metrics: Metrics, errors: ErrorLog, keep: Keep) -> Told:
    """Return what counts, logs and keeps the scores beside answers."""
    pending: set[str] = set()

    def tell(found: Uncertainty) -> None:
        if found.status == "pending":
            pending.add(found.id)
        elif found.id in pending:
            pending.remove(found.id)
            metrics.was_pending(found.score)
        if found.score is not None:
            metrics.scored(found.score)
        if found.failure is not None:
            metrics.failed(found.warning.code if found.warning else "internal")
            _log(errors, found)
        keep(found.id, found.owner, json.dumps(document_of(found)))

    return tell


def _log(errors: ErrorLog, found: Uncertainty) -> None:
    where = f"the score {found.id} beside an answer"
    if isinstance(found.failure, EigencalError):
        errors.note(error_body(found.failure, None), where)
    else:
        errors.note(internal_body(None), where, found.failure)


# A stream that carries its score on the chunk that finishes it; all else goes by as it comes.

HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
MOST_HELD = 16 << 20  # bytes of a stream that waits for its decision
NO_END = Unscorable("no_answer", "The stream ended before the answer did.")


async def scored_stream(
    reply: Reply, running: RunningScore, wait_s: float | None, *, hides_logprobs: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the stream; its last chunk waits `wait_s` for the score. None: it says where to find it."""
    tap, pieces = Tap(hides_logprobs=hides_logprobs), reply.pieces()
    try:
        async for piece in pieces:
            if passed := tap.feed(piece):
                yield passed
            # Not before: the caller's own first token would wait for them, and its prompt is cached now.
            if tap.own.has_said:
                running.start()
            if tap.holds or tap.has_failed:
                break
        if tap.holds:
            # Closed with this one: left to itself, it would go on reading what nobody takes.
            async with aclosing(_finished(tap, pieces, running, wait_s)) as rest:
                async for piece in rest:
                    yield piece
        elif tap.is_over and not tap.has_failed:
            _left_without_end(tap, running)
        else:
            tap.pass_all()
            await running.discard(NO_END)
        async for piece in pieces:
            yield tap.feed(piece)
        yield tap.rest()
    except EigencalError as error:
        await running.discard(error)
        yield broken_off(error)


async def held_stream(
    pieces: AsyncGenerator[bytes, None], shown: Callable[[bytes], bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield nothing of a stream before it has ended, but heartbeats; then what `shown` makes of it."""
    held, clock = bytearray(), asyncio.get_running_loop().time
    beat = clock() + HEARTBEAT_S
    more: asyncio.Future[bytes | None] = asyncio.ensure_future(_next(pieces))
    try:
        while True:
            await asyncio.wait({more}, timeout=max(beat - clock(), 0))
            if clock() >= beat:
                yield comment("the answer waits until it is judged")
                beat = clock() + HEARTBEAT_S
            if not more.done():
                continue
            if (piece := more.result()) is None:
                break
            held += piece
            if len(held) > MOST_HELD:
                yield broken_off(LLMBadResponse("The LLM server's answer is longer than the service takes."))
                return
            more = asyncio.ensure_future(_next(pieces))
        yield shown(bytes(held))
    finally:
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)
        await pieces.aclose()


def _left_without_end(tap: Tap, running: RunningScore) -> None:
    """Score an answer that no chunk finished: none can carry the score, so it is left to be fetched."""
    running.judge(tap.own.choice, tap.own.model)
    running.leave()


async def _finished(
    tap: Tap, pieces: AsyncIterator[bytes], running: RunningScore, wait_s: float | None
) -> AsyncGenerator[bytes, None]:
    """Yield what the server still sends while the score is made, and then the chunk that carries it."""
    running.judge(tap.own.choice, tap.own.model)
    if wait_s is None:
        yield tap.release(running.leave())
        return
    score = asyncio.ensure_future(running.wait(wait_s))
    more: asyncio.Future[bytes | None] | None = asyncio.ensure_future(_next(pieces))
    broken: EigencalError | None = None
    try:
        while not score.done():
            waited: set[asyncio.Future[Any]] = {score} if more is None else {score, more}
            done, _ = await asyncio.wait(waited, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield comment("the score is being made")
            if more is None or not more.done():
                continue
            try:
                piece = more.result()
            except EigencalError as error:  # the answer is whole: this can be told behind its score
                piece, broken = None, error
            more = None if piece is None else asyncio.ensure_future(_next(pieces))
            if piece and (passed := tap.feed(piece)):
                yield passed
        yield tap.release(score.result())
        if broken is not None:
            raise broken
        if more is not None and (piece := await more):
            yield tap.feed(piece)
    finally:
        left = [task for task in (score, more) if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    """Return the next piece; None for no more."""
    return await anext(pieces, None)


# POST /v1/chat/completions, POST /v1/completions and GET /v1/models, for clients of OpenAI's API.

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
