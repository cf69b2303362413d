"""An answer that is not streamed: passed on with its score, or replaced by one that abstains."""

import json
from collections.abc import Mapping
from typing import Any

from service.proxy.chat_score import OwnAnswer, Uncertainty
from service.proxy.prompt import Api, Unscorable
from service.proxy.stream import Events, chunk_with_uncertainty, document_of, encoded, event_of
from service.scoring.judging import why_no_probability


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


# What goes out of an answer under the operator's policy: what was judged, and nothing beside it.
#
# Callers write the prompt: they may have the answer told in a thought, or beside a tool call, before a text
# that is sure to be let through.

# Of a message without an answer, what goes on.
_KEPT = frozenset({"role", "tool_calls", "function_call", "refusal"})
_OF_A_CHUNK = _KEPT | {"uncertainty"}


def let_through(content: bytes, payload: Mapping[str, Any], found: Uncertainty, judged: str | None) -> bytes:
    """Return the answer: as it is where all it says was judged, else with `judged` alone.

    judged: None for a tool call or a refusal, of which nothing that it says beside goes on.
    """
    choice = payload["choices"][0]
    if _says_only(choice, judged):
        return with_uncertainty(content, found)
    message = choice.get("message")
    if isinstance(message, dict):
        kept = {name: value for name, value in message.items() if name in _KEPT}
        said: dict[str, Any] = {"message": {**kept, "content": judged}}
    else:
        said = {"text": judged or ""}
    only = {"index": 0, **said, "logprobs": None, "finish_reason": choice.get("finish_reason")}
    return with_uncertainty(encoded(about(payload) | {"choices": [only]}), found)


def let_through_stream(held: bytes, found: Uncertainty, judged: str | None, api: Api) -> bytes:
    """Return a stream that was held until its end, as `let_through` does."""
    reader, own = Events(), OwnAnswer()
    events = reader.feed(held)
    for event in events:
        own.take(event.chunk() or {})
    try:
        choice = own.choice()
    except Unscorable:
        choice = {}
    understood = all(event.is_last or event.chunk() or event.raw.startswith(b":") for event in events)
    if understood and not reader.rest().strip() and _says_only(choice, judged):
        return held
    if judged is not None:
        return replaced_stream(held, found, judged, api, str(choice.get("finish_reason") or "stop"))
    chunks = [chunk for event in events if (chunk := event.chunk())]
    return b"".join([*(event_of(_silent_chunk(chunk)) for chunk in chunks), b"data: [DONE]\n\n"])


def _says_only(choice: Mapping[str, Any], judged: str | None) -> bool:
    """Tell whether a choice holds the text judged, and no other."""
    message = choice.get("message")
    if isinstance(message, dict):
        beside = {name for name, value in message.items() if value} - _OF_A_CHUNK - {"content"}
        text = message.get("content")
        beside |= {"text"} if choice.get("text") else set()
    else:
        beside, text = set(), choice.get("text")
    return not beside and (text.strip() if isinstance(text, str) else text or "") == (judged or "")


def _silent_chunk(chunk: Mapping[str, Any]) -> dict[str, Any]:
    choices = chunk.get("choices")
    told = [_silent(one) for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    own = {"uncertainty": chunk["uncertainty"]} if "uncertainty" in chunk else {}
    return about(chunk) | {"choices": told} | own


def _silent(choice: Mapping[str, Any]) -> dict[str, Any]:
    delta = choice.get("delta")
    kept = {name: choice[name] for name in ("index", "finish_reason") if name in choice}
    if not isinstance(delta, dict):
        return {**kept, "text": ""}
    return {**kept, "delta": {name: value for name, value in delta.items() if name in _OF_A_CHUNK}}
