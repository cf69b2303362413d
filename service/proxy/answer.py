"""The answer to a chat: how it is read, and how the service writes one."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from service.errors import Unscorable
from service.llm import forward
from service.llm.samples import Draw, is_blank
from service.llm.wire import (
    FAILED,
    LOGPROBS,
    MAX_MODEL_NAME_CHARS,
    NONSENSE,
    PATHS,
    Choice,
    error_in,
    finish_of,
    is_chunk,
)

# Arguments of exceptions, not exceptions: an exception that is raised repeatedly keeps every traceback.
NO_END = ("incomplete", "The answer ended before it was complete.")
TOO_LONG = ("incomplete", "The answer is too long to be judged.")
NO_TEXT = ("no_text", "The answer has no text, or only reasoning: there is nothing to judge.")

DONE = b"data: [DONE]\n\n"
# Members that hold parts of an answer, in chats and in responses.
_HOLDING_PARTS = frozenset({"choices", "response", "output", "item", "part", "content"})
# Members of a completion that do not depend on the text of the answer.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without text that are forwarded.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return the object as compact JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def event_of(payload: Mapping[str, Any]) -> bytes:
    """Return a server-sent event with this object as its data. Events of responses name their type."""
    kind = str(payload.get("type"))
    name = f"event: {kind}\n".encode() if kind.startswith("response.") else b""
    return name + b"data: " + encoded(payload) + b"\n\n"


def choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return the choices of a completion or of a chunk."""
    choices = payload.get("choices")
    return choices if isinstance(choices, list) else []


def is_first(choice: object) -> bool:
    """Return True for the choice that is judged. Servers that return one choice may omit its index."""
    return isinstance(choice, dict) and not choice.get("index")


def without_logprobs(value: Any) -> Any:
    """Return a payload without log-probabilities, or the same object if it has none."""
    if isinstance(value, list):
        kept: Any = [without_logprobs(item) for item in value]
        return value if all(a is b for a, b in zip(kept, value, strict=True)) else kept
    if not isinstance(value, dict):
        return value
    inner = {name: without_logprobs(value[name]) for name in _HOLDING_PARTS & value.keys()}
    if logprobs := value.get("logprobs"):
        inner["logprobs"] = [] if isinstance(logprobs, list) else None
    return {**value, **inner} if any(inner[name] is not value[name] for name in inner) else value


def with_uncertainty(payload: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last chunk or event of an answer with its score where clients look for it.

    In a chunk, the score is at the top level and in the first delta; in an event, it is in the response.
    """
    if "choices" not in payload and isinstance(payload.get("response"), dict):
        return {**payload, "response": {**payload["response"], "uncertainty": document}}
    choices = [
        {**choice, "delta": {**choice["delta"], "uncertainty": document}}
        if is_first(choice) and isinstance(choice.get("delta"), dict)
        else choice
        for choice in choices_of(payload)
    ]
    return {**payload, **({"choices": choices} if choices else {}), "uncertainty": document}


class Answer:
    """The first choice of a chat completion, read whole or in chunks. Malformed parts are ignored.

    `path`: of the route, below the server's base URL. `always`: members that are added to every call.
    `model`: the model that answered; `id`: of the completion; both "" if unknown. `failure`: why the answer
    cannot be judged, if that is known already. `is_finished`: the last text had a finish reason. `is_over`:
    the server has sent the end of the answer.
    """

    path = PATHS["chat"]
    always: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self) -> None:
        self.model = ""
        self.id = ""
        self.failure: Exception | None = None
        self.is_finished = False
        self.is_over = False
        self.restart()
        self._has_choice = False
        self._num_bytes = 0
        self._is_broken = False  # the latest event is not a chunk

    def restart(self) -> None:
        """Forget the text that was added."""
        self._choice = Choice()

    def chat_of(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of a chat for the same answer. Raises Unscorable if there is none."""
        return body

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body that also asks for log-probabilities."""
        return {**body, "logprobs": LOGPROBS["chat"]}

    def take(self, payload: Mapping[str, Any], size: int = 0) -> bool:
        """Add a completion or a chunk of `size` bytes; return True if it has the finish reason.

        After a failure nothing is added.
        """
        choice = next(filter(is_first, choices_of(payload)), None)
        self._is_broken = not is_chunk(payload)
        self._num_bytes += size if choices_of(payload) else 0
        if error_in(payload):
            self.failure = self.failure or Unscorable(*NO_END)
        elif self._num_bytes > forward.MAX_WHOLE_BYTES:
            self.failure = self.failure or Unscorable(*TOO_LONG)
        if isinstance(payload.get("model"), str):
            self.model = self.model or payload["model"][:MAX_MODEL_NAME_CHARS]
        if isinstance(payload.get("id"), str):
            self.id = self.id or payload["id"]
        if self.failure is not None or choice is None:
            return False
        self._has_choice = True
        try:
            self._choice.take(choice)
        except NONSENSE:
            self._choice.is_partial = True
        self.is_finished = finish_of(choice) is not None
        return self.is_finished

    @property
    def text(self) -> str:
        """Return the text, with its reasoning."""
        return "".join(self._choice.pieces)

    @property
    def has_begun(self) -> bool:
        """Return True after the first token: servers send the role before it."""
        return bool(self._choice.pieces or self._choice.other_fields)

    @property
    def tokens(self) -> tuple[tuple[str, float], ...]:
        """Return the tokens with their log-probabilities in nats; none if one is unknown."""
        known = tuple((text, value) for text, value in self._choice.tokens if value is not None)
        return known if len(known) == len(self._choice.tokens) else ()

    def candidate(self) -> Draw:
        """Return the text to judge. Raises Unscorable, or the error that broke the answer off."""
        if self.failure is not None:
            raise self.failure
        if not self.is_finished and (self._is_broken or not self.is_over):
            raise Unscorable(*NO_END)
        if not self._has_choice:
            raise Unscorable("incomplete", "The answer has no choice.")
        others, has_text = self._choice.other_fields, bool(self._choice.pieces)
        if others & {"tool_calls", "function_call"}:
            raise Unscorable("no_text", "The answer calls a tool: it has no text to judge.")
        if "refusal" in others and not has_text:
            raise Unscorable("no_text", "The model refused to answer: there is no answer to judge.")
        if "audio" in others and not has_text:
            raise Unscorable("no_text", "The answer is audio, not text.")
        if self._choice.finish_reason in FAILED:
            raise Unscorable("incomplete", "The LLM server aborted the answer.")
        candidate = self._choice.draw()
        if is_blank(candidate.text):
            raise Unscorable(*NO_TEXT)
        return candidate

    # Answers that the service writes

    def withheld(self, payload: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the whole answer with `text` in each choice. Choices after the first were not judged."""
        message = {"role": "assistant", "content": text}
        return _completion(payload, [message] * (len(choices_of(payload)) or 1), "stop")

    def let_through(self, payload: Mapping[str, Any], judged: str | None) -> dict[str, Any]:
        """Return the first choice with `judged` as its text; None: with its tool calls or refusal."""
        choice: dict[str, Any] = next(filter(is_first, choices_of(payload)), {})
        message, names = choice.get("message"), _KEPT if judged is None else {"role"}
        kept = {name: message[name] for name in message if name in names} if isinstance(message, dict) else {}
        return _completion(payload, [{**kept, "content": judged}], choice.get("finish_reason"))

    def streamed(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return a whole answer as a stream with its score: the messages, the last chunk, the usage."""
        common = {name: value for name, value in payload.items() if name not in ("choices", "usage")}
        common["object"] = "chat.completion.chunk"
        begun, ended = list[dict[str, Any]](), list[dict[str, Any]]()
        for choice in choices_of(payload):
            index, message = choice.get("index"), dict(choice.get("message") or {})
            if calls := message.get("tool_calls"):
                message["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
            begun.append(
                {"index": index, "delta": message, "logprobs": choice.get("logprobs"), "finish_reason": None}
            )
            reason = choice.get("finish_reason")
            ended.append({"index": index, "delta": {}, "logprobs": None, "finish_reason": reason})
        sent = [{**common, "choices": begun}, with_uncertainty({**common, "choices": ended}, document)]
        sent += [{**common, "choices": [], "usage": payload["usage"]}] if payload.get("usage") else []
        return b"".join([*map(event_of, sent), DONE])


def _completion(payload: Mapping[str, Any], messages: Sequence[Any], finish_reason: Any) -> dict[str, Any]:
    """Return the completion with these messages in place of its own."""
    end = {"logprobs": None, "finish_reason": finish_reason}
    choices = [{"index": index, "message": message, **end} for index, message in enumerate(messages)]
    return {**{name: payload[name] for name in _ABOUT if name in payload}, "choices": choices}
