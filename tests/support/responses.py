"""Answers in the format of OpenAI's Responses API, complete and as events."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.openai_server import MODEL


def message(text: str, index: int = 0, tokens: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": tokens or []}
    head = {"id": f"msg_{index}", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": [part], **more}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": MODEL}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    rest = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return {**head, "output": list(output), "usage": usage, "incomplete_details": None, **rest, **more}


def events(*output: dict[str, Any], end: str = "completed", **more: Any) -> list[dict[str, Any]]:
    """Return the events of a streamed response, as OpenAI sends them."""
    made: list[dict[str, Any]] = [{"type": "response.created", "response": response(status="in_progress")}]
    for index, item in enumerate(output):
        at = {"item_id": item.get("id"), "output_index": index, "content_index": 0}
        begun = {**item, **({"content": []} if "content" in item else {})}
        made.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        for part in item.get("content", ()):
            if part["type"] == "refusal":
                made.append({"type": "response.refusal.delta", **at, "delta": part["refusal"]})
                continue
            made.append({"type": "response.content_part.added", **at, "part": {**part, "text": ""}})
            for piece in filter(None, (part["text"][:2], part["text"][2:])):
                tokens = [token for token in part["logprobs"] if token["token"] == piece]
                made.append({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": tokens})
            text = {"text": part["text"], "logprobs": part["logprobs"]}
            made.append({"type": "response.output_text.done", **at, **text})
            made.append({"type": "response.content_part.done", **at, "part": part})
        if item["type"] == "function_call":
            made.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
        made.append({"type": "response.output_item.done", "output_index": index, "item": item})
    made.append({"type": f"response.{end}", "response": response(*output, **{"status": end, **more})})
    return [{**event, "sequence_number": number} for number, event in enumerate(made)]


def wire(event: Mapping[str, Any], *, typed: bool = True) -> bytes:
    return (f"event: {event['type']}\n" if typed else "").encode() + b"data: %b\n\n" % json.dumps(
        event
    ).encode()
