"""An answer that is not streamed: passed on with its score, or replaced by one that abstains."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.api.openai.view import document_of
from service.domain.chat.uncertainty import Uncertainty


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


def abstaining(payload: Mapping[str, Any], found: Uncertainty, text: str) -> tuple[bytes, Uncertainty]:
    """Return the answer with `text` in place of the model's own, which the score now tells as `withheld`.

    No choice is let through: further ones were not judged. What was said beside the text would give it away.
    """
    withheld = replace(found, withheld=_text_of(payload["choices"][0]))
    choices = [_abstained(choice, index, text) for index, choice in enumerate(payload["choices"])]
    content = json.dumps({**payload, "choices": choices}, separators=(",", ":")).encode()
    return with_uncertainty(content, withheld), withheld


def _text_of(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    said = message.get("content") if isinstance(message, dict) else choice.get("text")
    return said if isinstance(said, str) else ""


def _abstained(choice: object, index: int, text: str) -> dict[str, Any]:
    is_chat = isinstance(choice, dict) and "message" in choice
    said = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    return {"index": index, **said, "logprobs": None, "finish_reason": "stop"}
