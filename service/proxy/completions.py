"""Chats as a `Format`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from service.llm.wire import LOGPROBS, PATHS
from service.proxy.chat_score import choices_of, first_choice, is_first
from service.proxy.stream import DONE, event_of

# Members of a response that do not depend on the text of the answer.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without text that are forwarded.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})


class Completions:
    """Implements `service.proxy.formats.Format` for chats."""

    ends_at_once = False
    path = PATHS["chat"]
    always: Mapping[str, Any] = MappingProxyType({})

    def call(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body: samples are chats, too."""
        return body

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with `logprobs`."""
        return {**body, "logprobs": LOGPROBS["chat"]}

    def read(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the payload: it is a completion, or a chunk of one."""
        return payload

    def without_logprobs(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return an answer or a chunk with `logprobs` null in each choice."""
        choices = choices_of(payload)
        quiet = [
            {**choice, "logprobs": None} if isinstance(choice, dict) and "logprobs" in choice else choice
            for choice in choices
        ]
        return {**payload, "choices": quiet} if choices else dict(payload)

    def with_uncertainty(self, event: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a chunk with the score at the top level and in the first delta: clients read either."""
        choices = [
            {**choice, "delta": {**choice["delta"], "uncertainty": document}}
            if is_first(choice) and isinstance(choice.get("delta"), dict)
            else choice
            for choice in event["choices"]
        ]
        return {**event, "choices": choices, "uncertainty": document}

    def event(self, payload: Mapping[str, Any]) -> bytes:
        """Return an event without a type."""
        return event_of(payload)

    def abstaining(self, payload: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the answer with `text` in each choice. Choices after the first were not judged."""
        end = {"logprobs": None, "finish_reason": "stop"}
        message = {"role": "assistant", "content": text}
        number = len(choices_of(payload)) or 1
        return _about(payload) | {
            "choices": [{"index": index, "message": message, **end} for index in range(number)]
        }

    def let_through(self, payload: Mapping[str, Any], judged: str | None) -> dict[str, Any]:
        """Return the first choice with `judged` as its text; None: with its tool calls or refusal."""
        choice = first_choice(payload) or {}
        message = choice.get("message")
        names = _KEPT if judged is None else {"role"}
        kept = {name: message[name] for name in message if name in names} if isinstance(message, dict) else {}
        content = {"message": {**kept, "content": judged}}
        end = {"logprobs": None, "finish_reason": choice.get("finish_reason")}
        return _about(payload) | {"choices": [{"index": 0, **content, **end}]}

    def stream(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return a chunk with the messages, the last chunk, the usage if there is one, and `[DONE]`."""
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
            end = {"logprobs": None, "finish_reason": choice.get("finish_reason")}
            ended.append({"index": index, "delta": {}, **end})
        sent = [{**common, "choices": begun}, self.with_uncertainty({**common, "choices": ended}, document)]
        sent += [{**common, "choices": [], "usage": payload["usage"]}] if payload.get("usage") else []
        return b"".join([*map(event_of, sent), DONE])


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _ABOUT if name in payload}
