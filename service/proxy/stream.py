"""A stream that carries its score on the chunk that finishes it; all else goes by as it comes.

Every buffer is bounded: an event, an answer put together, what waits behind a score.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

from service.api.errors import error_body, openai_error
from service.errors import EigencalError, LLMUnavailable, Unscorable
from service.heavy_json import MAX_ANSWER_VALUES, is_heavy
from service.llm.admission import Permit
from service.llm.wire import BESIDE_ANSWER, MAX_MODEL_NAME_CHARS, NONSENSE, token_logprobs, token_texts
from service.proxy.chat_score import RunningScore, Uncertainty, choices_of, is_first
from service.proxy.upstream import HeldReply, Reply, too_long

MAX_EVENT_BYTES = 8 << 20
MAX_ANSWER_BYTES = 8 << 20  # of one that is read whole
MAX_JUDGED = 1 << 20  # characters of an answer that goes by; a log-probability counts as eight
MAX_HELD_BYTES = 128 << 20  # of all that are read whole at the same time
HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
TOO_LONG = Unscorable("too_long", "The answer is longer than what is judged.")
NO_END = Unscorable("no_answer", "The stream ended before the answer did.")
_END_OF_EVENT = re.compile(rb"\n\r?\n|\r\r")
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
# Members of a message or delta by which it is known that there is more to an answer than its text.
BESIDE_TEXT = (*BESIDE_ANSWER, "function_call", "audio")
_END_FIELDS = ("finish_reason", "stop_reason")
DONE = b"data: [DONE]\n\n"


class Event:
    """One server-sent event: its bytes, the blank line that ends it included, and its data."""

    __slots__ = ("data", "raw")

    def __init__(self, raw: bytes) -> None:
        if b"data:" not in raw:  # comments keep a connection alive, and there may be thousands
            self.raw, self.data = raw, ""
            return
        lines = _END_OF_LINE.split(raw)
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        self.raw, self.data = raw, data.decode("utf-8", "replace")

    def chunk(self) -> dict[str, Any] | None:
        """Return the JSON object that the data are; None where they are none."""
        return parse_object(self.data) if self.data.lstrip().startswith("{") else None

    @property
    def is_last(self) -> bool:
        """Tell whether it says that the stream is over."""
        return self.data == "[DONE]"


class EventReader:
    """Cuts a stream of bytes into events, wherever its pieces begin and end.

    Lines end with LF, CRLF or CR.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[Event]:
        """Take a piece; return the events that it completes. Raises LLMBadResponse for one without end."""
        start, begin, events = max(len(self._buffer) - 2, 0), 0, []
        self._buffer += piece
        for end in _END_OF_EVENT.finditer(self._buffer, start):
            events.append(Event(bytes(self._buffer[begin : end.end()])))
            begin = end.end()
        del self._buffer[:begin]
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise too_long()
        return events

    def rest(self) -> bytes:
        """Return what has come of an event that never ended."""
        return bytes(self._buffer)


def parse_object(content: str | bytes, max_values: int = MAX_ANSWER_VALUES) -> dict[str, Any] | None:
    """Return the JSON object in the text; None where there is none, it is not in UTF-8, or it is heavy."""
    if is_heavy(content.encode() if isinstance(content, str) else content, max_values):
        return None
    try:
        value = json.loads(content if isinstance(content, str) else content.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return it as JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def event_of(payload: Mapping[str, Any]) -> bytes:
    """Return an event whose data are this object."""
    return b"data: " + encoded(payload) + b"\n\n"


def comment(text: str) -> bytes:
    """Return a comment: clients pass over it, and the connection is seen to live."""
    return f": {text}\n\n".encode()


def broken_off(error: EigencalError) -> bytes:
    """Return the event by which clients of OpenAI's API learn that a stream has failed."""
    return event_of(openai_error(error_body(error, None)))


def without_logprobs(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer, or a chunk of one, as it would be without log-probabilities."""
    choices = choices_of(payload)
    quiet = [
        {**one, "logprobs": None} if isinstance(one, dict) and "logprobs" in one else one for one in choices
    ]
    return {**payload, "choices": quiet} if choices else dict(payload)


def with_score(payload: Mapping[str, Any], uncertainty: Uncertainty) -> bytes:
    """Return an answer that is not streamed as JSON, with the score beside it."""
    return encoded({**payload, "uncertainty": uncertainty.document()})


def with_uncertainty(chunk: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with the score at its top, and in the first choice's delta.

    Clients differ in which of the two they let through, and in whether they sum what comes twice.
    """
    choices = [
        {**one, "delta": {**one["delta"], "uncertainty": document}}
        if is_first(one) and isinstance(one.get("delta"), dict)
        else one
        for one in chunk["choices"]
    ]
    return {**chunk, "choices": choices, "uncertainty": document}


class AnswerReader:
    """The first choice of an answer, put together from chunks as they come; nonsense is passed over.

    `is_too_long`: more has come than is kept.
    """

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.model = ""
        self.is_too_long = False
        self._texts: list[str] = []
        self._logprobs: list[float | None] = []
        self._tokens: list[str] = []
        self._beside: dict[str, Any] = {}  # the last value of what tells that there is more than text
        self._is_chat = False
        self._has_begun = False
        self._num_kept = 0

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Take a chunk; tell whether the first choice is finished by it."""
        if isinstance(chunk.get("model"), str):
            self.model = self.model or chunk["model"][:MAX_MODEL_NAME_CHARS]
        mine = [choice for choice in choices_of(chunk) if is_first(choice)]
        for choice in mine:
            self._take(choice)
        return any(isinstance(choice.get("finish_reason"), str) for choice in mine)

    @property
    def has_text(self) -> bool:
        """Tell whether anything was drawn yet: servers send the role before the first token."""
        return any(self._texts) or bool(self._beside)

    def choice(self) -> dict[str, Any]:
        """Return the choice as an answer that is not streamed would hold it; raises Unscorable for none."""
        if not self._has_begun:
            raise Unscorable("no_answer", "The answer holds no choice.")
        text = "".join(self._texts)
        content = {"message": {**self._beside, "content": text}} if self._is_chat else {"text": text}
        logprobs = {"tokens": self._tokens, "token_logprobs": self._logprobs} if self._logprobs else None
        return {"finish_reason": self.finish_reason, "logprobs": logprobs, **content}

    def _take(self, choice: Mapping[str, Any]) -> None:
        self._has_begun = True
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._is_chat = True
            self._beside |= {name: True for name in BESIDE_TEXT if delta.get(name)}
        piece = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        piece = piece if isinstance(piece, str) else ""
        values, tokens = _logprobs_of(choice)
        if piece and not values:
            values, tokens = [None], [piece]  # text without any: a sum without it would be too high
        self._num_kept += len(piece) + 8 * len(values) + sum(map(len, tokens))
        self.is_too_long = self._num_kept > MAX_JUDGED
        if not self.is_too_long:
            self._texts.append(piece)
            self._logprobs += values
            self._tokens += tokens
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"][:MAX_MODEL_NAME_CHARS]


def _logprobs_of(choice: Mapping[str, Any]) -> tuple[list[float | None], list[str]]:
    try:
        return token_logprobs(choice), token_texts(choice)
    except NONSENSE:
        return [], []


class StreamRewriter:
    """Reads a stream that goes by, and holds back the chunk that finishes the first choice.

    What comes with that chunk waits behind it. `is_over`: the server has said so. `has_failed`: it has sent
    an error. `hides_logprobs`: the caller did not ask for them.
    """

    def __init__(self, *, hides_logprobs: bool = False) -> None:
        self.answer = AnswerReader()
        self.is_over = self.has_failed = False
        self._hides_logprobs = hides_logprobs
        self._events = EventReader()
        self._held: dict[str, Any] | None = None
        self._behind: list[bytes] = []
        self._passes_all = False

    @property
    def holds(self) -> bool:
        """Tell whether a chunk is held back."""
        return self._held is not None

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what goes on to the caller now. Raises LLMBadResponse beyond the bounds."""
        return b"".join([self._passed(event) for event in self._events.feed(piece)])

    def release(self, uncertainty: Uncertainty) -> bytes:
        """Return the chunk held back, with the score on it, and what waits behind it."""
        self._passes_all = True
        if self._held is None:
            return b""
        held, self._held = with_uncertainty(self._quiet(self._held), uncertainty.document()), None
        behind, self._behind = b"".join(self._behind), []
        return event_of(held) + behind

    def pass_all(self) -> None:
        """Read no more: what still comes goes on as it is."""
        self._passes_all = True

    def rest(self) -> bytes:
        """Return what came last and is no whole event; some clients read it all the same."""
        event = Event(self._events.rest())
        return self._going_on(event, event.chunk() if self._hides_logprobs else None)

    def _quiet(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Return what of a chunk may go on."""
        return without_logprobs(chunk) if self._hides_logprobs else chunk

    def _going_on(self, event: Event, chunk: dict[str, Any] | None) -> bytes:
        """Return what of an event may go on; chunk: its object, None where it has none or none is read."""
        quiet = None if chunk is None else self._quiet(chunk)
        return event.raw if quiet is None or quiet is chunk else event_of(quiet)

    def _passed(self, event: Event) -> bytes:
        """Return what of an event goes on to the caller at once."""
        chunk = event.chunk() if self._hides_logprobs or not self._passes_all else None
        going_on = self._going_on(event, chunk)
        if self._passes_all:
            return going_on
        self.is_over = self.is_over or event.is_last
        self.has_failed = self.has_failed or bool(chunk and chunk.get("error"))
        if self.holds:
            self._behind.append(going_on)
            return b""
        if chunk is None or not self.answer.take(chunk) or self.answer.is_too_long:
            return going_on
        now, self._held = divided(chunk)
        return b"" if now is None else event_of(self._quiet(now))


def divided(chunk: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what of a finishing chunk goes on at once, or None, and what waits for the score.

    Some servers send the last words, or all of them, with the reason why they end: words wait for no score.
    """
    mine = [choice for choice in chunk["choices"] if is_first(choice)]
    if not any(_has_words(choice) for choice in mine):
        return None, chunk
    begun = [
        choice | {name: None for name in _END_FIELDS if name in choice} if is_first(choice) else choice
        for choice in chunk["choices"]
    ]
    now = {name: value for name, value in chunk.items() if name != "usage"}  # clients take the last one sent
    return {**now, "choices": begun}, {**chunk, "choices": [_ending(choice) for choice in mine]}


def _has_words(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    members = delta if isinstance(delta, dict) else {"text": choice.get("text")}
    return any(value for name, value in members.items() if name != "role")


def _ending(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice without what went before: clients that put lists together would have it twice."""
    kept = {name: choice[name] for name in ("index", *_END_FIELDS) if name in choice}
    empty: dict[str, Any] = {"delta": {}} if isinstance(choice.get("delta"), dict) else {"text": ""}
    return {**kept, **empty, **({"logprobs": None} if "logprobs" in choice else {})}


async def as_it_is(reply: Reply, permit: Permit | None) -> AsyncGenerator[bytes, None]:
    """Yield a stream as it comes; where the server breaks it off, an event says so.

    permit: of a good answer's call, released at its end.
    """
    last = b""
    try:
        async for piece in reply.pieces():
            last = (last + piece)[-4:]
            yield piece
        if permit is not None:
            permit.release(answered=True)
    except EigencalError as error:
        # An event that was cut ends first, or the error would be part of it.
        yield (b"" if last.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) else b"\n\n") + broken_off(error)


async def scored_stream(
    reply: Reply,
    permit: Permit,
    running: RunningScore,
    wait_s: float | None,
    *,
    hides_logprobs: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Yield the stream; its last chunk waits `wait_s` for the score. None: it says where to find it.

    The permit of its call is released before that: the draws may wait for it.
    """
    rewriter, pieces = StreamRewriter(hides_logprobs=hides_logprobs), reply.pieces()
    answer = rewriter.answer
    try:
        async for piece in pieces:
            if passed := rewriter.feed(piece):
                yield passed
            # Not before: the caller's own first token would wait for them, and its prompt is cached now.
            if answer.has_text:
                running.start()
            if rewriter.holds or rewriter.has_failed or answer.is_too_long:
                break
        if rewriter.holds:
            permit.release(answered=True)
            running.judge(answer.choice, answer.model)
            if wait_s is None:
                yield rewriter.release(running.detach())
            else:

                async def released(wait_s: float = wait_s) -> bytes:
                    return rewriter.release(await running.wait(wait_s))

                async with aclosing(beating(released, "the score is being made")) as beats:
                    async for piece in beats:
                        yield piece
        elif rewriter.is_over and not (rewriter.has_failed or answer.is_too_long):
            # No chunk finished the answer, so none can carry the score: it is left to be fetched.
            running.judge(answer.choice, answer.model)
            running.detach()
        else:
            rewriter.pass_all()
            await running.discard(TOO_LONG if answer.is_too_long else NO_END)
        async for piece in pieces:
            yield rewriter.feed(piece)
        yield rewriter.rest()
    except EigencalError as error:
        await running.discard(error)
        yield broken_off(error)


async def read_held(
    reply: Reply,
    permit: Permit,
    running: RunningScore,
    wait_s: float,
    rewriter: StreamRewriter,
    held: HeldReply,
) -> bytes:
    """Return a stream of which nothing goes out before its end, with its score, which is waited for.

    Raises what breaks it off, of which `running` is told.
    """
    passed, answer = bytearray(), rewriter.answer

    def judge() -> None:
        permit.release(answered=True)
        running.judge(answer.choice, answer.model)

    try:
        async for piece in reply.pieces():
            if (no_room := held.take(piece)) is not None:
                raise no_room
            held_before = rewriter.holds
            passed += rewriter.feed(piece)
            if answer.has_text:
                running.start()
            if rewriter.holds and not held_before:
                judge()
    except EigencalError as error:
        await running.discard(error)
        raise
    if rewriter.has_failed:
        await running.discard(NO_END)
        # In words of ours, since its own may hold the answer; the caller may ask again.
        raise LLMUnavailable("The LLM server broke off its answer.")
    if rewriter.holds or (rewriter.is_over and not answer.is_too_long):
        if not rewriter.holds:
            judge()
        await running.wait(wait_s)
    else:
        await running.discard(TOO_LONG if answer.is_too_long else NO_END)
    return bytes(passed) + rewriter.release(running.uncertainty) + rewriter.rest()


async def beating(work: Callable[[], Coroutine[Any, Any, bytes]], why: str) -> AsyncGenerator[bytes, None]:
    """Yield heartbeats, comments that say why, until the work is done, and then what it has made."""
    task = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
            yield comment(why)
        yield task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
