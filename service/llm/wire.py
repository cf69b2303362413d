"""OpenAI's completion formats: builds request bodies, and parses answers and errors."""

import hashlib
import json
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import httpx2

from service.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable, ModelNotFound
from service.llm.port import Api, Draw, GenerationRequest, PromptShape, Usage
from service.llm.sse import Event, too_long
from service.remote import TRY_AGAIN, error_message, is_out_of_credit
from service.spectral.evidence import POSITIVE_ROUNDING

PATHS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
# A flag for chats; for completions a number of alternatives, where some servers read 0 as none.
LOGPROBS: dict[Api, bool | int] = {"chat": True, "completions": 1}
# Parameters that a call can omit. Without top_k the server uses its default, and the fingerprint has none.
OPTIONAL = frozenset({"top_k", "top_p", "priority", "stream_options", "logprobs"})
# Sampling parameters at values without effect. They are sent, because a server may have other defaults.
WITHOUT_EFFECT = {"top_k": 0, "top_p": 1}
_SEED_RANGE = 2**31 - 1  # the narrowest range among known servers


def spread_seed(seed: int, call: int) -> int:
    """Return the hashed seed of a call. Servers draw choice i with seed + i, so plain seeds overlap."""
    digest = hashlib.sha256(f"{seed}/{call}".encode()).digest()
    return int.from_bytes(digest[:8]) % _SEED_RANGE


def build_body(
    request: GenerationRequest,
    shape: PromptShape,
    *,
    api: Api,
    model: str,
    n: int,
    call: int = 0,
    use_priority: bool = False,
    omitted: Collection[str] = (),
) -> tuple[str, dict[str, Any]]:
    """Return path and JSON body of one call for n answers, streamed if answers are read as they end.

    `api`: the API for prompts. `omitted`: parameters that the server refuses. All other sampling parameters
    are sent, because servers may use the model's own defaults.
    """
    api, sampling = request.api(api), request.sampling
    body: dict[str, Any] = {"model": model}
    if request.wire is not None:
        body |= request.wire.parts
    elif api == "chat":
        body["messages"] = shape.conversation(request)
    else:
        body["prompt"] = shape.text(request)
    body |= {
        "n": n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": sampling.max_tokens,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:  # never sent by default: any seed stops vLLM's engine on a CPU
        body["seed"] = spread_seed(sampling.seed, call)
    body["logprobs"] = LOGPROBS[api]
    if request.num_alternatives and "logprobs" not in omitted:
        body["top_logprobs" if api == "chat" else "logprobs"] = request.num_alternatives
    if use_priority and request.priority:
        body["priority"] = request.priority
    if request.is_streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if "max_tokens" in omitted:
        body["max_completion_tokens"] = body["max_tokens"]
    # A parameter with an effect is sent even to a server that refuses it: it must not be ignored silently.
    left_out = {name for name in omitted if body.get(name) == WITHOUT_EFFECT.get(name, body.get(name))}
    return PATHS[api], {name: value for name, value in body.items() if name not in left_out}


# Answers

MAX_ANSWER_BYTES = 32 << 20  # decompressed, of all choices of a call, unless the call asks for more tokens
MAX_TOKEN_BYTES = 1 << 10  # a token with its log-probability usually takes 350
# Fields of a message or delta other than its text.
OTHER_FIELDS = (
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "tool_calls",
    "function_call",
    "refusal",
    "audio",
)
_NOT_FINISHED = frozenset({"", "null", "none"})
FAILED = frozenset({"abort", "error"})  # finish reasons of choices that the server aborted
MAX_END_LETTERS = 20
# Tokens may be tags, ids (vLLM's --return-tokens-as-token-ids) or bytes (OpenAI's "bytes:\\xe5").
_NO_TEXT = re.compile(r"<[^<>]*>|token_id:\d+|(?:bytes:)?(?:\\x[0-9a-fA-F]{2})+")
# Byte-level vocabularies write bytes as letters up to this code point, such as "Ġ" for a space.
_LAST_BYTE = 0x143
_BYTES = re.compile(r"[\u0100-\u0143\ufffd]|\\x[0-9a-fA-F]{2}|<0x[0-9a-fA-F]{2}>")
MAX_NATS = 1e6  # absolute value, per token; servers send -9999 for minus infinity
MAX_TOKENS_COUNTED = 2**53
MAX_MODEL_NAME_CHARS = 256
# Raised by malformed answers. OverflowError and RecursionError: Python parses 1e999 and deep nesting.
NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def max_bytes_of(body: Mapping[str, Any]) -> int:
    """Return the limit of the answer to a call, in bytes."""
    max_tokens = body.get("max_tokens") or body["max_completion_tokens"]
    return max(MAX_ANSWER_BYTES, int(body["n"]) * int(max_tokens) * MAX_TOKEN_BYTES)


async def read(response: httpx2.Response, max_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """Return a complete body. Raises LLMBadResponse if it is longer than `max_bytes`."""
    return b"".join([piece async for piece in pieces(response, max_bytes)])


async def pieces(response: httpx2.Response, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield a body as it arrives. Raises like `read`."""
    async for piece in response.aiter_bytes():
        max_bytes -= len(piece)
        if max_bytes < 0:
            raise too_long()
        yield piece


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one call. The texts of `draws` are raw outputs.

    `model`: as the server names it, or "". `failure`: the error because of which other choices are missing.
    `queued_s`: how long the call waited for a permit, in seconds. `omitted`: see `LLMIdentity`.
    `is_unnumbered`: the stream does not have one finish reason per index, so one index may mix several
    choices. `max_tokens`: see `Generation`.
    """

    draws: tuple[Draw, ...]
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    failure: EigencalError | None = None
    queued_s: float = 0.0
    omitted: tuple[str, ...] = ()
    is_unnumbered: bool = False
    max_tokens: int | None = None


@dataclass(slots=True)
class Choice:
    """A choice of an answer, assembled from chunks. `pieces`: parts of its text.

    `tokens`: texts of the tokens with their log-probabilities in nats, or None if missing or out of range.
    `first_tokens`: the alternatives to its first token. `other_fields`: those of `OTHER_FIELDS` that it has.
    `is_partial`: the output contains more than the text and the log-probabilities.
    """

    pieces: list[str] = field(default_factory=list)
    tokens: list[tuple[str, float | None]] = field(default_factory=list)
    first_tokens: dict[str, float] = field(default_factory=dict)
    other_fields: set[str] = field(default_factory=set)
    is_partial: bool = False
    finish_reason: str = ""

    @property
    def text(self) -> str:
        """Return its text."""
        return "".join(self.pieces)

    def take(self, choice: Mapping[str, Any]) -> None:
        """Add a choice of a whole answer or of a chunk. Raises one of `NONSENSE` if it is malformed.

        The text is added even if other members are malformed: the caller of a stream has received it.
        """
        message = choice["message"] if "message" in choice else choice.get("delta")
        piece = choice.get("text") if message is None else message.get("content")
        if isinstance(piece, list):
            piece = _joined(piece)
        if piece:
            if not isinstance(piece, str):
                raise TypeError(type(piece))
            self.pieces.append(piece)
        self.finish_reason = finish_of(choice) or self.finish_reason
        self.other_fields |= {name for name in OTHER_FIELDS if (message or {}).get(name)}
        tokens = _tokens(choice)
        if tokens and not self.tokens:
            self.first_tokens = _alternatives(choice)
        self.tokens += tokens
        # A chunk may have tokens without text (the server holds back a stop string), or neither. Text without
        # tokens is incomplete. A whole answer without text is reasoning or a refusal.
        self.is_partial |= bool(piece and not tokens) or (piece is None and "message" in choice)

    def draw(self) -> Draw:
        """Return the draw. The total log-probability is set only if that of each token is known."""
        is_cut = self.finish_reason == "length"
        if not are_tokens_of([text for text, _ in self.tokens], self.text):
            return Draw(
                self.text, truncated=is_cut, logprobs_of_other_text=True, first_tokens=self.first_tokens
            )
        logprobs = [value for _, value in self.tokens if value is not None]
        total = math.fsum(logprobs)
        is_whole = len(logprobs) == len(self.tokens) and not (self.is_partial or self.other_fields)
        has_total = bool(logprobs) and is_whole and total <= POSITIVE_ROUNDING
        return Draw(
            self.text,
            truncated=is_cut,
            logprob=total / len(logprobs) if logprobs else None,
            total_logprob=total if has_total else None,
            num_tokens=len(logprobs) if has_total else None,
            first_tokens=self.first_tokens,
        )


def finish_of(choice: Mapping[str, Any]) -> str | None:
    """Return the finish reason of a choice, or None before its end. Some servers send "" or "null" there."""
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason.lower() not in _NOT_FINISHED else None


def _joined(parts: list[Any]) -> str:
    """Return the text of a message in parts. Parts of other types, such as reasoning, are left out."""
    texts = [
        part.get("text") if part.get("type", "text") in ("text", "output_text") else None
        for part in ({"text": item} if isinstance(item, str) else item for item in parts)
        if isinstance(part, dict)
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _tokens(choice: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return []
    if content := _listed(logprobs.get("content")):
        tokens = [token if isinstance(token, dict) else {} for token in content]
        pairs = [(token.get("token"), token.get("logprob")) for token in tokens]
    else:
        pairs = list(zip_longest(_listed(logprobs.get("tokens")), _listed(logprobs.get("token_logprobs"))))
    return [(text if isinstance(text, str) else "", _nats(value)) for text, value in pairs]


def _alternatives(choice: Mapping[str, Any]) -> dict[str, float]:
    """Return the likeliest first tokens of a choice, with their log-probabilities in nats."""
    logprobs = choice["logprobs"]
    pairs: list[tuple[object, object]] = []
    for first in _listed(logprobs.get("content"))[:1]:
        listed = _listed(first.get("top_logprobs")) if isinstance(first, dict) else []
        pairs += [(token.get("token"), token.get("logprob")) for token in listed if isinstance(token, dict)]
    for first in _listed(logprobs.get("top_logprobs"))[:1]:
        pairs += first.items() if isinstance(first, dict) else []
    return {
        text: nats for text, value in pairs if isinstance(text, str) and (nats := _nats(value)) is not None
    }


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def are_tokens_of(tokens: Sequence[str], text: str) -> bool:
    """Return False if the tokens belong to another text.

    Only letters and digits are compared. Tags such as <|im_end|>, token ids, and bytes of non-ASCII
    characters, which servers write in different forms, are ignored. Tokens without any letter match every
    text. At most `MAX_END_LETTERS` may follow the text, as room for a stop string. A repetition of the text
    does not match.
    """
    joined = "".join(tokens)
    in_bytes = _BYTES.search(joined) is not None
    spelt, expected = _letters(joined, ascii_only=in_bytes), _letters(text, ascii_only=in_bytes)
    rest = spelt[len(expected) :]
    is_repeated = bool(expected) and rest.startswith(expected)
    return not spelt or (spelt.startswith(expected) and len(rest) <= MAX_END_LETTERS and not is_repeated)


def _letters(text: str, *, ascii_only: bool) -> str:
    """Return letters and digits: ASCII and, unless `ascii_only`, others that do not represent bytes."""
    beyond = sys.maxunicode if ascii_only else _LAST_BYTE
    kept = (c for c in _NO_TEXT.sub("", text) if c.isalnum() and (c.isascii() or ord(c) > beyond))
    return "".join(kept)


def _nats(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) <= MAX_NATS else None


def whole_choice(choice: Mapping[str, Any]) -> Choice:
    """Return a choice of a whole answer. Raises one of `NONSENSE` if it is malformed."""
    whole = Choice(finish_reason="stop")
    whole.take(choice)
    return whole


class ReplyReader:
    """Parses an answer, whole or in chunks. `key`: the service's API key, redacted from errors.

    `on_end`: is called with the raw text of each choice as it ends.
    """

    def __init__(self, key: str = "", on_end: Callable[[str], None] | None = None) -> None:
        self._on_end = on_end
        self.done = False
        self._is_chunk = False  # whether the latest event is a chunk
        self._key = key
        self._model = ""
        self._usage = Usage()
        self._choices: dict[int, Choice] = {}
        self._num_ends = 0  # finish reasons

    def feed(self, event: Event) -> None:
        """Add an event of a stream. Raises LLMBadResponse, or the error that the event contains."""
        if event.is_last:
            self._end()
        if not event.data or self.done:
            return
        try:
            chunk = json.loads(event.data)
            if error := error_in(chunk):
                raise error_of(_status_of(error), json.dumps({"error": error}).encode(), self._key)
            self._is_chunk = is_chunk(chunk)
            self._take_head(chunk)
            for choice in chunk.get("choices") or ():
                index = int(choice.get("index") or 0)  # servers that return one choice may omit it
                taken = self._choices.setdefault(index, Choice())
                has_ended = bool(taken.finish_reason)
                taken.take(choice)
                self._num_ends += finish_of(choice) is not None
                if taken.finish_reason and not has_ended:
                    self._ended([taken])
        except NONSENSE:
            raise LLMBadResponse("The LLM server's stream is not a completion.") from None

    def feed_whole(self, content: bytes) -> None:
        """Add a whole answer of either API. Raises LLMBadResponse, or the error that it contains."""
        try:
            payload = json.loads(content)
            choices = payload.get("choices") or []
            other_error = next(filter(None, map(payload.get, ("errors", "detail", "message"))), None)
            if all(map(_error_of_choice, choices)) and (error := error_in(payload) or other_error):
                raise error_of(_status_of(error), json.dumps({"error": error}).encode(), self._key)
            self._take_head(payload)
            self._choices = dict(enumerate(map(whole_choice, payload["choices"])))
            self._num_ends = len(self._choices)
            self._ended(self._choices.values())
        except NONSENSE:
            raise LLMBadResponse("The LLM server's answer is not a completion.") from None

    def _end(self) -> None:
        """End every choice. Raises LLMBadResponse if the last event of the stream is not a chunk."""
        if self._choices and not self._is_chunk:
            raise LLMBadResponse("The LLM server's stream ends with an event that is not a completion.")
        self.done = True
        without_reason = [choice for choice in self._choices.values() if not choice.finish_reason]
        for choice in without_reason:
            choice.finish_reason = "stop"
        self._ended(without_reason)

    def _ended(self, choices: Iterable[Choice]) -> None:
        if self._on_end is not None:
            for choice in choices:
                if choice.finish_reason not in FAILED:
                    self._on_end(choice.text)

    @property
    def is_whole(self) -> bool:
        """Return True if every choice has ended; some servers omit [DONE]."""
        return self.done or (
            bool(self._choices) and all(choice.finish_reason for choice in self._choices.values())
        )

    def reply(self) -> Reply:
        """Return the choices that have ended so far, in the order of the server's indices."""
        finished = [choice for _, choice in sorted(self._choices.items()) if choice.finish_reason]
        draws = tuple(choice.draw() for choice in finished if choice.finish_reason not in FAILED)
        is_unnumbered = self._num_ends != len(self._choices)
        return Reply(draws, self._model, self._usage, is_unnumbered=is_unnumbered)

    def _take_head(self, payload: Mapping[str, Any]) -> None:
        self._model = self._model or model_name(payload.get("model"))
        if isinstance(usage := payload.get("usage"), dict):
            self._usage = Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def is_chunk(event: Mapping[str, Any]) -> bool:
    """Return True for a chunk of an answer. Servers may send the usage in a chunk without choices."""
    return isinstance(event.get("choices"), list) or "usage" in event


def error_in(event: Mapping[str, Any]) -> Any:
    """Return the error that a server sends with status 200, or None for an answer or a chunk.

    OpenRouter sends errors within a choice.
    """
    in_choices = map(_error_of_choice, _listed(event.get("choices")))
    is_error = event.get("object") == "error" or "error_code" in event
    return event.get("error") or next(filter(None, in_choices), event if is_error else None)


def _error_of_choice(choice: object) -> Any:
    return choice.get("error") if isinstance(choice, dict) else None


def _status_of(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _count(tokens: object) -> int:
    return int(tokens) if isinstance(tokens, int | float) and 0 <= tokens <= MAX_TOKENS_COUNTED else 0


def model_name(name: object) -> str:
    """Return the server's name of a model, or "". Raises ValueError for an overlong or unprintable name."""
    name = name.strip() if isinstance(name, str) else ""
    if len(name) > MAX_MODEL_NAME_CHARS or not name.isprintable():
        raise ValueError("not a model name")
    return name


# Errors

REFUSAL_BYTES = 64 * 2**10
MAX_MESSAGE_CHARS = 500
# vLLM's answer to every call after its engine has died, until it is restarted. The prompt is not the cause.
_ENGINE_DEAD = re.compile(
    r"engine\w*\W.*(encountered an issue|dead|died|not running)|EngineDead", re.IGNORECASE
)
_REFUSING = frozenset({400, 422})
# Some services forbid log-probabilities for some models (403), and some servers fail on them (500, 501).
_REFUSING_LOGPROBS = _REFUSING | {403, 500, 501}
# "n" as a separate word, or a synonym.
_REFUSED_N = re.compile(
    r"(?<!\w)n(?!\w)|\b(?:choices?|candidates?|candidate_count|best_of|num_\w+|generations|sequences)\b"
    r"|\b(?:one|single|multiple|several) (?:\w+ )?(?:completion|response|generation|output|answer)s?\b",
    re.IGNORECASE,
)
_REFUSING_N = _REFUSING | {500, 501}
_REFUSED_LOGPROBS = re.compile(r"log[ _-]?prob", re.IGNORECASE)
_UNKNOWN_PARAMETER = re.compile(
    r"un(?:known|recogni[sz]ed|supported|expected)|not (?:permitted|supported|recogni[sz]ed)", re.IGNORECASE
)
_NO_ROOM = _REFUSING | {413}
_CONTEXT = re.compile(r"\bcontext\b|too (?:long|large)|exceed", re.IGNORECASE)


def error_of(status: int, body: bytes, key: str = "", *, retry_after_s: float | None = None) -> EigencalError:
    """Return the error for an answer with status 400 or more, with the service's `key` redacted."""
    message = error_message(body)
    message = (message.replace(key, "[redacted]") if key else message)[:MAX_MESSAGE_CHARS]
    if status in TRY_AGAIN and not is_out_of_credit(body):
        return LLMUnavailable("The LLM server refuses work for now.", retry_after_s=retry_after_s)
    if status == 500 and _ENGINE_DEAD.search(message):
        return LLMUnavailable("The LLM server's engine has stopped.", retry_after_s=retry_after_s)
    if status == 404 and "model" in message.lower():
        return ModelNotFound("The LLM server does not serve this model.")
    cause = ": EIGENCAL_LLM_URL may not be the base URL of its API" if status == 404 else ""
    return LLMError(
        f"The LLM server answered with status {status}{cause}.", llm_status=status, llm_message=message
    )


def has_no_room(error: EigencalError) -> bool:
    """Return True if prompt and `max_tokens` together exceed the context."""
    message, status = error.extra.get("llm_message") or "", error.extra.get("llm_status")
    return status in _NO_ROOM and _CONTEXT.search(message) is not None


def refuses_stream(error: EigencalError) -> bool:
    """Return True if the server refused a call because it does not stream."""
    return (
        isinstance(error, LLMError)
        and error.extra.get("llm_status") in _REFUSING
        and "stream" in (error.extra.get("llm_message") or "").lower()
    )


def refused_parameter(error: EigencalError, body: Mapping[str, Any]) -> str | None:
    """Return the parameter that the server refused, if the call can be sent without it.

    That is `n`, `max_tokens` (it has another name), or one of `OPTIONAL` at a value without effect.
    """
    message, status = error.extra.get("llm_message") or "", error.extra.get("llm_status")
    if not isinstance(error, LLMError) or status not in _REFUSING_LOGPROBS:
        return None
    if _REFUSED_LOGPROBS.search(message) and "logprobs" in body:
        return "logprobs"
    if status in _REFUSING:
        is_unknown = "max_tokens" in message and _UNKNOWN_PARAMETER.search(message)
        if "max_tokens" in body and (is_unknown or "max_completion_tokens" in message):
            return "max_tokens"
        for name in OPTIONAL & body.keys():
            if name in message and body[name] == WITHOUT_EFFECT.get(name, body[name]):
                return name
    return "n" if status in _REFUSING_N and body["n"] > 1 and _REFUSED_N.search(message) else None
