"""What an LLM server's refusal means: from status and body to an error of the domain. Pure functions."""

import json
import re
from collections.abc import Sequence
from typing import Any

from service.domain.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable, ModelNotFound

RETRIED = frozenset({429, 502, 503, 504})
MAX_MESSAGE = 300
_ENGINE_DEAD = re.compile(
    r"engine\w*\W.*(encountered an issue|dead|died|not running)|EngineDead", re.IGNORECASE
)
_ECHO_WINDOW = 24  # leading characters of a prompt that betray a cut-off echo of it
_OPTIONAL = ("top_k", "priority", "stream_options")
_REFUSED_N = re.compile(r"(?<!\w)n(?!\w)")


def error_message(body: bytes) -> str:
    """Return what the server said: `{"error": {"message"}}`, `{"error": text}`, `{"message"}` or text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)
    except ValueError:
        return text
    for key in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def redact(message: str, secrets: Sequence[str]) -> str:
    """Return the message with every echo of the caller's texts replaced, at most 300 characters long."""
    for secret in sorted({form for text in secrets for form in _forms(text)}, key=len, reverse=True):
        # A short text counts as an echo only as a word of its own.
        pattern = re.escape(secret) if len(secret) > 8 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        message = re.sub(pattern, "[prompt]", message)
        if len(secret) > _ECHO_WINDOW and secret[:_ECHO_WINDOW] in message:
            message = message[: message.index(secret[:_ECHO_WINDOW])] + "[prompt]"
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _forms(text: str) -> set[str]:
    plain = text.strip()
    forms = {plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    return forms - {""}


def error_of(
    status: int, body: bytes, secrets: Sequence[str], *, retry_after_s: float | None = None
) -> EigencalError:
    """Return the domain's error for an answer of status 400 or more."""
    said = redact(error_message(body), secrets)
    if status in RETRIED:
        return LLMUnavailable("The LLM server refuses work for now.", retry_after_s=retry_after_s)
    if status == 500 and _ENGINE_DEAD.search(said):
        return LLMUnavailable("The LLM server's engine has stopped.", retry_after_s=retry_after_s)
    if status == 404 and "model" in said.lower():
        return ModelNotFound("The LLM server does not serve this model.")
    return LLMError(f"The LLM server answered with status {status}.", llm_status=status, llm_message=said)


def error_in_stream(payload: dict[str, Any], secrets: Sequence[str]) -> EigencalError:
    """Return the domain's error for an error told inside a stream, which has no status of its own."""
    told = payload["error"]
    code = told.get("code") if isinstance(told, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return error_of(status, json.dumps(payload).encode(), secrets)


def refused_parameter(error: EigencalError, body: dict[str, Any]) -> str | None:
    """Return the name of the optional parameter that the server refused, or None.

    Only what may be left out without changing what was asked for: `n` (asked one by one instead), `top_k`
    while it is 0, `priority` and `stream_options`.
    """
    said = error.extra.get("llm_message") or ""
    if not isinstance(error, LLMError) or error.extra.get("llm_status") not in (400, 422):
        return None
    for name in _OPTIONAL:
        if name in said and name in body and not (name == "top_k" and body["top_k"]):
            return name
    return "n" if body.get("n", 1) > 1 and _REFUSED_N.search(said) else None


def bad_json() -> LLMBadResponse:
    """Return the error for an answer that is no JSON."""
    return LLMBadResponse("The LLM server's answer is no JSON.")
