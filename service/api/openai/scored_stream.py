"""A stream that carries its score on the chunk that finishes it; all else goes by as it comes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from service.api.openai.hidden_logprobs import without_logprobs
from service.api.openai.relay import broken_off
from service.api.openai.sse import Event, Events, comment, event_of
from service.api.openai.view import document_of
from service.domain.chat.own_answer import OwnAnswer
from service.domain.chat.prompt import Unscorable
from service.domain.chat.running import RunningScore
from service.domain.chat.uncertainty import Uncertainty
from service.domain.chat.upstream import Reply
from service.domain.errors import EigencalError

HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
NO_END = Unscorable("no_answer", "The stream ended before the answer did.")


class Tap:
    """Reads a stream that goes by, and holds back the chunk that finishes the first choice.

    What comes after that chunk waits behind it, but for chunks of other choices. `is_over`: the server has
    said so. `has_failed`: it has told an error. `hides_logprobs`: the caller did not ask for them.
    """

    def __init__(self, *, hides_logprobs: bool = False) -> None:
        self.own = OwnAnswer()
        self._hides_logprobs = hides_logprobs
        self.is_over = self.has_failed = False
        self._events = Events()
        self._held: dict[str, Any] | None = None
        self._after: list[bytes] = []
        self._passes_all = False

    @property
    def holds(self) -> bool:
        """Tell whether a chunk is held back."""
        return self._held is not None

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what goes on to the caller now."""
        return b"".join(self._shown(event) for event in self._events.feed(piece) if self._goes_on(event))

    def release(self, found: Uncertainty) -> bytes:
        """Return the chunk held back, with the score on it, and what waits behind it."""
        self.pass_all()
        if self._held is None:
            return b""
        shown = without_logprobs(self._held) if self._hides_logprobs else self._held
        held, self._held = with_uncertainty(shown, document_of(found)), None
        behind, self._after = b"".join(self._after), []
        return event_of(held) + behind

    def pass_all(self) -> None:
        """Read no more: what still comes goes on as it is."""
        self._passes_all = True

    def rest(self) -> bytes:
        """Return what came last and is no whole event."""
        return self._events.rest()

    def _shown(self, event: Event) -> bytes:
        chunk = event.chunk() if self._hides_logprobs else None
        return event.raw if chunk is None else event_of(without_logprobs(chunk))

    def _goes_on(self, event: Event) -> bool:
        if self._passes_all:
            return True
        self.is_over = self.is_over or event.is_last
        chunk = event.chunk()
        if self.holds:
            return self._waits_for_none(event, chunk)
        if chunk is None:
            return True
        self.has_failed = self.has_failed or bool(chunk.get("error"))
        if not self.own.take(chunk):
            return True
        self._held = chunk
        return False

    def _waits_for_none(self, event: Event, chunk: dict[str, Any] | None) -> bool:
        choices = (chunk or {}).get("choices")
        if isinstance(choices, list) and choices and all(_is_other(choice) for choice in choices):
            return True
        self._after.append(event.raw)
        return False


def with_uncertainty(chunk: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk with the score at its top, and in the first choice's delta.

    Clients differ in which of the two they let through, and in whether they sum what comes twice.
    """
    choices = [
        {**choice, "delta": {**choice["delta"], "uncertainty": document}} if _has_delta(choice) else choice
        for choice in chunk["choices"]
    ]
    return {**chunk, "choices": choices, "uncertainty": document}


def _has_delta(choice: object) -> bool:
    return isinstance(choice, dict) and not _is_other(choice) and isinstance(choice.get("delta"), dict)


def _is_other(choice: object) -> bool:
    return isinstance(choice, dict) and bool(choice.get("index"))


async def scored_stream(
    reply: Reply, running: RunningScore, wait_s: float | None, *, hides_logprobs: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the stream; its last chunk waits `wait_s` for the score. None: it says where to find it."""
    tap, pieces = Tap(hides_logprobs=hides_logprobs), reply.pieces()
    try:
        async for piece in pieces:
            if passed := tap.feed(piece):
                yield passed
            # Not before: the caller's own first token would wait for them, and its prompt is cached now.
            if tap.own.has_said:
                running.start()
            if tap.holds or tap.has_failed:
                break
        if tap.holds:
            # Closed with this one: left to itself, it would go on reading what nobody takes.
            async with aclosing(_finished(tap, pieces, running, wait_s)) as rest:
                async for piece in rest:
                    yield piece
        elif tap.is_over and not tap.has_failed:
            _left_without_end(tap, running)
        else:
            tap.pass_all()
            await running.discard(NO_END)
        async for piece in pieces:
            yield tap.feed(piece)
        yield tap.rest()
    except EigencalError as error:
        await running.discard(error)
        yield broken_off(error)


def _left_without_end(tap: Tap, running: RunningScore) -> None:
    """Score an answer that no chunk finished: none can carry the score, so it is left to be fetched."""
    running.judge(tap.own.choice, tap.own.model)
    running.leave()


async def _finished(
    tap: Tap, pieces: AsyncIterator[bytes], running: RunningScore, wait_s: float | None
) -> AsyncGenerator[bytes, None]:
    """Yield what the server still sends while the score is made, and then the chunk that carries it."""
    running.judge(tap.own.choice, tap.own.model)
    if wait_s is None:
        yield tap.release(running.leave())
        return
    score = asyncio.ensure_future(running.wait(wait_s))
    more: asyncio.Future[bytes | None] | None = asyncio.ensure_future(_next(pieces))
    broken: EigencalError | None = None
    try:
        while not score.done():
            waited: set[asyncio.Future[Any]] = {score} if more is None else {score, more}
            done, _ = await asyncio.wait(waited, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield comment("the score is being made")
            if more is None or not more.done():
                continue
            try:
                piece = more.result()
            except EigencalError as error:  # the answer is whole: this can be told behind its score
                piece, broken = None, error
            more = None if piece is None else asyncio.ensure_future(_next(pieces))
            if piece and (passed := tap.feed(piece)):
                yield passed
        yield tap.release(score.result())
        if broken is not None:
            raise broken
        if more is not None and (piece := await more):
            yield tap.feed(piece)
    finally:
        left = [task for task in (score, more) if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    """Return the next piece; None for no more."""
    return await anext(pieces, None)
