"""The caller's own answer, taken together from a whole reply or from the chunks of a stream."""

from collections.abc import Mapping
from typing import Any

from service.domain.chat.prompt import Unscorable

# Of a stream's delta: texts that come in pieces. Others are only noted to be there.
_TEXT = "content"
_CALLS = ("tool_calls", "function_call")
_GIVEN_UP = frozenset({"abort", "error"})


class OwnAnswer:
    """The first choice of an answer, put together from chunks as they come; nonsense is passed over."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.model = ""
        self._texts: list[str] = []
        self._logprobs: dict[str, list[Any]] = {}
        self._beside: dict[str, Any] = {}
        self._chat = False
        self._begun = False

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Take a chunk; tell whether the first choice is finished by it."""
        if isinstance(chunk.get("model"), str):
            self.model = self.model or chunk["model"]
        choices = chunk.get("choices")
        mine = [choice for choice in choices if _is_first(choice)] if isinstance(choices, list) else []
        for choice in mine:
            self._take(choice)
        return any(isinstance(choice.get("finish_reason"), str) for choice in mine)

    @property
    def has_said(self) -> bool:
        """Tell whether anything was drawn yet: servers send the role before the first token."""
        return any(self._texts) or bool(self._beside.keys() - {"role"})

    def choice(self) -> dict[str, Any]:
        """Return the choice as an answer that is not streamed would hold it; raises Unscorable for none."""
        if not self._begun:
            raise Unscorable("no_answer", "The answer holds no choice.")
        text = "".join(self._texts)
        said = {"message": {**self._beside, _TEXT: text}} if self._chat else {"text": text}
        return {"finish_reason": self.finish_reason, "logprobs": self._logprobs or None, **said}

    def _take(self, choice: Mapping[str, Any]) -> None:
        self._begun = True
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._chat = True
            # A role is no text; all else of value says that something was drawn beside the text.
            self._beside |= {name: value for name, value in delta.items() if value and name != _TEXT}
        piece = delta.get(_TEXT) if isinstance(delta, dict) else choice.get("text")
        if isinstance(piece, str):
            self._texts.append(piece)
        self._take_logprobs(choice.get("logprobs"), told=bool(piece))
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]

    def _take_logprobs(self, logprobs: object, *, told: bool) -> None:
        found = logprobs if isinstance(logprobs, dict) else {}
        lists = {
            name: values
            for name in ("content", "token_logprobs")
            if isinstance(values := found.get(name), list)
        }
        for name, values in lists.items():
            self._logprobs.setdefault(name, []).extend(values)
        if told and not any(lists.values()):
            # Text whose tokens have none: a sum without them would be too high. None stands for one.
            self._logprobs.setdefault("content" if self._chat else "token_logprobs", []).append(None)


def first_choice(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice of an answer that was not streamed; raises Unscorable for none."""
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Unscorable("no_answer", "The answer holds no choice.")
    found: dict[str, Any] = choices[0]
    return found


def refuse_textless(choice: Mapping[str, Any]) -> None:
    """Raise Unscorable for a choice that holds no text of the model's to judge; an empty one may be such."""
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    if any(message.get(name) for name in _CALLS):
        raise Unscorable("tool_call", "The answer calls a tool: it has no text to judge.")
    if message.get("refusal") and not message.get(_TEXT):
        raise Unscorable("refusal", "The model refused to answer: there is no answer to judge.")
    if message.get("audio") and not message.get(_TEXT):
        raise Unscorable("no_text", "The answer is no text.")
    ended = choice.get("finish_reason")
    if isinstance(ended, str) and ended in _GIVEN_UP:
        raise Unscorable("given_up", "The LLM server gave the answer up.")


def _is_first(choice: object) -> bool:
    return isinstance(choice, dict) and not choice.get("index")  # left out by servers that give one choice
