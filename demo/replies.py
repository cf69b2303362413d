"""Answers in the formats of OpenAI's API, whole and as streams of server-sent events."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from demo.calls import ChatCall, CompletionCall, ResponsesCall
from demo.model import Token
from service.ids import new_id

Steps = AsyncIterator[Sequence[Token]]
DONE = b"data: [DONE]\n\n"


def event(payload: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload, separators=(',', ':'))}\n\n".encode()


def token_fields(token: Token) -> dict[str, Any]:
    """Return a token in the format of chats and responses, with its log-probabilities."""
    return {
        **_token_and_bytes(token.token, token.logprob),
        "top_logprobs": [_token_and_bytes(text, value) for text, value in token.alternatives],
    }


def _token_and_bytes(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


class Completion:
    """The answers to a chat or a completion."""

    def __init__(self, call: CompletionCall, model: str, num_prompt_tokens: int) -> None:
        self._is_chat = isinstance(call, ChatCall)
        self._with_logprobs = call.num_alternatives is not None
        self._with_usage = bool(call.stream_options and call.stream_options.include_usage)
        self._count = call.n or 1
        self._num_prompt_tokens = num_prompt_tokens
        self._num_tokens = 0
        self._head = {
            "id": new_id("chatcmpl" if self._is_chat else "cmpl"),
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, steps: Steps) -> dict[str, Any]:
        """Return the complete answers."""
        answers: list[list[Token]] = [[] for _ in range(self._count)]
        async for step in steps:
            for token in step:
                answers[token.index].append(token)
        self._num_tokens = sum(map(len, answers))
        choices = [self._choice(answer, "message") for answer in answers]
        return self._payload("chat.completion", choices) | {"usage": self._usage()}

    async def stream(self, steps: Steps) -> AsyncGenerator[bytes, None]:
        """Yield an event for each token, and the usage if the call asks for it."""
        kind = "chat.completion.chunk"
        if self._is_chat:
            role = {"role": "assistant", "content": ""}
            yield event(
                self._payload(
                    kind,
                    [
                        {"index": i, "delta": role, "logprobs": None, "finish_reason": None}
                        for i in range(self._count)
                    ],
                )
            )
        async for step in steps:
            self._num_tokens += len(step)
            yield b"".join(event(self._payload(kind, [self._choice([token], "delta")])) for token in step)
        if self._with_usage:
            yield event(self._payload(kind, []) | {"usage": self._usage()})
        yield DONE

    def _payload(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind if self._is_chat else "text_completion", "choices": choices}

    def _choice(self, tokens: Sequence[Token], member: str) -> dict[str, Any]:
        text = "".join(token.piece for token in tokens)
        role = {"role": "assistant"} if member == "message" else {}
        return {
            "index": tokens[0].index,
            **({member: {**role, "content": text}} if self._is_chat else {"text": text}),
            "logprobs": self._logprobs(tokens) if self._with_logprobs else None,
            "finish_reason": tokens[-1].finish_reason,
        }

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any]:
        if self._is_chat:
            return {"content": [token_fields(token) for token in tokens], "refusal": None}
        return {
            "tokens": [token.token for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            # Reversed, so that the likeliest of equal texts stays.
            "top_logprobs": [dict(reversed(token.alternatives)) for token in tokens],
            "text_offset": [],
        }

    def _usage(self) -> dict[str, int]:
        prompt, completion = self._num_prompt_tokens, self._num_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


class ModelResponse:
    """The answer to a call of the Responses API."""

    def __init__(self, call: ResponsesCall, model: str, num_prompt_tokens: int) -> None:
        self._with_logprobs = bool(call.include)
        self._num_prompt_tokens = num_prompt_tokens
        self._tokens: list[Token] = []
        self._item_id = new_id("msg")
        self._num_events = 0
        self._head = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": call.instructions,
            "max_output_tokens": call.max_output_tokens,
            "temperature": call.temperature,
            "top_p": call.top_p,
            "error": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    async def whole(self, steps: Steps) -> dict[str, Any]:
        """Return the complete response."""
        async for step in steps:
            self._tokens += step
        return self._response()

    async def stream(self, steps: Steps) -> AsyncGenerator[bytes, None]:
        """Yield the events of the response, in OpenAI's order."""
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        item = {"type": "message", "id": self._item_id, "role": "assistant"}
        begun = {**item, "status": "in_progress", "content": []}
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._event("response.created", response=self._response())
        yield self._event("response.in_progress", response=self._response())
        yield self._event("response.output_item.added", output_index=0, item=begun)
        yield self._event("response.content_part.added", **place, part=empty)
        async for step in steps:
            for token in step:
                self._tokens.append(token)
                logprobs = [token_fields(token)] if self._with_logprobs else []
                delta = {"delta": token.piece, "logprobs": logprobs}
                yield self._event("response.output_text.delta", **place, **delta)
        part, response = self._part(), self._response()
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield self._event("response.output_text.done", **place, **done)
        yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=0, item=response["output"][0])
        yield self._event(f"response.{response['status']}", response=response)

    def _event(self, name: str, **members: Any) -> bytes:
        self._num_events += 1
        return event({"type": name, "sequence_number": self._num_events - 1, **members}, name)

    def _part(self) -> dict[str, Any]:
        text = "".join(token.piece for token in self._tokens)
        logprobs = [token_fields(token) for token in self._tokens] if self._with_logprobs else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _response(self) -> dict[str, Any]:
        """Return the response: in progress before the first token, else complete."""
        if not self._tokens:
            return {**self._head, "status": "in_progress", "incomplete_details": None, "output": []}
        is_cut = self._tokens[-1].finish_reason == "length"
        status = "incomplete" if is_cut else "completed"
        item = {"type": "message", "id": self._item_id, "role": "assistant", "status": status}
        given, drawn = self._num_prompt_tokens, len(self._tokens)
        return {
            **self._head,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [{**item, "content": [self._part()]}],
            "usage": {
                "input_tokens": given,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": drawn,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": given + drawn,
            },
        }
