"""A caller's call to the drop-in: what is sent on, and what is asked of the service."""

import json
from asyncio import Task
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from fastapi import Request
from pydantic import Field, ValidationError

from service.errors import InvalidRequest
from service.http.bodies import RequestModel, refuse_heavy
from service.http.problems import refusal, request_id_of
from service.ids import new_id
from service.llm.sse import is_heavy, parse_object
from service.proxy.answer import Answer
from service.scoring.score import NumSamples, Score, ScoreCommand
from service.scoring.scorer import Samples

Mode = Literal["off", "async", "on"]
HEADER = "X-Eigencal"
FIELD = "eigencal"
# Headers of the caller that the server gets: for reading the body and for traces. The key is the service's.
REQUEST_HEADERS_PASSED = ("traceparent", "tracestate", "accept", "content-encoding")


class ScoreOptions(RequestModel):
    """Options for the score of the answer: the field `eigencal` of a call. See docs/drop-in.md."""

    num_samples: NumSamples | None = None
    target_error: float | None = Field(None, gt=0, lt=1)
    confidence: float | None = Field(None, gt=0, lt=1)
    calibration: str = Field("active", pattern=r"^(active|none|cal_[0-9A-Z]{26})$")
    claims: bool | None = None
    mark: bool = False
    abstain: bool | None = None


NO_OPTIONS = ScoreOptions()


@dataclass(slots=True)
class Call:
    """A call to the drop-in, its answer, and its score so far.

    `body`: the bytes to forward to `path`. `payload`: their JSON object, or None if it cannot be sent again
    as JSON. `streams`: the caller wants a stream. `abstains`: the answer waits until it is judged, and may be
    withheld; the server is asked for a whole answer. `owner`: hash of the API key that may fetch the score.

    `command`: for the score; None if there can be no score, because of `failure`. `is_judged_alone`: the
    answer's own log-probability replaces the samples, if it is known. `is_pending`: the answer was sent
    before its score was ready. `judged`: the judged text. `document`: the score as last reported.
    """

    body: bytes
    path: str
    headers: Mapping[str, str]
    answer: Answer
    owner: str
    mode: Mode
    options: ScoreOptions = NO_OPTIONS
    payload: dict[str, Any] | None = None
    streams: bool = False
    abstains: bool = False

    id: str = field(default_factory=lambda: new_id("scr"))
    command: ScoreCommand | None = None
    failure: Exception | None = None
    is_judged_alone: bool = False
    drawing: Task[Samples] | None = None
    scoring: Task[None] | None = None
    is_pending: bool = False
    judged: str | None = None
    score: Score | None = None
    document: dict[str, Any] = field(default_factory=dict)


async def read_call(request: Request, answer: Answer, default: Mode, *, abstains: bool) -> Call:
    """Return the call. Raises InvalidRequest for a bad `eigencal` field or header.

    `abstains`: the operator withholds answers by their score, so callers always wait for it. A body without
    the field is forwarded byte for byte, even if it is not JSON: the server has the better error message. A
    body that only the server could read is refused, since it may contain the field.
    """
    mode = request.headers.get(HEADER, default).strip().lower()
    if mode not in get_args(Mode):
        raise InvalidRequest(f"{HEADER}: send `off`, `async` or `on`.")
    body = await request.body()
    call = Call(
        body=body,
        # Some servers take their version from the query.
        path=answer.path + (f"?{request.url.query}" if request.url.query else ""),
        headers=headers_of(request),
        answer=answer,
        owner=request.state.caller,
        mode="on" if abstains else cast("Mode", mode),
        abstains=abstains,
    )
    has_field, has_score = f'"{FIELD}"'.encode() in body, b'"uncertainty"' in body
    if call.mode == "off" and not (has_field or has_score or answer.always):
        return call
    # Also for a call that cannot be scored: the field must not reach the server.
    if has_field or answer.always:
        refuse_heavy(body)
    given = None if is_heavy(body) else parse_object(body)
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
    call.streams, call.abstains = bool(given.get("stream")), abstains or bool(call.options.abstain)
    if call.streams and call.abstains:
        sent = {name: value for name, value in sent.items() if name not in ("stream", "stream_options")}
    if sent != given or answer.always:  # a name that occurs twice is sent once
        call.body = json.dumps(sent).encode()
    call.payload = sent if _is_sendable(sent) else None
    return call


def headers_of(request: Request) -> dict[str, str]:
    """Return the headers that the server gets."""
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
