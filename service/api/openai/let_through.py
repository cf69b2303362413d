"""What goes out of an answer under the operator's policy: what was judged, and nothing beside it.

Callers write the prompt: they may have the answer told in a thought, or beside a tool call, before a text
that is sure to be let through.
"""

from collections.abc import Mapping
from typing import Any

from service.api.openai.answers import about, replaced_stream, with_uncertainty
from service.api.openai.hidden_logprobs import encoded
from service.api.openai.sse import Events, event_of
from service.domain.chat.own_answer import OwnAnswer
from service.domain.chat.prompt import Api, Unscorable
from service.domain.chat.uncertainty import Uncertainty

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
