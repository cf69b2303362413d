"""Chats and text completions as a `Format`."""

from collections.abc import Mapping
from typing import Any

from service.llm.port import Api
from service.llm.wire import LOGPROBS, PATHS, finish_of
from service.proxy.chat_score import choices_of, first_choice, is_first
from service.proxy.stream import DONE, event_of

# Members of a response that do not depend on the text of the answer.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without text that are forwarded.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})


class Completions:
    """Implements `service.proxy.formats.Format` for chats and for text completions."""

    ends_at_once = False

    def __init__(self, api: Api) -> None:
        self.samples_api = api
        self.path = PATHS[api]

    def call(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body: samples are calls of the same API."""
        return body

    def asking_logprobs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with `logprobs`."""
        return {**body, "logprobs": LOGPROBS[self.samples_api]}

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
        number = len(choices_of(payload)) or 1
        return _about(payload) | {"choices": [self._choice(text, "stop", index) for index in range(number)]}

    def let_through(self, payload: Mapping[str, Any], judged: str | None) -> dict[str, Any]:
        """Return the first choice with `judged` as its text; None: with its tool calls or refusal."""
        choice = first_choice(payload) or {}
        message = choice.get("message")
        if isinstance(message, dict):
            names = _KEPT if judged is None else {"role"}
            kept = {name: value for name, value in message.items() if name in names}
            content: dict[str, Any] = {"message": {**kept, "content": judged}}
        else:
            content = {"text": judged or ""}
        end = {"logprobs": None, "finish_reason": choice.get("finish_reason")}
        return _about(payload) | {"choices": [{"index": 0, **content, **end}]}

    def textless(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a chunk with only the members of its deltas that are forwarded without text."""
        kept = []
        for choice in choices_of(event):
            if isinstance(choice, dict):
                delta = choice.get("delta")
                ends = {name: choice[name] for name in ("index", "finish_reason") if name in choice}
                if isinstance(delta, dict):
                    kept.append({**ends, "delta": {name: delta[name] for name in delta if name in _KEPT}})
                else:
                    kept.append({**ends, "text": ""})
        return _about(event) | {"choices": kept}

    def gathered(self, whole: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first chunk's members, the last usage, and the finish reason of the first choice."""
        whole = {"choices": [self._choice("", "stop")], **_about(event), **whole}
        for choice in filter(is_first, choices_of(event)):
            if reason := finish_of(choice):
                whole["choices"] = [self._choice("", reason)]
        return {**whole, "usage": event.get("usage") or whole.get("usage")}

    def stream(self, payload: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
        """Return a chunk with the text, the last chunk, the usage if there is one, and `[DONE]`."""
        common = {name: value for name, value in payload.items() if name not in ("choices", "usage")}
        [choice] = payload["choices"]
        begun: dict[str, Any] = {"text": choice.get("text")}
        ended: dict[str, Any] = {"text": ""}
        if self.samples_api == "chat":
            begun, ended = {"delta": choice["message"]}, {"delta": {}}
        first = {"index": 0, **begun, "logprobs": None, "finish_reason": None}
        last = {"index": 0, **ended, "logprobs": None, "finish_reason": choice["finish_reason"]}
        sent = [
            {**common, "choices": [first]},
            self.with_uncertainty({**common, "choices": [last]}, document),
        ]
        sent += [{**common, "choices": [], "usage": payload["usage"]}] if payload.get("usage") else []
        return b"".join([*map(event_of, sent), DONE])

    def _choice(self, text: str, finish_reason: str, index: int = 0) -> dict[str, Any]:
        chat = {"message": {"role": "assistant", "content": text}}
        content = chat if self.samples_api == "chat" else {"text": text}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _ABOUT if name in payload}
