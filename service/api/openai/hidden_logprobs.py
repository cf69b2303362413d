"""Log-probabilities that the score needs and the caller did not ask for: asked for, and taken out again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.domain.chat.prompt import Api
from service.domain.chat.upstream import Call, Reply, Upstream

# Statuses by which servers refuse a parameter, or fail on one: then the call goes as its caller wrote it.
REFUSING = frozenset({400, 403, 422, 500, 501})
# A flag there; here a number of alternatives, of which some servers take 0 for none at all.
ASKED: dict[Api, bytes] = {"chat": b"true", "completions": b"1"}


async def open_with_logprobs(upstream: Upstream, call: Call, api: Api) -> tuple[Reply, bool]:
    """Return the answer to a call that asks for log-probabilities besides, and whether it does.

    What the server refuses is asked again without: nobody is to lose an answer by what we add. Raises as
    `Upstream.open`.
    """
    reply = await upstream.open(replace(call, body=_asking(call.body or b"", api)))
    if reply.status not in REFUSING:
        return reply, True
    await reply.close()
    return await upstream.open(call), False


def without_logprobs(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer, or a chunk of one, as it would be without log-probabilities."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return dict(payload)
    return {**payload, "choices": [_silent(choice) for choice in choices]}


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return it as JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def _silent(choice: object) -> object:
    return {**choice, "logprobs": None} if isinstance(choice, dict) and "logprobs" in choice else choice


def _asking(body: bytes, api: Api) -> bytes:
    # Not encoded anew: all else stays as its caller wrote it.
    return body.rstrip()[:-1] + b',"logprobs":' + ASKED[api] + b"}"
