"""Streams with a score: the final chunk waits for the score, earlier chunks are forwarded immediately."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any

from service.errors import EigencalError, Unscorable
from service.http.problems import openai_error, problem
from service.llm import forward
from service.llm.forward import Reply
from service.llm.sse import Event, events
from service.llm.wire import MAX_MODEL_NAME_CHARS, NONSENSE, Choice, error_in, finish_of, is_chunk
from service.proxy.chat_score import RunningScore, choices_of, is_first
from service.proxy.formats import Format

HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
TOO_LONG = Unscorable("incomplete", "The answer is too long to be judged.")
NO_END = Unscorable("incomplete", "The stream ended before the answer was complete.")
_END_FIELDS = ("finish_reason", "stop_reason")
DONE = b"data: [DONE]\n\n"
END = Event(b"")


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return the object as compact JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def event_of(payload: Mapping[str, Any]) -> bytes:
    """Return a server-sent event with this object as its data."""
    return b"data: " + encoded(payload) + b"\n\n"


def broken_off(error: EigencalError) -> bytes:
    """Return the event that tells clients of OpenAI's API that the stream has failed."""
    return event_of(openai_error(problem(error, None)))


class StreamedAnswer:
    """The first choice of an answer, assembled from chunks. Malformed choices are ignored.

    `whole` of the last choice is the whole answer. It counts if no chunk before had a piece of the text.
    """

    def __init__(self) -> None:
        self.choice: Choice | None = None
        self.model = ""
        self.id = ""  # of the response
        self.is_broken = False  # the latest event is not a chunk

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Add a chunk; return True if it finishes the first choice."""
        self.is_broken = not is_chunk(chunk)
        if isinstance(chunk.get("model"), str):
            self.model = self.model or chunk["model"][:MAX_MODEL_NAME_CHARS]
        if isinstance(chunk.get("id"), str):
            self.id = self.id or chunk["id"]
        is_finished = False
        for choice in filter(is_first, choices_of(chunk)):
            self.choice = self.choice or Choice()
            try:
                self.choice.take(choice if self.has_text else choice.get("whole") or choice)
            except NONSENSE:
                self.choice.is_partial = True
            is_finished = is_finished or finish_of(choice) is not None
        return is_finished

    @property
    def has_text(self) -> bool:
        """Return True after the first token: servers send the role before it."""
        return self.choice is not None and bool(self.choice.pieces or self.choice.other_fields)


def divided(chunk: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Split a finishing chunk: return the part to send immediately, or None, and the part with the score.

    Some servers send the last words, or all of them, with the finish reason. Words do not wait for the score.
    """
    if not _adds_words(chunk):
        return None, chunk
    begun, ended = list[Any](), list[Any]()
    for choice in chunk["choices"]:
        if is_first(choice):
            begun.append(choice | {name: None for name in _END_FIELDS if name in choice})
            ended.append(_ending(choice))
        else:
            begun.append(choice)
    now = {name: value for name, value in chunk.items() if name != "usage"}  # sent once, with the last chunk
    return {**now, "choices": begun}, {**chunk, "choices": ended}


def _adds_words(chunk: Mapping[str, Any]) -> bool:
    for choice in filter(is_first, choices_of(chunk)):
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role"):
            return True
    return False


def _ending(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice without its text and lists: clients that concatenate would have them twice."""
    kept = {name: choice[name] for name in ("index", *_END_FIELDS) if name in choice}
    return {**kept, "delta": {}, **({"logprobs": None} if "logprobs" in choice else {})}


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


async def scored_stream(
    reply: Reply,
    permit: ExitStack,
    api: Format,
    running: RunningScore,
    wait_s: float | None,
    *,
    hides_logprobs: bool,
) -> AsyncGenerator[bytes, None]:
    """Yield the stream with its score, and an event with the error if the server breaks it off."""
    try:
        scored = _scored(reply, permit, api, running, wait_s, hides_logprobs=hides_logprobs)
        async with aclosing(scored) as pieces:
            async for piece in pieces:
                yield piece
    except EigencalError as error:
        await running.discard(error)
        yield broken_off(error)


async def _scored(
    reply: Reply,
    permit: ExitStack,
    api: Format,
    running: RunningScore,
    wait_s: float | None,
    *,
    hides_logprobs: bool,
) -> AsyncGenerator[bytes, None]:
    """Yield the stream; its last chunk waits up to `wait_s` seconds for the score.

    `wait_s` None: the chunk does not wait, and carries only the id of the score. `hides_logprobs`: remove
    log-probabilities that the caller did not ask for. A finish reason ends the answer unless more words
    follow: some servers send a reason with every chunk. The permit of the call is released before the wait,
    because the samples may need it.
    """
    answer, num_bytes, is_settled, is_over = StreamedAnswer(), 0, False, False
    ending: dict[str, Any] | None = None  # the latest chunk with a finish reason, without its words

    def quiet(chunk: dict[str, Any]) -> dict[str, Any]:
        return api.without_logprobs(chunk) if hides_logprobs else chunk

    async def carrier(chunk: dict[str, Any]) -> bytes:
        uncertainty = await running.wait(wait_s)
        return api.event(api.with_uncertainty(quiet(chunk), uncertainty.document()))

    async def ended(chunk: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Judge the answer, and yield its last chunk with the score."""
        nonlocal is_settled
        is_settled = True
        permit.close()
        running.judge(answer.choice, answer.model, answer.id)
        async with aclosing(beating(partial(carrier, chunk), "the score is being made")) as beats:
            async for piece in beats:
                yield piece

    async def is_finished_by(chunk: dict[str, Any], size: int) -> bool:
        """Add a chunk to the answer. An error, or too long an answer, has no score."""
        nonlocal num_bytes, is_settled
        read = api.read(chunk)
        is_finished = answer.take(read)
        num_bytes += size if choices_of(read) else 0
        if (error := error_in(read)) or num_bytes > forward.MAX_WHOLE_BYTES:
            is_settled = True
            await running.discard(NO_END if error else TOO_LONG)
        # Samples start now: earlier they would delay the caller's first token. The prompt is cached too.
        elif answer.has_text and not is_finished:
            running.start()
        return is_finished and not is_settled

    async for event in _with_end(reply):
        chunk = event.chunk() if hides_logprobs or not is_settled else None
        if ending is not None and (event.data or event is END):
            if chunk is not None and _adds_words(chunk):
                yield api.event(quiet(ending))
            else:
                async with aclosing(ended(ending)) as last:
                    async for piece in last:
                        yield piece
            ending = None
        if event is END:
            continue
        if chunk is not None and not is_settled and await is_finished_by(chunk, len(event.raw)):
            if api.ends_at_once:
                async with aclosing(ended(chunk)) as last:
                    async for piece in last:
                        yield piece
                continue
            now, ending = divided(chunk)
            if now is not None:
                yield api.event(quiet(now))
            continue
        is_over = is_over or event.is_last
        sent = None if chunk is None else quiet(chunk)
        yield event.raw if sent is None or sent is chunk else api.event(sent)
    if not is_settled:
        await _leave(running, answer, is_over=is_over)


async def _with_end(reply: Reply) -> AsyncGenerator[Event, None]:
    """Yield the events of a stream, then END. Raises the error that broke it off after END."""
    failure: EigencalError | None = None
    try:
        async for event in events(reply.pieces(), forward.MAX_WHOLE_BYTES):
            yield event
    except EigencalError as error:
        failure = error
    yield END
    if failure is not None:
        raise failure


async def _leave(running: RunningScore, answer: StreamedAnswer, *, is_over: bool) -> None:
    """Leave the score of an answer to be fetched, since no chunk has finished it and can carry the score."""
    if is_over and not answer.is_broken:
        running.judge(answer.choice, answer.model, answer.id)
        await running.wait(None)
    else:
        await running.discard(NO_END)


async def beating(work: Callable[[], Coroutine[Any, Any, bytes]], why: str) -> AsyncGenerator[bytes, None]:
    """Yield the result of the work, and before it a comment `why` every `HEARTBEAT_S` as a heartbeat."""
    task = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
            yield f": {why}\n\n".encode()
        yield task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
