"""Answers withheld by their decision, and what goes out in their stead.

Under the operator's policy only what was judged goes out: callers write the prompt, and may have the answer
told in a thought, or beside a tool call, before a text that is sure to be let through.
"""

from collections.abc import Mapping
from typing import Any

from service.llm.port import Api
from service.proxy.chat_score import Uncertainty
from service.proxy.stream import AnswerReader, EventReader, encoded, event_of, with_uncertainty

# Members of an answer that tell nothing of what it says.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")
# Members of a message without an answer that go on.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})
_KEPT_IN_CHUNKS = _KEPT | {"uncertainty"}


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


def has_others(payload: Mapping[str, Any]) -> bool:
    """Tell whether an answer, or a chunk of one, holds further choices than the first, which is judged."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return False
    return len(choices) > 1 or any(isinstance(one, dict) and one.get("index") for one in choices)


def abstaining(payload: Mapping[str, Any], text: str, api: Api) -> dict[str, Any]:
    """Return the answer with `text` in place of each choice: further ones were not judged."""
    choices = payload.get("choices")
    number = len(choices) if isinstance(choices, list) and choices else 1
    content = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    stand_in = {**content, "logprobs": None, "finish_reason": "stop"}
    return _about(payload) | {"choices": [{"index": index, **stand_in} for index in range(number)]}


def let_through(payload: dict[str, Any], judged: str | None) -> dict[str, Any]:
    """Return the answer with no text but `judged`: log-probabilities, too, would tell what was thought.

    judged: None for a tool call or a refusal, of which no text beside goes on.
    """
    choice = payload["choices"][0]
    message = choice.get("message")
    if isinstance(message, dict):
        names = _KEPT if judged is None else {"role"}
        kept = {name: value for name, value in message.items() if name in names}
        content: dict[str, Any] = {"message": {**kept, "content": judged}}
    else:
        content = {"text": judged or ""}
    only = {"index": 0, **content, "logprobs": None, "finish_reason": choice.get("finish_reason")}
    return _about(payload) | {"choices": [only]}


def replaced_stream(
    held: bytes, uncertainty: Uncertainty, text: str, api: Api, finish_reason: str = "stop"
) -> bytes:
    """Return a stream whose text is `text`, in place of a complete one."""
    chunks = [chunk for event in EventReader().feed(held) if (chunk := event.chunk())]
    common = _about(next(iter(chunks), {}))
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    common.pop("usage", None)
    begun: dict[str, Any] = {"delta": {"role": "assistant", "content": text}}
    ended: dict[str, Any] = {"delta": {}}
    if api == "completions":
        begun, ended = {"text": text}, {"text": ""}
    first = {**common, "choices": [{"index": 0, **begun, "logprobs": None, "finish_reason": None}]}
    last = {**common, "choices": [{"index": 0, **ended, "logprobs": None, "finish_reason": finish_reason}]}
    sent = [first, with_uncertainty(last, uncertainty.document())]
    sent += [{**common, "choices": [], "usage": usage[-1]}] if usage else []
    return b"".join([*map(event_of, sent), b"data: [DONE]\n\n"])


def let_through_stream(held: bytes, uncertainty: Uncertainty, judged: str | None, api: Api) -> bytes:
    """Return a stream that was held until its end, as `let_through` does."""
    chunks = [chunk for event in EventReader().feed(held) if (chunk := event.chunk())]
    if judged is None:
        return b"".join([*(event_of(_textless(chunk)) for chunk in chunks), b"data: [DONE]\n\n"])
    answer = AnswerReader()
    for chunk in chunks:
        answer.take(chunk)
    return replaced_stream(held, uncertainty, judged, api, answer.finish_reason or "stop")


def with_score(payload: Mapping[str, Any], uncertainty: Uncertainty) -> bytes:
    """Return an answer as JSON, with the score beside it."""
    return encoded({**payload, "uncertainty": uncertainty.document()})


def _about(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _ABOUT if name in payload}


def _textless(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk with the members of a message that go on without an answer."""
    choices = chunk.get("choices")
    kept = []
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict):
            delta = choice.get("delta")
            ends = {name: choice[name] for name in ("index", "finish_reason") if name in choice}
            if isinstance(delta, dict):
                delta = {name: value for name, value in delta.items() if name in _KEPT_IN_CHUNKS}
                kept.append({**ends, "delta": delta})
            else:
                kept.append({**ends, "text": ""})
    return _about(chunk) | {"choices": kept} | {k: chunk[k] for k in ("uncertainty",) if k in chunk}
