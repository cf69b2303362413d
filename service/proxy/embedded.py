"""The embedded LLM behind a small part of OpenAI's API, enough to try the drop-in."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from service.errors import PromptTooLong, Unscorable
from service.ids import new_id
from service.llm.port import Api, Draw, Generation, GenerationRequest, LanguageModel, Sampling
from service.llm.sse import parse_object
from service.llm.wire import PATHS
from service.proxy.chat_score import NEUTRAL, wire_prompt
from service.proxy.stream import DONE, encoded, event_of
from service.proxy.upstream import Call

APIS = {path: api for api, path in PATHS.items()}
EVENTS = "text/event-stream"
MAX_CHOICES, MAX_TOKENS = 32, 1024
# Marks that the embedded LLM accepts (`_request` checks the first two), and parameters that it lacks.
READ_MARKS = frozenset({"turns", "prompt", "last_turn"})
UNSUPPORTED = NEUTRAL.keys() - {"n", "seed"} | {"echo", "top_logprobs", "prompt_logprobs"}


class Refusal(Exception):
    """A call is refused. `param`: the refused member of the body. `code`: error code of OpenAI's API."""

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_request") -> None:
        super().__init__(message)
        self._error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}

    def reply(self, status: int = 400) -> "MadeReply":
        """Return the refusal in the format of OpenAI's API."""
        return MadeReply(encoded({"error": self._error}), status=status)


class MadeReply:
    """Implements `service.proxy.upstream.Reply` for a complete answer."""

    def __init__(self, content: bytes, media_type: str = "application/json", status: int = 200) -> None:
        self._content = content
        self.status = status
        self.is_stream = media_type == EVENTS
        self.headers: Mapping[str, str] = {"content-type": media_type}

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield self._content

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class ModelUpstream:
    """Implements `service.proxy.upstream.Upstream` with a model in this process.

    It accepts turns of text, logprobs, and the sampling parameters temperature, top_p, top_k, max_tokens,
    stop, seed and n. Any other member with an effect is refused with status 400. `sampling` returns the
    defaults of parameters that a call omits. A stream is one chunk. Each token has its log-probability, but
    the first token has the whole text.
    """

    def __init__(self, llm: LanguageModel, sampling: Callable[[Api], Sampling]) -> None:
        self._llm = llm
        self._sampling = sampling

    async def stop(self) -> None:
        """Do nothing: there is nothing to release."""

    async def open(self, call: Call) -> MadeReply:
        """Answer the call, or refuse it as OpenAI's API does. Raises the model's other errors."""
        path = call.path.partition("?")[0]
        if path == "/models":
            probe = GenerationRequest(num_samples=1, sampling=self._sampling("chat"), prompt="?")
            model = {"id": self._llm.identity(probe).model, "object": "model", "owned_by": "eigencal"}
            return MadeReply(encoded({"object": "list", "data": [model]}))
        api, body = APIS.get(path), parse_object(call.body or b"")
        if api is None or body is None:
            message = (
                "The embedded LLM has no such route." if api is None else "The body is not a JSON object."
            )
            return Refusal(message).reply(404 if api is None else 400)
        try:
            generation = await self._llm.generate(_request(body, api, self._sampling(api)))
        except Refusal as refusal:
            return refusal.reply()
        except PromptTooLong as error:
            param = "messages" if api == "chat" else "prompt"
            return Refusal(error.detail, param, "context_length_exceeded").reply()
        if body.get("stream"):
            return MadeReply(_events(generation, api, body), EVENTS)
        return MadeReply(encoded(_completion(generation, api, body)))


def _request(body: Mapping[str, Any], api: Api, default: Sampling) -> GenerationRequest:
    _refuse(name for name in UNSUPPORTED if body.get(name) not in (None, False, NEUTRAL.get(name, 0)))
    try:
        wire = wire_prompt(body, api)
    except Unscorable as reason:
        raise Refusal(reason.message) from None
    _refuse(wire.marks.keys() - READ_MARKS)
    if "turns" in wire.marks or "prompt" in wire.marks or (api == "chat" and not wire.parts["messages"]):
        raise Refusal("The embedded LLM takes only text turns of the roles system, user and assistant.")
    stop = body.get("stop") or ()
    limit = _number(body, "max_completion_tokens", min(default.max_tokens, MAX_TOKENS), 1, MAX_TOKENS)
    sampling = Sampling(
        temperature=_number(body, "temperature", default.temperature, 0, 2),
        top_p=_number(body, "top_p", default.top_p, 1e-6, 1),
        top_k=int(_number(body, "top_k", default.top_k, 0, 1_000_000)),
        max_tokens=int(_number(body, "max_tokens", limit, 1, MAX_TOKENS)),
        stop=(stop,) if isinstance(stop, str) else _texts(stop),
        seed=None if body.get("seed") is None else int(_number(body, "seed", 0, 0, 2**63 - 1)),
    )
    model = body.get("model")
    return GenerationRequest(
        num_samples=int(_number(body, "n", 1, 1, MAX_CHOICES)),
        sampling=sampling,
        wire=wire,
        model=model if isinstance(model, str) and model else None,
    )


def _refuse(names: Iterable[str]) -> None:
    """Refuse these parameters of a call, if there are any."""
    if shown := sorted(name[:40] for name in names)[:10]:
        message = f"The embedded LLM does not support these parameters: {', '.join(shown)}."
        raise Refusal(message, shown[0], "unsupported_parameter")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise Refusal("stop: send a text, or a list of texts.", "stop")
    return tuple(filter(None, value))


def _number(body: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = default if body.get(name) is None else body[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Refusal(f"{name}: send a number from {least:g} to {most:g}.", name)
    return value


def _completion(
    generation: Generation, api: Api, body: Mapping[str, Any], *, streamed: bool = False
) -> dict[str, Any]:
    with_logprobs = body.get("logprobs") is not None and body["logprobs"] is not False  # also for 0
    chat = "chat.completion.chunk" if streamed else "chat.completion"
    usage = generation.usage
    choices = []
    for index, draw in enumerate(generation.draws):
        content: dict[str, Any] = {"text": draw.text}
        if api == "chat":
            content = {"delta" if streamed else "message": {"role": "assistant", "content": draw.text}}
        reason = "length" if draw.truncated else "stop"
        logprobs = _logprobs(draw, api) if with_logprobs and draw.total_logprob is not None else None
        choices.append({"index": index, **content, "logprobs": logprobs, "finish_reason": reason})
    return {
        "id": new_id("chatcmpl" if api == "chat" else "cmpl"),
        "object": chat if api == "chat" else "text_completion",
        "created": int(time.time()),
        "model": generation.model,
        "choices": choices,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


def _logprobs(draw: Draw, api: Api) -> dict[str, Any]:
    values = draw.token_logprobs
    texts = [draw.text if i == 0 else "" for i in range(len(values))]
    if api == "completions":
        return {"tokens": texts, "token_logprobs": values, "top_logprobs": None, "text_offset": []}
    pairs = zip(texts, values, strict=True)
    return {"content": [{"token": text, "logprob": value, "top_logprobs": []} for text, value in pairs]}


def _events(generation: Generation, api: Api, body: Mapping[str, Any]) -> bytes:
    """Return a stream of one chunk, and a second with the usage if the call asks for it."""
    chunk = _completion(generation, api, body, streamed=True)
    usage = chunk.pop("usage")
    options = body.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage")
    chunks = [chunk, {**chunk, "choices": [], "usage": usage}] if with_usage else [chunk]
    return b"".join([*map(event_of, chunks), DONE])
