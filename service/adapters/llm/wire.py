"""The OpenAI completion formats: pure functions from a request to a body, and from an answer to choices."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.adapters.llm.logprobs import (
    ZERO_LOGPROBS,
    is_beside_answer,
    mean_logprob,
    token_logprobs,
    total_logprob,
)
from service.adapters.llm.prompting import PromptShape, api_of, whole_text
from service.domain.errors import LLMBadResponse
from service.domain.models import Draw, GenerationRequest, Usage

NO_USAGE = Usage()
DECIDES_ANSWERS = (
    "top_k",
)  # of the parameters that may be left out: without it the server may draw otherwise
PATHS = {"chat": "/chat/completions", "completions": "/completions"}
FAILED = frozenset({"abort", "error"})  # finish reasons of choices that the server gave up
_SEED_RANGE = 2**31 - 1  # the narrowest range among the servers known
MAX_TOKENS_COUNTED = 2**53  # more tokens than that is no count but nonsense
LONGEST_MODEL_NAME = 256
Heard = Callable[[str], None]
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


def prompt_texts(body: Mapping[str, Any]) -> list[str]:
    """Return every text of the caller in a body: what an error message must not echo."""
    return list(_texts_in(body["prompt"] if "prompt" in body else body["messages"]))


def _texts_in(value: object) -> Iterator[str]:
    """Yield a turn's content, and the texts of its parts; a part's kind and a turn's role are no secrets."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts_in(one)
    elif isinstance(value, dict):
        yield from _texts_in([inner for name, inner in value.items() if name not in ("role", "type")])


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
    if len(name) > LONGEST_MODEL_NAME or not name.isprintable():
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
    """Gathers server-sent chunks into choices, so that those finished survive a deadline or a broken line.

    `heard` is told the output of each choice as it is finished.
    """

    def __init__(self, heard: Heard | None = None) -> None:
        self._heard = heard
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
                self._finish(index, _text(choice["finish_reason"]))

    def _finish(self, index: int, reason: str) -> None:
        # Some servers say twice that a choice is finished.
        if self._heard and index not in self._finished and reason not in FAILED:
            self._heard("".join(self._texts[index]))
        self._finished[index] = reason

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
