"""An answer that is not streamed: passed on with its score, or replaced by one that abstains."""

import json
from collections.abc import Mapping
from typing import Any

from service.api.openai.sse import Events, event_of
from service.api.openai.tap import with_uncertainty as chunk_with_uncertainty
from service.api.openai.view import document_of
from service.domain.chat.prompt import Api
from service.domain.chat.uncertainty import Uncertainty
from service.domain.scoring.judging import why_no_probability


def object_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object that an answer is; an empty one where it is none, or is not in UTF-8."""
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def with_uncertainty(content: bytes, found: Uncertainty) -> bytes:
    """Return a JSON object's bytes, as they are, with the score as its last member."""
    body = content.rstrip()
    told = json.dumps(document_of(found), separators=(",", ":")).encode()
    return b'%b,"uncertainty":%b}' % (body[:-1], told)


def is_abstained(found: Uncertainty) -> bool:
    """Tell whether the decision on the answer is to abstain."""
    decision = found.score.judgement.decision if found.score else None
    return decision is not None and decision.action == "abstain"


def is_judged(found: Uncertainty) -> bool:
    """Tell whether a decision was made on what the calibration tells; there is none without its model."""
    score = found.score
    return score is not None and score.judgement.decision is not None and why_no_probability(score) is None


def has_no_answer(found: Uncertainty) -> bool:
    """Tell whether the model called a tool or refused: there is no answer that could be wrong."""
    return found.warning is not None and found.warning.code in ("tool_call", "refusal")


def has_others(payload: Mapping[str, Any]) -> bool:
    """Tell whether an answer, or a chunk of one, holds further choices than the first, which is judged."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return False
    return len(choices) > 1 or any(isinstance(one, dict) and one.get("index") for one in choices)


def abstaining(payload: Mapping[str, Any], found: Uncertainty, text: str, api: Api) -> bytes:
    """Return the answer with `text` in place of each choice.

    No choice is let through: further ones were not judged. What was said beside the text would give it away.
    """
    choices = payload.get("choices")
    number = len(choices) if isinstance(choices, list) and choices else 1
    said = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    stand_in = {**said, "logprobs": None, "finish_reason": "stop"}
    told = about(payload) | {"choices": [{"index": index, **stand_in} for index in range(number)]}
    return with_uncertainty(json.dumps(told, separators=(",", ":")).encode(), found)


def replaced_stream(
    held: bytes, found: Uncertainty, text: str, api: Api, finish_reason: str = "stop"
) -> bytes:
    """Return a stream that says `text`, in place of one that is whole."""
    chunks = [chunk for event in Events().feed(held) if (chunk := event.chunk())]
    common = about(next(iter(chunks), {}))
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    common.pop("usage", None)
    begun: dict[str, Any] = {"delta": {"role": "assistant", "content": text}}
    ended: dict[str, Any] = {"delta": {}}
    if api == "completions":
        begun, ended = {"text": text}, {"text": ""}
    now = {**common, "choices": [{"index": 0, **begun, "logprobs": None, "finish_reason": None}]}
    last = {**common, "choices": [{"index": 0, **ended, "logprobs": None, "finish_reason": finish_reason}]}
    told = [now, chunk_with_uncertainty(last, document_of(found))]
    told += [{**common, "choices": [], "usage": usage[-1]}] if usage else []
    return b"".join([*map(event_of, told), b"data: [DONE]\n\n"])


# Members of an answer that tell nothing of what it says.
_ABOUT = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage")


def about(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return those members of an answer, or of a chunk, that tell nothing of what it says."""
    return {name: payload[name] for name in _ABOUT if name in payload}


def text_of(choice: Mapping[str, Any]) -> str:
    """Return what a choice says."""
    message = choice.get("message")
    said = message.get("content") if isinstance(message, dict) else choice.get("text")
    return said if isinstance(said, str) else ""
