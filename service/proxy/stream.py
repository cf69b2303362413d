"""Server-sent events, taken apart without changing a byte of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.proxy.chat_score import OwnAnswer, Uncertainty
from service.proxy.prompt import Api
from service.proxy.upstream import Call, Reply, Upstream
from service.scoring.schemas import headers_of, view


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its very bytes, the blank line that ends it included, and its data."""

    raw: bytes
    data: str

    def chunk(self) -> dict[str, Any] | None:
        """Return the JSON object that the data are; None where they are none."""
        if not self.data.startswith("{"):
            return None
        try:
            found: dict[str, Any] = json.loads(self.data)
        except (ValueError, RecursionError):
            return None
        return found

    @property
    def is_last(self) -> bool:
        """Tell whether it says that the stream is over."""
        return self.data == "[DONE]"


class Events:
    """Cuts a stream of bytes into events, wherever its pieces begin and end. Lines end with LF or CRLF."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []  # of the event that comes, their ends included
        self._line: list[bytes] = []  # pieces of the line that comes

    def feed(self, piece: bytes) -> list[Event]:
        """Take a piece; return the events that it completes. Linear in the bytes, however they are cut."""
        *ended, rest = piece.split(b"\n")
        events: list[Event] = []
        for end in ended:
            self._line.append(end + b"\n")
            events += self._end_line()
        self._line.append(rest)
        return events

    def rest(self) -> bytes:
        """Return what has come of an event that never ended."""
        return b"".join([*self._lines, *self._line])

    def _end_line(self) -> list[Event]:
        line = b"".join(self._line)
        self._line.clear()
        self._lines.append(line)
        if line.strip(b"\r\n"):
            return []
        event = Event(b"".join(self._lines), _data(self._lines))
        self._lines.clear()
        return [event]


def _data(lines: list[bytes]) -> str:
    found = [line[5:].rstrip(b"\r\n").removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(found).decode("utf-8", "replace")


def comment(said: str) -> bytes:
    """Return a comment: clients pass over it, and the connection is seen to live."""
    return f": {said}\n\n".encode()


def event_of(payload: dict[str, Any]) -> bytes:
    """Return an event whose data are this object."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


# `uncertainty`, as it goes with an answer and as it is kept.

ID_HEADER = "X-Score-ID"
# The chat's own answer is the one that is judged: the score's would only be taken for it.
NOT_REPEATED = ("id", "answer")


def document_of(found: Uncertainty) -> dict[str, Any]:
    """Return an answer's uncertainty as JSON. No field of it is named `error`: clients would raise."""
    document: dict[str, Any] = {"id": found.id, "status": found.status}
    if found.score is not None:
        told = view(found.score, ()).model_dump(mode="json", exclude_unset=True)
        # Of the chat's own answer, as everything here: a /score has this of the answer drawn.
        told["probability_correct"] = found.score.judgement.decisive
        document |= {name: value for name, value in told.items() if name not in NOT_REPEATED}
    if found.warning is not None:
        document["warning"] = {"code": found.warning.code, "message": found.warning.message}
    if found.withheld is not None:
        document["withheld"] = found.withheld
    return document


def score_headers(found: Uncertainty) -> dict[str, str]:
    """Return the headers of an answer that has its score, or of one that may be asked for it later."""
    values: Mapping[str, str] = {} if found.score is None else headers_of(found.score)
    return {ID_HEADER: found.id, **values}


# Log-probabilities that the score needs and the caller did not ask for: asked for, and taken out again.

# Statuses by which servers refuse a parameter, or fail on one: then the call goes as its caller wrote it.
REFUSING = frozenset({400, 403, 422, 500, 501})
# A flag there; here a number of alternatives, of which some servers take 0 for none at all.
ASKED: dict[Api, bytes] = {"chat": b"true", "completions": b"1"}


async def open_with_logprobs(upstream: Upstream, call: Call, api: Api) -> tuple[Reply, bool]:
    """Return the answer to a call that asks for log-probabilities besides, and whether it does.

    What the server refuses is asked again without: nobody is to lose an answer by what we add. Raises as
    `Upstream.open`.
    """
    reply = await upstream.open(replace(call, body=_asking(call.body or b"", api)))
    if reply.status not in REFUSING:
        return reply, True
    await reply.close()
    return await upstream.open(call), False


def without_logprobs(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer, or a chunk of one, as it would be without log-probabilities."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return dict(payload)
    return {**payload, "choices": [_silent(choice) for choice in choices]}


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return it as JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def _silent(choice: object) -> object:
    return {**choice, "logprobs": None} if isinstance(choice, dict) and "logprobs" in choice else choice


def _asking(body: bytes, api: Api) -> bytes:
    # Not encoded anew: all else stays as its caller wrote it.
    return body.rstrip()[:-1] + b',"logprobs":' + ASKED[api] + b"}"


# What of a stream goes by at once, and what waits for the score: the chunk that finishes the answer.


class Tap:
    """Reads a stream that goes by, and holds back the chunk that finishes the first choice.

    What comes after that chunk waits behind it, but for chunks of other choices. `is_over`: the server has
    said so. `has_failed`: it has told an error. `hides_logprobs`: the caller did not ask for them.
    """

    def __init__(self, *, hides_logprobs: bool = False) -> None:
        self.own = OwnAnswer()
        self._hides_logprobs = hides_logprobs
        self.is_over = self.has_failed = False
        self._events = Events()
        self._held: dict[str, Any] | None = None
        self._after: list[bytes] = []
        self._passes_all = False

    @property
    def holds(self) -> bool:
        """Tell whether a chunk is held back."""
        return self._held is not None

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what goes on to the caller now."""
        return b"".join(self._going_on(event) for event in self._events.feed(piece))

    def release(self, found: Uncertainty) -> bytes:
        """Return the chunk held back, with the score on it, and what waits behind it."""
        self.pass_all()
        if self._held is None:
            return b""
        shown = without_logprobs(self._held) if self._hides_logprobs else self._held
        held, self._held = chunk_with_uncertainty(shown, document_of(found)), None
        behind, self._after = b"".join(self._after), []
        return event_of(held) + behind

    def pass_all(self) -> None:
        """Read no more: what still comes goes on as it is."""
        self._passes_all = True

    def rest(self) -> bytes:
        """Return what came last and is no whole event."""
        return self._events.rest()

    def _shown(self, event: Event) -> bytes:
        chunk = event.chunk() if self._hides_logprobs else None
        return event.raw if chunk is None else event_of(without_logprobs(chunk))

    def _going_on(self, event: Event) -> bytes:
        """Return what of an event goes on to the caller at once."""
        if self._passes_all:
            return self._shown(event)
        self.is_over = self.is_over or event.is_last
        chunk = event.chunk()
        if self.holds:
            return self._shown(event) if self._waits_for_none(event, chunk) else b""
        if chunk is None:
            return self._shown(event)
        self.has_failed = self.has_failed or bool(chunk.get("error"))
        if not self.own.take(chunk):
            return self._shown(event)
        now, self._held = divided(chunk)
        if now is None:
            return b""
        return event_of(without_logprobs(now) if self._hides_logprobs else now)

    def _waits_for_none(self, event: Event, chunk: dict[str, Any] | None) -> bool:
        choices = (chunk or {}).get("choices")
        if isinstance(choices, list) and choices and all(_is_other(choice) for choice in choices):
            return True
        self._after.append(event.raw)
        return False


def divided(chunk: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what of a finishing chunk goes on at once, or None, and what waits for the score.

    Some servers send the last words, or all of them, with the reason why they end: words wait for no score.
    """
    mine = [choice for choice in chunk["choices"] if _is_first(choice)]
    if not any(_says_more(choice) for choice in mine):
        return None, chunk
    begun = [_begun(choice) if _is_first(choice) else choice for choice in chunk["choices"]]
    now = {name: value for name, value in chunk.items() if name != "usage"}  # clients take the last one told
    return {**now, "choices": begun}, {**chunk, "choices": [_ended(choice) for choice in mine]}


_OF_THE_END = ("finish_reason", "stop_reason")


def _says_more(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    said = delta if isinstance(delta, dict) else {"text": choice.get("text")}
    return any(value for name, value in said.items() if name != "role")


def _begun(choice: dict[str, Any]) -> dict[str, Any]:
    return choice | {name: None for name in _OF_THE_END if name in choice}


def _ended(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice without what went before: clients that put lists together would have it twice."""
    kept = {name: choice[name] for name in ("index", *_OF_THE_END) if name in choice}
    empty: dict[str, Any] = {"delta": {}} if isinstance(choice.get("delta"), dict) else {"text": ""}
    return {**kept, **empty, **({"logprobs": None} if "logprobs" in choice else {})}


def chunk_with_uncertainty(chunk: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk with the score at its top, and in the first choice's delta.

    Clients differ in which of the two they let through, and in whether they sum what comes twice.
    """
    choices = [
        {**choice, "delta": {**choice["delta"], "uncertainty": document}} if _has_delta(choice) else choice
        for choice in chunk["choices"]
    ]
    return {**chunk, "choices": choices, "uncertainty": document}


def _has_delta(choice: object) -> bool:
    return isinstance(choice, dict) and _is_first(choice) and isinstance(choice.get("delta"), dict)


def _is_first(choice: object) -> bool:
    return isinstance(choice, dict) and not choice.get("index")


def _is_other(choice: object) -> bool:
    return isinstance(choice, dict) and bool(choice.get("index"))
