"""What each Python client prints, so that the answers of two servers can be compared field by field."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

CASES = json.loads((Path(__file__).parents[1] / "cases.json").read_text(encoding="utf-8"))
BASE_URL, KEY, MODEL = sys.argv[1:4]
ONLY = sys.argv[4:]  # kinds of requests; none given: all, and what is around them
ASK: dict[str, Any] = {"model": MODEL, "messages": CASES["messages"], **CASES["sampling"]}
TOOLS = {"tools": CASES["tools"], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
JSON_MODE = {"response_format": {"type": "json_schema", "json_schema": CASES["schema"]}}
# What a request of each kind adds; every client asks all of them, in one piece and streamed.
ALL: dict[str, dict[str, Any]] = {"text": {}, "tools": TOOLS, "json": JSON_MODE}
FUNCTION = CASES["tools"][0]["function"]
RESPONSE_KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "tools": {
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "weather"},
    },
    "json": {"text": {"format": {"type": "json_schema", **CASES["schema"]}}},
}
USAGE = {"stream_options": {"include_usage": True}}


def selected(kinds: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the kinds of requests that were asked for."""
    return {kind: more for kind, more in kinds.items() if kind in (ONLY or kinds)}


KINDS = selected(ALL)


def conversations(*ways: Callable[[list[Any]], tuple[Any, ...]]) -> dict[str, Any]:
    """Return the answers of two turns by every way of asking, where they are among what is run.

    A way takes the conversation so far, and returns the answer's text and the client's own form of its turns.
    """
    if ONLY and "turns" not in ONLY:
        return {}
    return {f"{way.__name__}-turns": {"texts": _conversation(way)} for way in ways}


def _conversation(way: Callable[[list[Any]], tuple[Any, ...]]) -> list[str | None]:
    history: list[Any] = []
    texts = []
    for question in CASES["turns"]:
        history.append({"role": "user", "content": question})
        text, *turns = way(history)
        texts.append(text)
        history.extend(turns)
    return texts


def tell(results: Mapping[str, Any]) -> None:
    """Print the results of all cases."""
    sys.stdout.reconfigure(encoding="utf-8")
    print(json.dumps(results, ensure_ascii=False))


def ours(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the id of the score, also where LiteLLM passes it on under a prefix."""
    score_id = headers.get("x-score-id") or headers.get("llm_provider-x-score-id")
    return {"x-score-id": score_id} if score_id else {}


def counts(usage: Any) -> list[int] | None:
    return None if usage is None else [usage.prompt_tokens, usage.completion_tokens]


def extra(thing: Any) -> Any:
    """Return the uncertainty among the fields that the client's model does not know."""
    return (thing.model_extra or {}).get("uncertainty")


def of_completion(completion: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return what an openai completion in one piece tells."""
    choice = completion.choices[0]
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or []]
    return {
        "text": choice.message.content,
        "calls": calls,
        "finish": choice.finish_reason,
        "usage": counts(completion.usage),
        "ways": {"body": extra(completion), "headers": ours(headers)},
    }


def of_chunks(chunks: Iterable[Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return what a stream of openai chunks tells, put together as any reader would."""
    text, calls, finish, usage = "", {}, None, None
    body, delta = [], []
    for chunk in chunks:
        body.append(extra(chunk))
        usage = counts(chunk.usage) or usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        delta.append(extra(choice.delta))
        text += choice.delta.content or ""
        for part in choice.delta.tool_calls or []:
            call = calls.setdefault(part.index, ["", ""])
            call[0] += part.function.name or ""
            call[1] += part.function.arguments or ""
    return {
        "text": text or None,
        "calls": list(calls.values()),
        "finish": finish,
        "usage": usage,
        "ways": {"body": once(body), "delta": once(delta), "headers": ours(headers)},
    }


def once(found: Iterable[Any]) -> Any:
    """Return the only one that is there: told twice, a client that adds up would be wrong."""
    there = [one for one in found if one is not None]
    if len(there) > 1:
        raise ValueError(f"told {len(there)} times")
    return there[0] if there else None
