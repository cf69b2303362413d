"""Streams that are forwarded: words at once, and the score with the chunk that finishes the answer."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from service.errors import EigencalError
from service.http.problems import openai_error, problem
from service.llm.forward import Reply
from service.llm.sse import Event
from service.proxy.answer import Answer, choices_of, event_of, is_first, without_logprobs

HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
_END_FIELDS = ("finish_reason", "stop_reason")

Chunk = dict[str, Any]


def broken_off(error: EigencalError) -> bytes:
    """Return the event that tells clients of OpenAI's API that the stream has failed."""
    return event_of(openai_error(problem(error, None)))


async def as_it_is(reply: Reply) -> AsyncGenerator[bytes, None]:
    """Yield a stream unchanged. If the server breaks it off, the last event is the error."""
    last = b""
    try:
        async for piece in reply.pieces():
            last = (last + piece)[-4:]
            yield piece
    except EigencalError as error:
        # A blank line ends an incomplete event, or the error would become part of it.
        yield (b"" if last.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) else b"\n\n") + broken_off(error)


async def forwarded(
    received: AsyncIterator[Event], answer: Answer, tail: list[Chunk | bytes], *, hides: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream until the answer is over. Words never wait.

    The chunk with the finish reason, as an object, and what follows it go into `tail`. More words show that
    it did not end the answer (some servers send a reason with every chunk), so the tail is sent before them.
    `hides`: remove log-probabilities. If the server breaks the stream off, the tail ends with the error.
    """
    try:
        async for event in received:
            chunk = event.chunk()
            sent: Any = without_logprobs(chunk) if hides else chunk
            raw = event.raw if sent is chunk else event_of(sent)
            answer.is_over = answer.is_over or event.is_last
            choices = choices_of(chunk or {})
            first = [choice for choice in choices if is_first(choice)]
            goes_on = any(map(_has_words, first))
            others_go_on = any(_has_words(choice) for choice in choices if not is_first(choice))
            if tail and event.data and not goes_on and (first or not choices):
                if others_go_on:
                    yield event_of(_others(sent))
                tail.append(event_of(_end(sent)) if others_go_on else raw)
                # The usage alone follows all choices. Not all servers send [DONE] after it.
                is_usage = chunk is not None and not choices and bool(chunk.get("usage"))
                answer.is_over = answer.is_over or is_usage
            else:
                while tail and goes_on:
                    kept = tail.pop(0)
                    yield kept if isinstance(kept, bytes) else event_of(kept)
                if chunk is None or not answer.take(chunk, len(event.raw)):
                    yield raw
                elif goes_on or others_go_on:
                    yield event_of(_words(sent))
                    tail.append(_end(sent))
                else:
                    tail.append(sent)
            if answer.is_over:
                return
    except EigencalError as error:
        tail.append(broken_off(error))
        if not answer.is_finished:
            answer.failure = answer.failure or error


async def with_heartbeats(work: asyncio.Future[Any], wait_s: float) -> AsyncGenerator[bytes, None]:
    """Wait up to `wait_s` seconds for the work, and yield a comment every `HEARTBEAT_S`."""
    ends = time.monotonic() + wait_s
    while True:
        left_s = max(ends - time.monotonic(), 0.0)
        done, _ = await asyncio.wait({work}, timeout=min(left_s, HEARTBEAT_S))
        if done or left_s <= HEARTBEAT_S:
            return
        yield b": the score is being made\n\n"


def _has_words(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")


def _words(chunk: Chunk) -> Chunk:
    """Return the chunk without its end. The usage is sent once, with the end."""
    choices = [
        choice | {name: None for name in _END_FIELDS if name in choice} if is_first(choice) else choice
        for choice in chunk["choices"]
    ]
    return {name: value for name, value in chunk.items() if name != "usage"} | {"choices": choices}


def _others(chunk: Chunk) -> Chunk:
    """Return the chunk without the first choice and the usage."""
    choices = [choice for choice in chunk["choices"] if not is_first(choice)]
    return {name: value for name, value in chunk.items() if name != "usage"} | {"choices": choices}


def _end(chunk: Chunk) -> Chunk:
    """Return the chunk without its words and lists: clients that concatenate would have them twice."""
    kept = ("index", *_END_FIELDS)
    choices = [
        {name: choice[name] for name in kept if name in choice}
        | {"delta": {}}
        | ({"logprobs": None} if "logprobs" in choice else {})
        for choice in filter(is_first, chunk["choices"])
    ]
    return {**chunk, "choices": choices}
