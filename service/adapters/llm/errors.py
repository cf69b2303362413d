"""What an LLM server's refusal means: from status and body to an error of the domain. Pure functions."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from service.adapters.http_clients import TRY_AGAIN
from service.adapters.llm.prompting import whole_text
from service.adapters.llm.redaction import redact
from service.domain.errors import EigencalError, LLMBadResponse, LLMError, LLMUnavailable, ModelNotFound

MAX_MESSAGE = 300
LONGEST_RETRY_AFTER_S = 60.0  # a server may ask for more, but may be well again long before
READ_BYTES = 256 * 1024  # of a refusal's body
# vLLM answers so to every call once its engine has died, until it is restarted: no fault of the prompt.
_ENGINE_DEAD = re.compile(
    r"engine\w*\W.*(encountered an issue|dead|died|not running)|EngineDead", re.IGNORECASE
)
# Beside n: a call may do without them (without top_k the server takes its own: the fingerprint tells).
OPTIONAL = frozenset({"top_k", "priority", "stream_options", "logprobs"})
_REFUSING = frozenset({400, 422})
# Some services forbid log-probabilities for some models (403), and some servers fail on them (500, 501).
_REFUSING_LOGPROBS = _REFUSING | {403, 500, 501}
_REFUSED_N = re.compile(r"(?<!\w)n(?!\w)")  # the letter as a word of its own


def error_message(body: bytes) -> str:
    """Return what the server said: `{"error": {"message"}}`, `{"error": text}`, `{"message"}` or text."""
    text = body[:READ_BYTES].decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def told(message: str, secrets: Sequence[str]) -> str:
    """Return the message without the caller's texts, at most 300 characters long."""
    shown = whole_text(redact(message, secrets))
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 1] + "…"


def error_of(
    status: int, body: bytes, secrets: Sequence[str], *, retry_after_s: float | None = None
) -> EigencalError:
    """Return the domain's error for an answer of status 400 or more."""
    retry_after_s = _bounded(retry_after_s)
    said = told(error_message(body), secrets)
    if status in TRY_AGAIN:
        return LLMUnavailable("The LLM server refuses work for now.", retry_after_s=retry_after_s)
    if status == 500 and _ENGINE_DEAD.search(said):
        return LLMUnavailable("The LLM server's engine has stopped.", retry_after_s=retry_after_s)
    if status == 404 and "model" in said.lower():
        return ModelNotFound("The LLM server does not serve this model.")
    return LLMError(f"The LLM server answered with status {status}.", llm_status=status, llm_message=said)


def _bounded(retry_after_s: float | None) -> float | None:
    if retry_after_s is None or not math.isfinite(retry_after_s):
        return None
    return min(max(retry_after_s, 0.0), LONGEST_RETRY_AFTER_S)


def error_in_stream(payload: dict[str, Any], secrets: Sequence[str]) -> EigencalError:
    """Return the domain's error for an error told inside a stream, which has no status of its own."""
    told = payload["error"]
    code = told.get("code") if isinstance(told, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return error_of(status, json.dumps(payload).encode(), secrets)


def refused_parameter(error: EigencalError, body: dict[str, Any]) -> str | None:
    """Return the name of the optional parameter that the server refused, or None.

    Only what may be left out without changing what was asked for: `n` (asked one by one instead), `top_k`
    while it is 0, `priority`, `stream_options` and `logprobs`.
    """
    said, status = error.extra.get("llm_message") or "", error.extra.get("llm_status")
    if not isinstance(error, LLMError) or status not in _REFUSING_LOGPROBS:
        return None
    if "logprobs" in said.lower() and "logprobs" in body:
        return "logprobs"
    if status not in _REFUSING:
        return None
    for name in OPTIONAL:
        if name in said and name in body and not (name == "top_k" and body["top_k"]):
            return name
    return "n" if body.get("n", 1) > 1 and _REFUSED_N.search(said) else None


def bad_json() -> LLMBadResponse:
    """Return the error for an answer that is no JSON."""
    return LLMBadResponse("The LLM server's answer is no JSON.")
