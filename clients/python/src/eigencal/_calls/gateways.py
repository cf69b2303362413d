"""Calls of gateways, and of the drop-in."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from eigencal._calls.call import Call, header, reader, without_none
from eigencal._calls.repeat import Repeat
from eigencal._models.chat import ChatCompletion, Model, TextCompletion
from eigencal._models.gateways import GuardrailVerdict, Verified
from eigencal._models.result import Result

_VERIFIED = reader(Verified)
_VERDICT = reader(GuardrailVerdict)
_CHAT = reader(ChatCompletion)
_TEXT = reader(TextCompletion)


class _Models(Result):
    data: tuple[Model, ...] = ()


_MODELS = reader(_Models)


def verify(question: str, answer: str, threshold: float, context: str | None) -> Call[Verified]:
    """POST /verify."""
    body = {"question": question, "answer": answer, "threshold": threshold, "context": context}
    return Call("POST", "/verify", _VERIFIED, without_none(body))


def guardrail(input_type: str, fields: Mapping[str, Any]) -> Call[GuardrailVerdict]:
    """POST /beta/litellm_basic_guardrail_api."""
    body = {"input_type": input_type, **without_none(fields)}
    return Call("POST", "/beta/litellm_basic_guardrail_api", _VERDICT, body, repeat=Repeat.UNSEEN)


def models() -> Call[tuple[Model, ...]]:
    """GET /v1/models."""

    def read(response: httpx.Response) -> tuple[Model, ...]:
        return _MODELS(response).data

    return Call("GET", "/v1/models", read)


def chat(
    messages: Sequence[Mapping[str, Any]],
    eigencal: Mapping[str, Any] | None,
    mode: str | None,
    fields: Mapping[str, Any],
) -> Call[ChatCompletion]:
    """POST /v1/chat/completions."""
    body = {"messages": list(messages), **fields, "eigencal": eigencal}
    return _drop_in("/v1/chat/completions", _CHAT, body, mode)


def complete(
    prompt: str, eigencal: Mapping[str, Any] | None, mode: str | None, fields: Mapping[str, Any]
) -> Call[TextCompletion]:
    """POST /v1/completions."""
    return _drop_in("/v1/completions", _TEXT, {"prompt": prompt, **fields, "eigencal": eigencal}, mode)


def _drop_in(where: str, read: Any, body: Mapping[str, Any], mode: str | None) -> Call[Any]:
    headers = {} if mode is None else header("X-Eigencal", mode)
    # The LLM server's own call: what it may have begun is not begun twice.
    return Call("POST", where, read, without_none(body), headers=headers, repeat=Repeat.UNSEEN)
