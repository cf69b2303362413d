"""The OpenAI completion formats: from a request to a body, from a reply to choices, a refusal or an error.

Replies are bounded by what was asked for. Nonsense in log-probabilities or usage fails no answer.
"""

import contextlib
import hashlib
import json
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from service.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable, ModelNotFound
from service.llm.port import Draw, GenerationRequest, Usage
from service.llm.prompting import PromptShape, api_of, whole_text
from service.remote import TRY_AGAIN
from service.spectral.evidence import POSITIVE_ROUNDING

# Of the completions API, a number of alternatives for each token. vLLM gives the tokens' own at 0; to some
# servers 0 means none at all, and a habit of this name says so: then 1 is sent.
ZERO_LOGPROBS = "logprobs: 0"
# Fields of a message or delta whose text was drawn, too, but is no part of the answer.
BESIDE_ANSWER = ("reasoning", "reasoning_content", "reasoning_details", "tool_calls", "refusal")
MAX_NATS = 1e6  # of one token, either way; servers that floor minus infinity send -9999


def token_logprobs(choice: Mapping[str, Any]) -> list[float | None]:
    """Return the log-probabilities of a choice's (or chunk's) tokens in nats; empty when not told.

    None stands for a token that has none, or nonsense.
    """
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return []
    tokens, values = told.get("content"), told.get("token_logprobs")
    if isinstance(tokens, list) and tokens:
        return [_number(one.get("logprob") if isinstance(one, dict) else None) for one in tokens]
    return [_number(value) for value in values] if isinstance(values, list) else []


def _number(value: object) -> float | None:
    # True is an int to Python, and an int may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MAX_NATS else None


def mean_logprob(values: Sequence[float | None]) -> float | None:
    """Return the mean of those told; None for none."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def total_logprob(values: Sequence[float | None], *, whole: bool) -> tuple[float | None, int | None]:
    """Return the sum in nats and the number of tokens; None twice where the sum would not be the answer's.

    `whole`: whether the answer is all that was drawn. Unlike a mean, a sum without one of the tokens is wrong
    by any amount.
    """
    numbers = [value for value in values if value is not None]
    total = math.fsum(numbers)
    if not whole or not numbers or len(numbers) < len(values) or total > POSITIVE_ROUNDING:
        return None, None
    return total, len(numbers)


def is_beside_answer(choice: Mapping[str, Any]) -> bool:
    """Tell whether a choice or chunk holds text that was drawn and is no part of the answer."""
    message = choice.get("message") or choice.get("delta") or {}
    return any(message.get(name) for name in BESIDE_ANSWER)


# What is read of a refusal, of which MAX_MESSAGE_CHARS are told, and of a list of models.
REFUSAL_BYTES = 64 * 2**10
LIST_BYTES = 8 * 2**20
# What an answer may take: a good many times what servers send.
ANY_BYTES = 2**20
CHOICE_BYTES = 2**10
TOKEN_BYTES = 64  # 4 in the mean, sixfold when escaped, twice where reasoning is told under two names
LOGPROB_BYTES = 2**10  # of one token: its text, its bytes as numbers, its alternatives
EVENT_BYTES = 2**10  # around each token of a stream


def max_bytes_of(body: Mapping[str, Any]) -> int:
    """Return how many bytes, unpacked, the answer to a request's body may have."""
    token = TOKEN_BYTES + (EVENT_BYTES if body.get("stream") else 0)
    token += LOGPROB_BYTES if "logprobs" in body else 0  # 0 asks for them, too: without alternatives
    return ANY_BYTES + int(body.get("n", 1)) * (CHOICE_BYTES + int(body["max_tokens"]) * token)


async def read(response: httpx.Response, max_bytes: int) -> bytes:
    """Return a complete body. Raises LLMBadResponse when it is longer or cannot be unpacked."""
    return b"".join([piece async for piece in _pieces(response, max_bytes)])


async def read_beginning(response: httpx.Response, max_bytes: int) -> bytes:
    """Return a body, or the beginning of a longer one."""
    taken: list[bytes] = []
    with contextlib.suppress(LLMBadResponse):
        async for piece in _pieces(response, max_bytes):
            taken.append(piece)
    return b"".join(taken)


async def lines(response: httpx.Response, max_bytes: int) -> AsyncIterator[str]:
    """Yield lines cut at newlines alone: httpx cuts at U+2028 and its like too, which JSON may hold as is.

    Raises as `read`. Takes linear time however long a line is.
    """
    begun: list[bytes] = []
    async for piece in _pieces(response, max_bytes):
        *ended, rest = piece.split(b"\n")
        for end in ended:
            yield b"".join([*begun, end]).decode("utf-8", "replace")
            begun.clear()
        begun.append(rest)
    yield b"".join(begun).decode("utf-8", "replace")


async def _pieces(response: httpx.Response, max_bytes: int) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_bytes():
            max_bytes -= len(piece)
            if max_bytes < 0:
                raise LLMBadResponse("The LLM server's answer is longer than what was asked for can be.")
            yield piece
    except httpx.DecodingError:
        raise LLMBadResponse("The LLM server's answer cannot be decoded.") from None


MAX_MESSAGE_CHARS = 500
MAX_RETRY_AFTER_S = 60.0  # a server may ask for more, but may be well again long before
READ_BYTES = 256 * 1024  # of a refusal's body
# vLLM answers so to every call once its engine has died, until it is restarted: no fault of the prompt.
_ENGINE_DEAD = re.compile(
    r"engine\w*\W.*(encountered an issue|dead|died|not running)|EngineDead", re.IGNORECASE
)
# Beside n: a call may do without them (without top_k the server takes its own: the fingerprint tells).
OPTIONAL = frozenset({"top_k", "priority", "stream_options", "logprobs"})
_REFUSING = frozenset({400, 422})
# Some services forbid log-probabilities for some models (403), and some servers fail on them (500, 501).
_REFUSING_LOGPROBS = _REFUSING | {403, 500, 501}
_REFUSED_N = re.compile(r"(?<!\w)n(?!\w)")  # the letter as a word of its own


def error_message(body: bytes) -> str:
    """Return what the server said: `{"error": {"message"}}`, `{"error": text}`, `{"message"}` or text."""
    text = body[:READ_BYTES].decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    said = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return said.replace("\0", "")  # no text of PostgreSQL holds it


def error_of(status: int, body: bytes, key: str = "", *, retry_after_s: float | None = None) -> EigencalError:
    """Return the domain's error for an answer of status 400 or more; it does not repeat our own `key`."""
    retry_after_s = _bounded(retry_after_s)
    said = whole_text(error_message(body))
    said = (said.replace(key, "[redacted]") if key else said)[:MAX_MESSAGE_CHARS]
    if status in TRY_AGAIN:
        return LLMUnavailable("The LLM server refuses work for now.", retry_after_s=retry_after_s)
    if status == 500 and _ENGINE_DEAD.search(said):
        return LLMUnavailable("The LLM server's engine has stopped.", retry_after_s=retry_after_s)
    if status == 404 and "model" in said.lower():
        return ModelNotFound("The LLM server does not serve this model.")
    return LLMError(f"The LLM server answered with status {status}.", llm_status=status, llm_message=said)


def _bounded(retry_after_s: float | None) -> float | None:
    if retry_after_s is None or not math.isfinite(retry_after_s):
        return None
    return min(max(retry_after_s, 0.0), MAX_RETRY_AFTER_S)


def error_in_stream(payload: dict[str, Any], key: str = "") -> EigencalError:
    """Return the domain's error for an error told inside a stream, which has no status of its own."""
    told = payload["error"]
    code = told.get("code") if isinstance(told, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return error_of(status, json.dumps(payload).encode(), key)


def refused_parameter(error: EigencalError, body: dict[str, Any]) -> str | None:
    """Return the name of the optional parameter that the server refused, or None.

    Only what may be left out without changing what was asked for: `n` (asked one by one instead), `top_k`
    while it is 0, `priority`, `stream_options` and `logprobs`.
    """
    said, status = error.extra.get("llm_message") or "", error.extra.get("llm_status")
    if not isinstance(error, LLMError) or status not in _REFUSING_LOGPROBS:
        return None
    if "logprobs" in said.lower() and "logprobs" in body:
        return "logprobs"
    if status not in _REFUSING:
        return None
    for name in OPTIONAL:
        if name in said and name in body and not (name == "top_k" and body["top_k"]):
            return name
    return "n" if body.get("n", 1) > 1 and _REFUSED_N.search(said) else None


def bad_json() -> LLMBadResponse:
    """Return the error for an answer that is no JSON."""
    return LLMBadResponse("The LLM server's answer is no JSON.")


NO_USAGE = Usage()
# Of the parameters that may be left out: without it the server may draw otherwise.
DECIDES_ANSWERS = ("top_k",)
PATHS = {"chat": "/chat/completions", "completions": "/completions"}
FAILED = frozenset({"abort", "error"})  # finish reasons of choices that the server gave up
_SEED_RANGE = 2**31 - 1  # the narrowest range among the servers known
MAX_TOKENS_COUNTED = 2**53  # more tokens than that is no count but nonsense
MAX_MODEL_NAME_CHARS = 256
# What reading nonsense raises; Overflow and Recursion: 1e999 and a thousand brackets are JSON to Python.
NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Choice:
    """One raw output. `logprob`: mean per token in nats, where it was asked for and told.

    `total_logprob`: their sum, and `num_tokens` their number; None where a token's was not told, or where
    tokens were drawn that are not in the output (reasoning, say).
    """

    output: str
    truncated: bool
    logprob: float | None = None
    total_logprob: float | None = None
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What one call brought. `model`: as the server told, "" where it did not.

    `given_up`: choices that the server began but did not end.
    """

    choices: tuple[Choice, ...]
    model: str = ""
    usage: Usage = NO_USAGE
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class WireOptions:
    """What a server is sent beside the essentials. `omitted`: parameters that it was seen to refuse."""

    api: str = "chat"
    logprobs: bool = False
    use_priority: bool = False
    omitted: frozenset[str] = field(default_factory=frozenset)


def spread_seed(seed: int, call: int) -> int:
    """Return the seed of a call: a hash, so that neighbouring seeds and calls share no answers.

    A server draws choice i with seed + i, so that seeds sent as they are would overlap.
    """
    digest = hashlib.sha256(f"{seed}/{call}".encode()).digest()
    return int.from_bytes(digest[:8]) % _SEED_RANGE


def build_body(
    request: GenerationRequest,
    shape: PromptShape,
    options: WireOptions,
    *,
    model: str,
    n: int,
    call: int = 0,
    stream: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return path and JSON body of one call for n answers.

    All sampling parameters are explicit, or the server takes the model's own defaults. A seed is sent
    only when asked for: on some servers any seed is costly or worse.
    """
    api = api_of(request, options.api)
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        **_content(request, shape, api),
        "n": n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": sampling.max_tokens,
        **_optional(request, options, api, call),
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    # A top_k that was asked for is sent even to a server that refused 0: it must not be ignored silently.
    omitted = options.omitted - ({"top_k"} if sampling.top_k else set())
    return PATHS[api], {name: value for name, value in body.items() if name not in omitted}


def _content(request: GenerationRequest, shape: PromptShape, api: str) -> dict[str, Any]:
    if request.wire is not None:
        return dict(request.wire.parts)
    if api == "chat":
        return {"messages": shape.conversation(request)}
    return {"prompt": shape.text(request.prompt or "")}


def _optional(request: GenerationRequest, options: WireOptions, api: str, call: int) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if request.sampling.stop:
        extra["stop"] = list(request.sampling.stop)
    if request.sampling.seed is not None:  # else none: any seed stops vLLM's engine on a CPU
        extra["seed"] = spread_seed(request.sampling.seed, call)
    if options.logprobs:
        # A flag there, a number of alternatives here.
        extra["logprobs"] = True if api == "chat" else int(ZERO_LOGPROBS in options.omitted)
    if options.use_priority and request.priority:
        extra["priority"] = request.priority
    return extra


def parse_completion(payload: dict[str, Any]) -> Completion:
    """Return the choices of a whole answer of either API; raises LLMBadResponse when it is none."""
    try:
        usable = [choice for choice in payload["choices"] if choice.get("finish_reason") not in FAILED]
        choices = tuple(parse_choice(choice) for choice in usable)
        model, usage = model_name(payload.get("model")), parse_usage(payload.get("usage"))
        given_up = len(payload["choices"]) - len(choices)
    except NONSENSE:
        raise LLMBadResponse("The LLM server's answer is no completion.") from None
    if not choices:
        raise LLMBadResponse("The LLM server's answer holds no choices.")
    return Completion(choices, model, usage, given_up)


def model_name(told: object) -> str:
    """Return a model's name as a server told it, "" for none; raises ValueError for what is no name."""
    if not isinstance(told, str):
        return ""
    name = whole_text(told).strip()
    if len(name) > MAX_MODEL_NAME_CHARS or not name.isprintable():
        raise ValueError("no name of a model")
    return name


def parse_usage(usage: object) -> Usage:
    """Return the token counts; zero where the server does not tell, or tells what is no count."""
    if not isinstance(usage, dict):
        return Usage()
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def _count(told: object) -> int:
    # True is an int to Python.
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told <= MAX_TOKENS_COUNTED:
        return 0
    return int(told)


def parse_choice(choice: Mapping[str, Any]) -> Choice:
    """Return one choice of a whole answer of either API; raises what reading nonsense does."""
    text = choice["message"].get("content") if "message" in choice else choice["text"]
    output = "" if text is None else _text(text)  # none: all of it was reasoning, or a refusal
    told, whole = token_logprobs(choice), text is not None and not is_beside_answer(choice)
    return Choice(output, _cut(choice), mean_logprob(told), *total_logprob(told, whole=whole))


def drawn(shape: PromptShape, answer: str, choice: Choice) -> Draw:
    """Return the draw of a choice whose answer has been taken out of its output."""
    total = choice.total_logprob if shape.is_whole(choice.output) else None
    return Draw(answer, choice.truncated, choice.logprob, total, choice.num_tokens)


async def draw_of(shape: PromptShape, choice: Mapping[str, Any]) -> Draw:
    """Return the draw of a choice of a whole answer. Raises LLMBadResponse when it is none."""
    try:
        read = parse_choice(choice)
    except NONSENSE:
        raise LLMBadResponse("The LLM server's answer is no completion.") from None
    [answer] = await shape.answers([read.output])
    return drawn(shape, answer, read)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(type(value))
    return value


def _cut(choice: Mapping[str, Any]) -> bool:
    return choice.get("finish_reason") == "length"


class StreamCollector:
    """Gathers server-sent chunks into choices, so that those finished survive a deadline or a broken line."""

    def __init__(self) -> None:
        self.model = ""
        self.usage = Usage()
        self.done = False
        self._texts: dict[int, list[str]] = {}
        self._logprobs: dict[int, list[float | None]] = {}
        self._beside: set[int] = set()
        self._finished: dict[int, str] = {}

    def feed(self, line: str) -> dict[str, Any] | None:
        """Take one line of the stream; return the server's error payload when it holds one, else None."""
        if not line.startswith("data:"):
            return None
        data = line[5:].strip()
        if data == "[DONE]":
            self.done = True
            return None
        try:
            chunk: dict[str, Any] = json.loads(data)
            if chunk.get("error"):
                return chunk
            self._take(chunk)
        except NONSENSE:
            raise LLMBadResponse("The LLM server's stream is no completion.") from None
        return None

    def completion(self) -> Completion:
        """Return what has been finished so far, in the order of the server's indices."""
        finished = sorted(i for i, reason in self._finished.items() if reason not in FAILED)
        given_up = len(self._texts) - len(finished)
        return Completion(tuple(self._choice(i) for i in finished), self.model, self.usage, given_up)

    def _take(self, chunk: Mapping[str, Any]) -> None:
        told = model_name(chunk.get("model"))
        if told and self.model and told != self.model:
            raise ValueError("another model in the midst of an answer")
        self.model = self.model or told
        if chunk.get("usage"):
            self.usage = parse_usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            index = int(choice.get("index") or 0)  # left out by servers that give one choice
            piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
            self._texts.setdefault(index, []).append("" if piece is None else _text(piece))
            self._take_logprobs(index, choice, told_text=bool(piece))
            if choice.get("finish_reason"):
                self._finished[index] = _text(choice["finish_reason"])

    def _take_logprobs(self, index: int, choice: Mapping[str, Any], *, told_text: bool) -> None:
        # A chunk may hold tokens without text (a stop string held back), or neither, but not text alone.
        values = token_logprobs(choice)
        self._logprobs.setdefault(index, []).extend(values)
        if is_beside_answer(choice) or (told_text and not values):
            self._beside.add(index)

    def _choice(self, index: int) -> Choice:
        text, told = "".join(self._texts[index]), self._logprobs[index]
        cut = self._finished[index] == "length"
        return Choice(text, cut, mean_logprob(told), *total_logprob(told, whole=index not in self._beside))
