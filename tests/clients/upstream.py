"""An LLM server that answers as real ones do: text, tool calls, JSON, streams, usage, log-probabilities.

The answers depend on the request alone: `temperature` 0 gives the answer of a greedy server, other values
give answers in turn. The server also embeds, so that a service needs no other server.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.support.openai_server import MODEL, Behaviour, Exchange, OpenAIServer
from tests.support.responses import events, response, wire
from tests.support.responses import message as output_message
from tests.support.services import vector

# Characters of several bytes, quotes, a line end and an escape: a broken pass-through mangles these first.
GREEDY = 'Straße 北京: "naïve"\\n is no line end,\nthis is one 🦉.'
DRAWN = ("Berlin", "Bonn", "Berlin", "Potsdam")
ARGUMENTS = json.dumps({"city": "Zürich", "days": 3}, ensure_ascii=False)
JSON_TEXT = json.dumps({"city": "Köln", "sure": True}, ensure_ascii=False)
DRAWN_JSON = (JSON_TEXT, json.dumps({"city": "Bonn", "sure": False}))
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
IDS = {"id": "chatcmpl-1", "created": 1_790_000_000, "model": MODEL, "system_fingerprint": "fp_1"}
PROMPT_TOKENS, PIECE = 21, 7


Says = Callable[[dict[str, Any]], list[str | None]]  # a request's choices; None: a tool call


def texts(body: dict[str, Any]) -> list[str | None]:
    """Return the texts of the choices, by the request alone."""
    count, greedy = int(body.get("n") or 1), body.get("temperature") == 0
    if body.get("tools"):
        return [None] * count
    if body.get("response_format", {}).get("type") in ("json_object", "json_schema"):
        known: tuple[str, ...] = (JSON_TEXT,) if greedy else DRAWN_JSON
    else:
        known = (GREEDY,) if greedy else DRAWN
    return [known[i % len(known)] for i in range(count)]


def pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def usage(said: list[str | None]) -> dict[str, int]:
    drawn = sum(len(pieces(ARGUMENTS if text is None else text)) for text in said)
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": drawn, "total_tokens": PROMPT_TOKENS + drawn}


def logprobs(tokens: list[str]) -> dict[str, Any]:
    content = [{"token": t, "logprob": -0.25, "bytes": list(t.encode()), "top_logprobs": []} for t in tokens]
    return {"content": content}


def chat(body: dict[str, Any], said: list[str | None]) -> dict[str, Any]:
    """Return the answer of the chat API in one piece."""
    choices = [
        {
            "index": i,
            "message": message(text),
            "logprobs": logprobs(pieces(text)) if body.get("logprobs") and text is not None else None,
            "finish_reason": "tool_calls" if text is None else "stop",
            "stop_reason": None,
        }
        for i, text in enumerate(said)
    ]
    return {**IDS, "object": "chat.completion", "choices": choices, "usage": usage(said)}


def message(text: str | None) -> dict[str, Any]:
    if text is None:
        return {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return {"role": "assistant", "content": text, "refusal": None, "reasoning_content": None}


def deltas(text: str | None) -> list[dict[str, Any]]:
    """Return the pieces of a choice, as the chat API streams them."""
    first: dict[str, Any] = {"role": "assistant", "content": ""}
    if text is not None:
        return [first, *({"content": piece} for piece in pieces(text))]
    named = {"index": 0, **CALL, "function": {"name": "weather", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in pieces(ARGUMENTS)]
    return [first, *({"tool_calls": [one]} for one in (named, *rest))]


async def stream_chat(exchange: Exchange, said: list[str | None]) -> None:
    body = exchange.body
    await exchange.start_stream()

    async def chunk(choices: list[dict[str, Any]], **more: Any) -> None:
        await exchange.event({**IDS, "object": "chat.completion.chunk", "choices": choices, **more})

    for i, text in enumerate(said):
        for delta in deltas(text):
            told = logprobs([delta["content"]]) if body.get("logprobs") and delta.get("content") else None
            await chunk([{"index": i, "delta": delta, "logprobs": told, "finish_reason": None}])
        finish = "tool_calls" if text is None else "stop"
        last = {} if text is None else {"content": ""}  # as vLLM does
        await chunk([{"index": i, "delta": last, "logprobs": None, "finish_reason": finish}])
    if (body.get("stream_options") or {}).get("include_usage"):
        await chunk([], usage=usage(said))
    await exchange.event("[DONE]")
    exchange.writer.close()


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a chat on which the answer depends, from a call of the Responses API."""
    turns = body["input"]
    content = turns if isinstance(turns, str) else turns[-1]["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    response_format = (body.get("text") or {}).get("format") or {}
    return {**body, "messages": [{"content": text}], "response_format": response_format}


async def answer_response(exchange: Exchange, text: str | None) -> None:
    """Answer a call of the Responses API, streamed or not."""
    if text is None:
        item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"}
        item |= {"name": "weather", "arguments": ARGUMENTS}
    else:
        item = output_message(text)
    counts = usage([text])
    tokens = {"input_tokens": counts["prompt_tokens"], "output_tokens": counts["completion_tokens"]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    more = {"usage": {**tokens, "total_tokens": counts["total_tokens"], **details}}
    if not exchange.body.get("stream"):
        await exchange.send(200, response(item, **more))
        return
    await exchange.start_stream()
    for event in events(item, **more):
        exchange.writer.write(wire(event))
        await exchange.writer.drain()
    exchange.writer.close()


def answering(says: Says) -> Behaviour:
    """Answer any request of the API that the clients and the service make."""

    async def answer(exchange: Exchange) -> None:
        body = exchange.body
        if exchange.path.endswith("/embeddings"):
            data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
            await exchange.send(200, {"data": data, "model": "scripted-embedder"})
        elif body.get("model", MODEL) != MODEL:
            said = {"message": "The model `other` does not exist.", "type": "NotFoundError", "param": "model"}
            await exchange.send(404, {"error": {**said, "code": 404}})
        elif exchange.path.endswith("/responses"):
            await answer_response(exchange, says(as_chat(body))[0])
        elif body.get("stream"):
            await stream_chat(exchange, says(body))
        else:
            await exchange.send(200, chat(body, says(body)))

    return answer


def upstream(says: Says = texts) -> OpenAIServer:
    return OpenAIServer(default=answering(says))
