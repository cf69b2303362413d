"""OpenAI's completion formats: builds request bodies, and parses answers and errors."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import httpx2

from service.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable, ModelNotFound
from service.llm.connection import TRY_AGAIN, error_message, is_out_of_credit, retry_after_s
from service.llm.prompt import Api, GenerationRequest
from service.llm.samples import Draw, Generation, Usage, answer_in
from service.llm.sse import too_long
from service.spectral.evidence import POSITIVE_ROUNDING

PATHS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
# A flag for chats; for completions a number of alternatives, where some servers read 0 as none.
LOGPROBS: dict[Api, bool | int] = {"chat": True, "completions": 1}
# Sampling parameters at values without effect. They are sent, because a server may have other defaults.
WITHOUT_EFFECT = {"top_k": 0, "top_p": 1}
_SEED_RANGE = 2**31 - 1  # the narrowest range among known servers

Body = dict[str, Any]

# Calls


def body_of(request: GenerationRequest, model: str, *, n: int, call: int, lacking: int = 0) -> Body:
    """Return a call for n answers.

    All sampling parameters are sent, because servers may use the model's own defaults. `call`: the position
    of the call among those of a request. `lacking`: 1 for a server that returns log-probabilities only with
    alternatives, 2 for a server that returns none.
    """
    api, sampling = request.prompt.api, request.sampling
    body: Body = {
        "model": model,
        **request.prompt.members,
        "logprobs": LOGPROBS[api],
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
    if request.num_alternatives:
        body["top_logprobs" if api == "chat" else "logprobs"] = request.num_alternatives
    elif lacking == 1:
        body["top_logprobs"] = 1
    elif lacking:
        del body["logprobs"]
    return body


def spread_seed(seed: int, call: int) -> int:
    """Return the hashed seed of a call. Servers draw choice i with seed + i, so plain seeds overlap."""
    digest = hashlib.sha256(f"{seed}/{call}".encode()).digest()
    return int.from_bytes(digest[:8]) % _SEED_RANGE


# By dialect: parameters that are left out, unless they have an effect.
_LEFT_OUT: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"top_k"}),
    frozenset({"n", "logprobs", "top_logprobs", *WITHOUT_EFFECT}),
)
NUM_DIALECTS = len(_LEFT_OUT)
# Statuses of servers that refuse a parameter, or fail on it.
REFUSING = frozenset({400, 403, 413, 422, 500, 501})


def in_dialect(body: Body, dialect: int) -> Body:
    """Return a call as one of the dialects writes it. They are tried in turn on a server that refuses a call.

    0: all parameters, as vLLM reads them. 1: those of OpenAI's API. 2: one answer, without log-probabilities
    and parameters that have no effect. A parameter with an effect is never left out, because a server would
    ignore it silently.
    """
    renamed = {"max_tokens": "max_completion_tokens"} if dialect == 1 else {}
    return {
        renamed.get(name, name): value
        for name, value in body.items()
        if name not in _LEFT_OUT[dialect] or value != WITHOUT_EFFECT.get(name, value)
    }


# Answers

MAX_ANSWER_BYTES = 32 << 20  # decompressed, of all choices of a call, unless the call asks for more tokens
REFUSAL_BYTES = 64 * 2**10
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
_TAG = re.compile(r"<[^<>]*>")
_NO_TEXT = re.compile(rf"{_TAG.pattern}|token_id:\d+|(?:bytes:)?(?:\\x[0-9a-fA-F]{2})+")
# Byte-level vocabularies write bytes as letters up to this code point, such as "Ġ" for a space.
_LAST_BYTE = 0x143
_BYTES = re.compile(r"[\u0100-\u0143\ufffd]|\\x[0-9a-fA-F]{2}|<0x[0-9a-fA-F]{2}>")
MAX_NATS = 1e6  # absolute value, per token; servers send -9999 for minus infinity
MAX_TOKENS_COUNTED = 2**53
MAX_MODEL_NAME_CHARS = 256
# Raised by malformed answers. OverflowError and RecursionError: Python parses 1e999 and deep nesting.
NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


async def read(response: httpx2.Response, max_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """Return a complete body. Raises LLMBadResponse if it is longer than `max_bytes`."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > max_bytes:
            raise too_long()
    return bytes(body)


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
        tokens, alternatives = _tokens(choice)
        if not self.tokens:
            self.first_tokens = alternatives
        self.tokens += tokens
        # A chunk may have tokens without text (the server holds back a stop string), or neither. Text without
        # tokens is incomplete. A whole answer without text is reasoning or a refusal.
        self.is_partial |= bool(piece and not tokens) or (piece is None and "message" in choice)

    def draw(self) -> Draw:
        """Return the answer in the text.

        The total log-probability is set only if that of each token is known, and the answer is the whole
        text.
        """
        output = "".join(self.pieces)
        text = answer_in(output)
        answer = Draw(text.strip(), self.finish_reason == "length", first_tokens=self.first_tokens)
        if not are_tokens_of([token for token, _ in self.tokens], output):
            return replace(answer, logprobs_of_other_text=True)
        logprobs = [value for _, value in self.tokens if value is not None]
        if not logprobs:
            return answer
        total = math.fsum(logprobs)
        answer = replace(answer, logprob=total / len(logprobs))
        is_whole = len(logprobs) == len(self.tokens) and not (self.is_partial or self.other_fields)
        if not is_whole or total > POSITIVE_ROUNDING:
            return answer
        of_answer = total if text == output else None
        return replace(answer, total_logprob=of_answer, num_tokens=len(logprobs))


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


def _tokens(choice: Mapping[str, Any]) -> tuple[list[tuple[str, float | None]], dict[str, float]]:
    """Return the tokens with their log-probabilities in nats, and the alternatives to the first token."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return [], {}
    if content := [item if isinstance(item, dict) else {} for item in _listed(logprobs.get("content"))]:
        tokens = [(item.get("token"), item.get("logprob")) for item in content]
        listed = [item for item in _listed(content[0].get("top_logprobs")) if isinstance(item, dict)]
        first = [(item.get("token"), item.get("logprob")) for item in listed]
    else:
        tokens = [*zip_longest(_listed(logprobs.get("tokens")), _listed(logprobs.get("token_logprobs")))]
        of_first = next(iter(_listed(logprobs.get("top_logprobs"))), None)
        first = [*of_first.items()] if isinstance(of_first, dict) else []
    known = [(text, _number(value, MAX_NATS)) for text, value in first if isinstance(text, str)]
    return (
        [(text if isinstance(text, str) else "", _number(value, MAX_NATS)) for text, value in tokens],
        {text: nats for text, nats in known if nats is not None},
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def are_tokens_of(tokens: Sequence[str], text: str) -> bool:
    """Return False if the tokens belong to another text.

    Only letters and digits are compared. Tags such as <|im_end|>, token ids, and bytes of non-ASCII
    characters, which servers write in different forms, are ignored. Tokens without letters match every text.
    But if all tokens are tags or empty, they match only a text without letters. At most `MAX_END_LETTERS` may
    follow the text, as room for a stop string. A repetition of the text does not match.
    """
    joined = "".join(tokens)
    if joined == text:
        return True
    in_bytes = _BYTES.search(joined) is not None
    spelt, expected = _letters(joined, ascii_only=in_bytes), _letters(text, ascii_only=in_bytes)
    if tokens and expected and not in_bytes and not _TAG.sub("", joined).strip():
        return False
    rest = spelt[len(expected) :]
    is_repeated = bool(expected) and rest.startswith(expected)
    return not spelt or (spelt.startswith(expected) and len(rest) <= MAX_END_LETTERS and not is_repeated)


def _letters(text: str, *, ascii_only: bool) -> str:
    """Return letters and digits: ASCII and, unless `ascii_only`, others that do not represent bytes."""
    beyond = sys.maxunicode if ascii_only else _LAST_BYTE
    kept = (c for c in _NO_TEXT.sub("", text) if c.isalnum() and (c.isascii() or ord(c) > beyond))
    return "".join(kept)


def _number(value: object, limit: float) -> float | None:
    """Return a number of at most this absolute value, or None."""
    return float(value) if isinstance(value, int | float) and abs(value) <= limit else None


async def samples_of(response: httpx2.Response, max_bytes: int, key: str = "") -> Generation:
    """Return the answers in a reply of either API, which is read to its end.

    `key`: redacted from errors. Raises LLMBadResponse, or the error that the answer contains.
    """
    status = response.status_code
    try:
        content = await read(response, max_bytes if status == 200 else REFUSAL_BYTES)
    except LLMBadResponse:
        if status == 200:
            raise
        content = b""  # the refusal is too long
    if status != 200:
        raise error_of(status, content, key, wait_s=retry_after_s(response))
    try:
        payload = json.loads(content)
        choices = payload.get("choices") or []
        other_error = next(filter(None, map(payload.get, ("errors", "detail", "message"))), None)
        if all(choice.get("error") for choice in choices) and (error := error_in(payload) or other_error):
            raise error_of(_status_of(error), json.dumps({"error": error}).encode(), key)
        draws = list[Draw]()
        for choice in payload["choices"]:
            whole = Choice()
            whole.take(choice)
            if whole.finish_reason not in FAILED:
                draws.append(whole.draw())
        usage = payload.get("usage") if isinstance(payload.get("usage"), dict) else {}
        counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        tokens = (max(0, int(_number(count, MAX_TOKENS_COUNTED) or 0)) for count in counts)
        generation = Generation(tuple(draws), model_name(payload.get("model")), Usage(*tokens))
    except NONSENSE:
        raise LLMBadResponse("The LLM server's answer is not a completion.") from None
    if not draws:
        raise LLMBadResponse("The LLM server's answer has no choices.")
    return generation


def lacks_logprobs(draws: Sequence[Draw]) -> bool:
    """Return True if answers with text have no log-probabilities; empty ones may lack their end token."""
    has_text = any(draw.text for draw in draws)
    return has_text and all(draw.logprob is None and not draw.logprobs_of_other_text for draw in draws)


def listed_models(content: bytes) -> list[dict[str, Any]]:
    """Return the models of GET /models: `{"data": [...]}`, `{"models": [...]}` or a list, of names too.

    A body that lists no models has none.
    """
    try:
        listed = json.loads(content)
    except (ValueError, RecursionError):
        return []
    if isinstance(listed, dict):
        listed = listed.get("data") or listed.get("models")
    named = ({"id": model} if isinstance(model, str) else model for model in _listed(listed))
    return [model for model in named if isinstance(model, dict)]


def is_chunk(event: Mapping[str, Any]) -> bool:
    """Return True for a chunk of an answer. Servers may send the usage in a chunk without choices."""
    return isinstance(event.get("choices"), list) or "usage" in event


def error_in(event: Mapping[str, Any]) -> Any:
    """Return the error that a server sends with status 200, or None for an answer or a chunk.

    OpenRouter sends errors within a choice.
    """
    choices = _listed(event.get("choices"))
    in_choices = (choice.get("error") for choice in choices if isinstance(choice, dict))
    is_error = event.get("object") == "error" or "error_code" in event
    return event.get("error") or next(filter(None, in_choices), event if is_error else None)


def _status_of(error: object) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def model_name(name: object) -> str:
    """Return the server's name of a model, or "". Raises ValueError for an overlong or unprintable name."""
    name = name.strip() if isinstance(name, str) else ""
    if len(name) > MAX_MODEL_NAME_CHARS or not name.isprintable():
        raise ValueError("not a model name")
    return name


# Errors

MAX_MESSAGE_CHARS = 500


def error_of(status: int, body: bytes, key: str = "", *, wait_s: float | None = None) -> EigencalError:
    """Return the error for an answer with status 400 or more, with the service's `key` redacted."""
    message = error_message(body)
    message = (message.replace(key, "[redacted]") if key else message)[:MAX_MESSAGE_CHARS]
    if status in TRY_AGAIN and not is_out_of_credit(body):
        return LLMUnavailable("The LLM server refuses work for now.", retry_after_s=wait_s)
    if status == 404 and "model" in message.lower():
        return ModelNotFound("The LLM server does not serve this model.")
    cause = ": EIGENCAL_LLM_URL may not be the base URL of its API" if status == 404 else ""
    return LLMError(
        f"The LLM server answered with status {status}{cause}.", llm_status=status, llm_message=message
    )
