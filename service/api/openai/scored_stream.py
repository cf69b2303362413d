"""A stream that carries its score on the chunk that finishes it; all else goes by as it comes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from service.api.openai.relay import broken_off
from service.api.openai.sse import comment
from service.api.openai.tap import Tap
from service.domain.chat.prompt import Unscorable
from service.domain.chat.running import RunningScore
from service.domain.chat.upstream import Reply
from service.domain.errors import EigencalError, LLMBadResponse

HEARTBEAT_S = 2.0  # proxies cut connections that are silent for ten seconds or more
MOST_HELD = 16 << 20  # bytes of a stream that waits for its decision
NO_END = Unscorable("no_answer", "The stream ended before the answer did.")


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


async def held_stream(
    pieces: AsyncGenerator[bytes, None], shown: Callable[[bytes], bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield nothing of a stream before it has ended, but heartbeats; then what `shown` makes of it."""
    held, clock = bytearray(), asyncio.get_running_loop().time
    beat = clock() + HEARTBEAT_S
    more: asyncio.Future[bytes | None] = asyncio.ensure_future(_next(pieces))
    try:
        while True:
            await asyncio.wait({more}, timeout=max(beat - clock(), 0))
            if clock() >= beat:
                yield comment("the answer waits until it is judged")
                beat = clock() + HEARTBEAT_S
            if not more.done():
                continue
            if (piece := more.result()) is None:
                break
            held += piece
            if len(held) > MOST_HELD:
                yield broken_off(LLMBadResponse("The LLM server's answer is longer than the service takes."))
                return
            more = asyncio.ensure_future(_next(pieces))
        yield shown(bytes(held))
    finally:
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)
        await pieces.aclose()


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
