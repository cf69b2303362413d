"""What of a call is meant for us: the header `X-Eigencal`, and the field `eigencal`, which is cut out."""

import json
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from fastapi import Request
from pydantic import Field, ValidationError, model_validator

from service.api.bodies import RequestModel, refusal
from service.errors import InvalidRequest, UnsupportedMediaType
from service.scoring.serving import Effort

Mode = Literal["off", "async", "on"]
HEADER = "X-Eigencal"
FIELD = "eigencal"
_QUOTED = f'"{FIELD}"'.encode()
_SPACE = " \t\n\r"


class OwnField(RequestModel):
    """How to score the answer: the field `eigencal` of a call."""

    effort: Effort | None = Field(None, description="How many answers are drawn, as for POST /score.")
    num_samples: int | None = Field(None, ge=2, le=256, description="Instead of `effort`: how many.")
    target_error: float | None = Field(
        None, gt=0, lt=1, description="Share of wrong ones allowed among answers let through: for a decision."
    )
    confidence: float | None = Field(None, gt=0, lt=1, description="Confidence with which it is kept.")
    calibration: str = Field(
        "active",
        pattern=r"^(active|none|cal_[0-9A-Z]{26})$",
        description="`active`, `none` (raw values), or the id of a calibration.",
    )
    abstain: bool | None = Field(
        None,
        description="Whether a decision to abstain replaces the answer; not of a stream. Where the service "
        "abstains by its settings it does so in any case.",
    )

    @model_validator(mode="after")
    def one_number(self) -> "OwnField":
        """Refuse two numbers of answers."""
        if self.effort is not None and self.num_samples is not None:
            raise ValueError("send `num_samples` or `effort`, not both")
        return self


@dataclass(frozen=True, slots=True)
class Incoming:
    """A call as it came: what goes on to the server, what of it is ours, and what is to be done.

    `said`: the JSON object that `body` is; None where it is none, or nobody needs to know (mode `off`).
    """

    body: bytes
    own: OwnField
    mode: Mode
    said: dict[str, Any] | None = None

    @property
    def streams(self) -> bool:
        """Tell whether a stream is asked for."""
        return bool(self.said and self.said.get("stream"))


async def read_call(request: Request, default: Mode, *, abstains: bool) -> Incoming:
    """Return the call. Raises InvalidRequest for what is ours in it, UnsupportedMediaType for no JSON.

    `abstains`: the operator withholds answers by their score, so that callers always wait for it.
    """
    # As for every other route: a page of any origin may make a browser post any other type.
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("Send JSON with Content-Type: application/json.")
    asked = _mode(request.headers.get(HEADER, default))
    mode: Mode = "on" if abstains else asked
    body, own = take_out(await request.body())
    return Incoming(body, _own_field(own), mode, None if mode == "off" else object_in(body))


def take_out(body: bytes) -> tuple[bytes, str | None]:
    """Return the body without our field, and that field's JSON; the very same bytes where it is not there.

    What is no JSON goes on as it is: the server says so better.
    """
    if _QUOTED not in body:
        return body, None
    try:
        return _cut(body.decode())
    except (ValueError, RecursionError):
        return body, None


def object_in(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in the bytes; None where there is none that could be sent on as JSON."""
    try:
        found = json.loads(body, parse_float=_finite, parse_constant=_no_number)
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair cannot be sent
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _mode(sent: str) -> Mode:
    mode = sent.strip().lower()
    if mode not in get_args(Mode):
        raise InvalidRequest(f"{HEADER}: send `off`, `async` or `on`.")
    return cast("Mode", mode)


def _own_field(sent: str | None) -> OwnField:
    try:
        return OwnField() if sent is None else OwnField.model_validate_json(sent)
    except ValidationError as error:
        raise refusal(error, within=[FIELD]) from None


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("beyond a float")
    return number


def _no_number(name: str) -> float:
    raise ValueError(name)


def _cut(text: str) -> tuple[bytes, str | None]:
    """Cut our member out of the outermost object, and leave all else as it was written: numbers, too."""
    decoder = json.JSONDecoder()
    at = _past_space(text, 0)
    if text[at : at + 1] != "{":
        return text.encode(), None
    kept, own, at = [text[: at + 1]], None, _past_space(text, at + 1)
    while text[at : at + 1] == '"':
        name, after = decoder.raw_decode(text, at)
        value = _past_space(text, _past(text, after, ":"))
        _, end = decoder.raw_decode(text, value)
        if name == FIELD:
            own = text[value:end]
        else:
            kept += ["," if len(kept) > 1 else "", text[at:end]]
        at = _past_space(text, end)
        if text[at : at + 1] != ",":
            break
        at = _past_space(text, at + 1)
        if text[at : at + 1] != '"':
            raise ValueError("no JSON object")
    if text[at : at + 1] != "}" or _past_space(text, at + 1) < len(text):
        raise ValueError("no JSON object")
    return "".join([*kept, text[at:]]).encode(), own


def _past(text: str, at: int, sign: str) -> int:
    at = _past_space(text, at)
    if text[at : at + 1] != sign:
        raise ValueError("no JSON object")
    return at + 1


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
