"""A guardrail in two calls: drawing begins with the request to an LLM, the verdict comes with its answer.

What is drawn is in this replica's memory: where several run, the gateway sends both calls of a chat to one.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass

from service.errors import EigencalError, Overloaded
from service.llm.port import Generation, GenerationRequest
from service.scoring.basis import Drawn, Stopwatch
from service.scoring.command import ScoreCommand, Target
from service.scoring.score import Score
from service.scoring.scorer import Scorer

log = logging.getLogger(__name__)

KEEP_S = 600.0  # between the two calls of one chat lies one answer of the LLM
WAIT_S = 30.0
MAX_KNOWN = 1024  # calls whose answers are in memory: some 20 short texts each
MAX_UNDER_WAY = 256
_TWO_CHATS = "Two chats came under this litellm_call_id: which of them an answer belongs to cannot be told."
_STOPPED = "The drawing was broken off."
_SLOW = "The answers were not drawn in time."
_UNKNOWN = (
    "No request call came here under this litellm_call_id, so nothing was drawn: the guardrail needs "
    "`pre_call` beside `post_call`, and both calls of a chat at the same replica."
)


class NotScoredError(Exception):
    """There is no score of this call; the message says why, without any text of the caller's."""


@dataclass(frozen=True, slots=True)
class Key:
    """The id that a gateway has for a call, and the mark of the key that it calls with."""

    call_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A chat that is drawn beside, or why it is not. `since`: on the monotonic clock, in seconds."""

    since: float
    request: GenerationRequest | None = None
    drawing: asyncio.Task[Generation] | None = None
    refusal: str = ""


class Guardrail:
    """Draws for calls under way, `MAX_UNDER_WAY` at most, and judges their answers.

    `wait_s`: how long a verdict waits at most for answers that are still being drawn. `keep_s`: how long it
    may come after its request.
    """

    def __init__(self, scorer: Scorer, *, wait_s: float = WAIT_S, keep_s: float = KEEP_S) -> None:
        self._scorer = scorer
        self._wait_s = wait_s
        self._keep_s = keep_s
        self._calls: OrderedDict[Key, _Call] = OrderedDict()  # oldest first

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """End what is under way; idempotent."""
        drawings = [call.drawing for call in self._calls.values() if call.drawing is not None]
        self._calls.clear()
        for drawing in drawings:
            drawing.cancel()
        await asyncio.gather(*drawings, return_exceptions=True)

    def begin(self, key: Key, request: GenerationRequest) -> None:
        """Begin to draw in the background, unless that is being done for this call; never waits.

        An answer comes with its id alone: of two chats under one id, neither is judged. Raises Overloaded
        when too many calls are under way.
        """
        self._expire()
        known = self._calls.get(key)
        if known is not None and known.request is None:  # refused before
            return
        if known is not None and known.request is not None and known.request.messages != request.messages:
            self.refuse(key, _TWO_CHATS)
            return
        if known is not None and not _has_failed(known.drawing):
            return
        self._forget(key)
        if sum(not _is_done(call.drawing) for call in self._calls.values()) >= MAX_UNDER_WAY:
            raise Overloaded("Too many calls of the guardrail are under way.")
        drawing = asyncio.create_task(self._draw(request), name="guardrail-draw")
        self._keep(key, _Call(time.monotonic(), request, drawing))

    def refuse(self, key: Key, reason: str) -> None:
        """Remember why a call is not scored, for whoever is asked for its verdict; never waits."""
        self._forget(key)
        self._keep(key, _Call(time.monotonic(), refusal=reason))

    async def score(self, key: Key, text: str, target: Target) -> Score:
        """Return the score of a call's answer, as far as it has come; nothing is drawn twice for it.

        Raises NotScoredError, and what drawing and `Scorer.finish` raise.
        """
        self._expire()
        call = self._calls.get(key)
        if call is None or call.drawing is None or call.request is None:
            raise NotScoredError(_UNKNOWN if call is None else call.refusal)
        # Not awaited itself, which would cancel it when the caller hangs up: another may ask later.
        await asyncio.wait({call.drawing}, timeout=self._wait_s)
        if not call.drawing.done():
            raise NotScoredError(_SLOW)
        if call.drawing.cancelled():
            raise NotScoredError(_STOPPED)
        return await self._scorer.finish(_drawn(call.request, call.drawing.result(), target), text)

    async def _draw(self, request: GenerationRequest) -> Generation:
        return (await self._scorer.draw(ScoreCommand(request))).generation

    def _keep(self, key: Key, call: _Call) -> None:
        self._calls[key] = call
        while len(self._calls) > MAX_KNOWN:
            self._forget(next(iter(self._calls)))

    def _forget(self, key: Key) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.drawing is not None:
            call.drawing.cancel()

    def _expire(self) -> None:
        """Forget calls that nobody has asked about for long."""
        before = time.monotonic() - self._keep_s
        while self._calls and next(iter(self._calls.values())).since < before:
            self._forget(next(iter(self._calls)))


def reason_of(error: BaseException) -> str:
    """Return an error in words fit for a caller."""
    if isinstance(error, EigencalError):
        return error.detail
    log.error("an unforeseen error in a guardrail", exc_info=error)
    return "Something went wrong in the service."


def _is_done(drawing: "asyncio.Task[Generation] | None") -> bool:
    return drawing is None or drawing.done()


def _has_failed(drawing: "asyncio.Task[Generation] | None") -> bool:
    return drawing is not None and (
        drawing.cancelled() or (drawing.done() and drawing.exception() is not None)
    )


def _drawn(request: GenerationRequest, generation: Generation, target: Target) -> Drawn:
    # A watch of its own: the verdict's time is not that of the drawing, which was beside the LLM's answer.
    marks = Stopwatch()
    marks.lap("queue")
    marks.lap("generate")
    return Drawn(ScoreCommand(request, target=target), None, generation, marks)
