"""Answers withheld by their decision, and what goes out in their stead.

Under the operator's policy only what was judged goes out: callers write the prompt, and may have the answer
told in a thought, or beside a tool call, before a text that is sure to be let through.
"""

from collections.abc import Mapping
from typing import Any

from service.llm.port import Api
from service.proxy.chat_score import Uncertainty, choices_of, first_choice, has_others
from service.proxy.stream import DONE, Event, StreamRewriter, event_of, with_uncertainty

# Members of an answer that tell nothing of what it says.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without an answer that go on.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})


def is_abstained(uncertainty: Uncertainty) -> bool:
    """Tell whether the decision on the answer is to abstain."""
    decision = uncertainty.score.decision if uncertainty.score else None
    return decision is not None and decision.action == "abstain"


def is_judged(uncertainty: Uncertainty) -> bool:
    """Tell whether a decision was made by the calibration's model; or there is no answer to be wrong.

    A tool call or a refusal has no answer.
    """
    if uncertainty.warning is not None and uncertainty.warning.code in ("tool_call", "refusal"):
        return True
    score = uncertainty.score
    return score is not None and score.decision is not None and score.no_model is None


def abstaining(payload: Mapping[str, Any], text: str, api: Api) -> dict[str, Any]:
    """Return the answer with `text` in place of each choice: further ones were not judged."""
    number = len(choices_of(payload)) or 1
    content = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    stand_in = {**content, "logprobs": None, "finish_reason": "stop"}
    return _about(payload) | {"choices": [{"index": index, **stand_in} for index in range(number)]}


def let_through(payload: dict[str, Any], judged: str | None) -> dict[str, Any]:
    """Return the answer with no text but `judged`: log-probabilities, too, would tell what was thought.

    judged: None for a tool call or a refusal, of which no text beside goes on.
    """
    choice = first_choice(payload)
    message = choice.get("message")
    if isinstance(message, dict):
        names = _KEPT if judged is None else {"role"}
        kept = {name: value for name, value in message.items() if name in names}
        content: dict[str, Any] = {"message": {**kept, "content": judged}}
    else:
        content = {"text": judged or ""}
    only = {"index": 0, **content, "logprobs": None, "finish_reason": choice.get("finish_reason")}
    return _about(payload) | {"choices": [only]}


class HeldAnswer(StreamRewriter):
    """A stream that is held until its end, and what of it goes on in any case; `has_others`: further choices.

    `only_judged`: of what it says nothing goes on, tool calls and refusals alone.
    """

    def __init__(self, *, only_judged: bool, hides_logprobs: bool) -> None:
        super().__init__(hides_logprobs=hides_logprobs)
        self.has_others = False
        self.about: dict[str, Any] = {}
        self.usage: Any = None
        self._only_judged = only_judged

    def _quiet(self, chunk: dict[str, Any]) -> dict[str, Any]:
        self.has_others = self.has_others or has_others(chunk)
        self.about = self.about or _about(chunk)
        self.usage = chunk.get("usage") or self.usage
        return _textless(chunk) if self._only_judged else super()._quiet(chunk)

    def _going_on(self, event: Event, chunk: dict[str, Any] | None) -> bytes:
        if chunk is None and self._only_judged:  # what is no chunk may say anything, too
            return DONE if event.is_last else b""
        return super()._going_on(event, chunk)


def replaced_stream(
    held: HeldAnswer, uncertainty: Uncertainty, text: str, api: Api, finish_reason: str = "stop"
) -> bytes:
    """Return a stream whose text is `text`, in place of a complete one."""
    common = {name: value for name, value in held.about.items() if name != "usage"}
    begun: dict[str, Any] = {"delta": {"role": "assistant", "content": text}}
    ended: dict[str, Any] = {"delta": {}}
    if api == "completions":
        begun, ended = {"text": text}, {"text": ""}
    first = {**common, "choices": [{"index": 0, **begun, "logprobs": None, "finish_reason": None}]}
    last = {**common, "choices": [{"index": 0, **ended, "logprobs": None, "finish_reason": finish_reason}]}
    sent = [first, with_uncertainty(last, uncertainty.document())]
    sent += [{**common, "choices": [], "usage": held.usage}] if held.usage else []
    return b"".join([*map(event_of, sent), DONE])


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _ABOUT if name in payload}


def _textless(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with the members of a message that go on without an answer."""
    kept = []
    for choice in choices_of(chunk):
        if isinstance(choice, dict):
            delta = choice.get("delta")
            ends = {name: choice[name] for name in ("index", "finish_reason") if name in choice}
            if isinstance(delta, dict):
                kept.append({**ends, "delta": {name: delta[name] for name in delta if name in _KEPT}})
            else:
                kept.append({**ends, "text": ""})
    return _about(chunk) | {"choices": kept}
