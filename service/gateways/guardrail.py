"""Answers drawn for a call that another replica may be asked about: as documents that all replicas find."""

import asyncio
import contextlib
import hashlib
import json
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from service.errors import EigencalError, Overloaded, StoreUnavailable
from service.llm.port import Draw, Generation, GenerationRequest, KeptDocuments, Message, Peers, Usage
from service.scoring.score import Drawn, Score, ScoreCommand, Stopwatch, Target
from service.scoring.scorer import Scorer
from service.scoring.serving import Serving

KIND = "guardrail"
REFUSED = "guardrail-refused"  # apart, so that no draw that ends later hides it
KEEP_S = 600.0  # between the two calls of one chat lies one answer of the LLM


@dataclass(frozen=True, slots=True)
class Key:
    """The id that a gateway has for a call, and the mark of the key that it calls with."""

    call_id: str
    owner: str

    @property
    def id(self) -> str:
        """Return the id under which documents are kept: a hash, since what gateways send may be anything."""
        return hashlib.sha256(self.call_id.encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Maker:
    """Who draws: a replica, and which of the processes that have had its name."""

    replica: str
    process: str


State = Literal["pending", "left", "drawn", "failed"]


def document_of(
    state: State,
    request: GenerationRequest | None = None,
    *,
    maker: Maker | None = None,
    generation: Generation | None = None,
    reason: str = "",
) -> dict[str, Any]:
    """Return what other replicas are told of a call.

    "pending": `maker` draws. "left": it was stopped before it had drawn. "failed": it could not be drawn,
    for that `reason`.
    """
    asked = None if request is None else _asked(request)
    return {
        "state": state,
        "asked": asked,
        "maker": None if maker is None else asdict(maker),
        "generation": None if generation is None else asdict(generation),
        "reason": reason,
    }


def _asked(request: GenerationRequest) -> dict[str, Any]:
    return {"messages": [asdict(turn) for turn in request.messages or ()], "num_samples": request.num_samples}


def maker_in(document: Mapping[str, Any]) -> Maker:
    """Return who draws, or drew."""
    return Maker(**document["maker"])


def request_in(document: Mapping[str, Any], serving: Serving) -> GenerationRequest:
    """Return what is to be drawn; the sampling is that of the settings, which replicas share."""
    asked = document["asked"]
    turns = tuple(Message(**turn) for turn in asked["messages"])
    return serving.request(messages=turns, num_samples=asked["num_samples"])


def generation_in(document: Mapping[str, Any]) -> Generation:
    """Return the answers that were drawn."""
    kept = dict(document["generation"])
    draws = tuple(Draw(**draw) for draw in kept.pop("draws"))
    usage, omitted = Usage(**kept.pop("usage")), tuple(kept.pop("omitted"))
    return Generation(draws, usage=usage, omitted=omitted, **kept)


# A guardrail in two calls: drawing begins with the request to an LLM, the verdict comes with its answer.
#
# Either call may meet another replica. What is drawn, and that somebody draws it, is kept in documents; a
# replica that is asked for the verdict takes the draws, waits for them, or draws itself when who drew is
# dead.

log = logging.getLogger(__name__)

MOST_KNOWN = 1024  # calls whose answers are in memory: some 20 short texts each
MOST_UNDER_WAY = 256
LOOK_S = 0.2  # between two looks at what another replica draws
MOST_CHARACTERS = 1 << 20  # of a document: a longer call stays with its replica
STOP_S = 5.0
CLAIM_S = 2.0  # by which a store that hangs may hold a verdict up


class NotScoredError(Exception):
    """There is no score of this call; the message says why, without any text of the caller's."""


@dataclass(slots=True, eq=False)
class _Call:
    """A chat that is drawn beside. `replaced`: it came again, and its own draws count no more.

    `claimed`: set once the store does not know another chat under its id.
    """

    request: GenerationRequest
    drawing: asyncio.Task[Generation]
    since: float
    replaced: bool = False
    claimed: asyncio.Event = field(default_factory=asyncio.Event)


class Guardrail:
    """Draws for calls under way, `MOST_UNDER_WAY` at most, and judges their answers.

    `wait_s`: how long a verdict waits at most for answers that are still being drawn.
    """

    def __init__(
        self,
        scorer: Scorer,
        serving: Serving,
        documents: KeptDocuments,
        peers: Peers,
        *,
        wait_s: float = 30.0,
        keep_s: float = KEEP_S,
    ) -> None:
        self._scorer = scorer
        self._serving = serving
        self._documents = documents
        self._peers = peers
        self._wait_s = wait_s
        self._keep_s = keep_s
        self._process = uuid.uuid4().hex
        self._calls: OrderedDict[Key, _Call] = OrderedDict()  # oldest first
        # And why, since when; the store learns of it later.
        self._refused: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._telling: dict[Key, asyncio.Task[None]] = {}  # the last of each id

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Leave what is under way to others, and tell them so if the store takes it soon; idempotent."""
        for call in self._calls.values():
            call.drawing.cancel()
        self._calls.clear()
        if self._telling:
            _, late = await asyncio.wait([*self._telling.values()], timeout=STOP_S)
            for task in late:
                task.cancel()

    def begin(self, key: Key, request: GenerationRequest) -> None:
        """Begin to draw in the background, unless that is being done for this call; never waits.

        An answer comes with its id alone: of two chats under one id, neither is judged. Raises Overloaded
        when too many calls are under way.
        """
        self._expire()
        known = self._calls.get(key)
        if key in self._refused:
            return
        if known is not None and known.request.messages != request.messages:
            self.refuse(key, _TWO_CHATS)
            return
        if known is not None and known.request == request and not _failed(known.drawing):
            return
        self._replace(key)
        if sum(not call.drawing.done() for call in self._calls.values()) >= MOST_UNDER_WAY:
            raise Overloaded("Too many calls of the guardrail are under way.")
        drawing = asyncio.create_task(self._draw(request), name="guardrail-draw")
        call = _Call(request, drawing, time.monotonic())
        self._know(key, call)
        self._tell(key, self._share(key, call))

    def refuse(self, key: Key, reason: str) -> None:
        """Remember why a call is not scored, for whoever is asked for its verdict; never waits."""
        self._remember(key, reason)
        self._tell(key, self._put(key, {"reason": reason}, REFUSED))

    async def score(self, key: Key, text: str, target: Target) -> Score:
        """Return the score of a call's answer, as far as it has come; nothing is drawn twice for it.

        Raises NotScoredError, and what drawing and `Scorer.finish` raise.
        """
        self._expire()
        await self._look_for_another(key)
        if (refused := self._refused.get(key)) is not None:
            raise NotScoredError(refused[0])
        patience = asyncio.timeout(self._wait_s)
        try:
            async with patience:
                call = self._calls.get(key) or await self._elsewhere(key)
                # Not awaited itself, which would cancel it when the caller hangs up: another may ask later.
                await asyncio.wait({call.drawing})
        except TimeoutError:
            if not patience.expired():
                raise
            raise NotScoredError(_SLOW) from None
        if call.drawing.cancelled():
            raise NotScoredError(_STOPPED)
        return await self._scorer.finish(_drawn(call.request, call.drawing.result(), target), text)

    async def _draw(self, request: GenerationRequest) -> Generation:
        return (await self._scorer.draw(ScoreCommand(request))).generation

    async def _elsewhere(self, key: Key) -> _Call:
        """Return a call that another replica was told of, once its answers are drawn, there or here."""
        for look in range(int(self._wait_s / LOOK_S) + 1):
            if (refused := await self._documents.get(REFUSED, key.id, key.owner)) is not None:
                raise NotScoredError(refused["reason"])
            found = await self._documents.get(KIND, key.id, key.owner)
            if found is None and look:
                raise NotScoredError(_UNKNOWN)
            call = None if found is None else await self._taken(key, found)
            if call is not None:
                return call
            await asyncio.sleep(LOOK_S)
        raise NotScoredError(_SLOW)

    async def _taken(self, key: Key, found: dict[str, Any]) -> _Call | None:
        """Return a call by its document; None while another replica draws."""
        if found["state"] == "failed":
            raise NotScoredError(found["reason"])
        request = request_in(found, self._serving)
        if found["state"] == "drawn":
            # Not remembered: the id may come again, there.
            drawing = asyncio.create_task(_ready(generation_in(found)))
            return _Call(request, drawing, time.monotonic())
        if found["state"] == "pending" and await self._draws(maker_in(found)):
            return None
        self.begin(key, request)
        return self._calls[key]

    async def _draws(self, maker: Maker) -> bool:
        # Of this name, but not among the calls known here: another process before this one, or forgotten.
        return maker.replica != self._peers.own_id and await self._peers.lives(maker.replica)

    def _replace(self, key: Key) -> None:
        """Forget a call that has come again, as when a gateway tries again."""
        known = self._calls.pop(key, None)
        if known is not None:
            known.replaced = True
            known.drawing.cancel()

    def _remember(self, key: Key, reason: str) -> None:
        self._replace(key)
        self._refused[key] = reason, time.monotonic()
        if len(self._refused) > MOST_KNOWN:
            self._refused.popitem(last=False)

    async def _look_for_another(self, key: Key) -> None:
        """Refuse a call, or forget it, whose id has come again to another replica since."""
        known = self._calls.get(key)
        if known is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(known.claimed.wait(), CLAIM_S)
        # What is still being told is the last word on it.
        if key not in self._telling and not known.replaced:
            await self._claim(key, known)

    async def _claim(self, key: Key, call: _Call) -> None:
        """Refuse a call under whose id the store knows another chat; forget one that is drawn elsewhere."""
        try:
            refused = await self._documents.get(REFUSED, key.id, key.owner)
            found = await self._documents.get(KIND, key.id, key.owner)
        except StoreUnavailable:
            return
        if refused is not None:
            self._remember(key, refused["reason"])
            return
        if found is None:  # too long to be kept, or its time is over
            return
        kept = request_in(found, self._serving)
        if kept.messages != call.request.messages:
            self.refuse(key, _TWO_CHATS)
        elif kept != call.request and call.claimed.is_set():
            self._replace(key)

    async def _share(self, key: Key, call: _Call) -> None:
        """Tell the other replicas that this one draws, and what came of it."""
        request, drawing = call.request, call.drawing
        maker = Maker(self._peers.own_id, self._process)
        await self._claim(key, call)
        if not call.replaced:
            await self._put(key, document_of("pending", request, maker=maker))
        call.claimed.set()
        await asyncio.wait({drawing})
        if not call.replaced:
            await self._claim(key, call)
        if call.replaced:
            return
        if drawing.cancelled():
            await self._put(key, document_of("left", request, maker=maker))
        elif (error := drawing.exception()) is not None:
            await self._put(key, document_of("failed", request, reason=reason_of(error)))
        else:
            await self._put(key, document_of("drawn", request, generation=drawing.result()))

    async def _put(self, key: Key, document: dict[str, Any], kind: str = KIND) -> None:
        if len(json.dumps(document)) > MOST_CHARACTERS:
            return
        with contextlib.suppress(StoreUnavailable):  # it was logged; this replica goes on alone
            await self._documents.put(kind, key.id, key.owner, document, ttl_s=self._keep_s)

    def _tell(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        # After what was told of the same id before, or the store might take the two in the other order.
        task = asyncio.create_task(_after(self._telling.get(key), work), name="guardrail-share")
        self._telling[key] = task
        task.add_done_callback(partial(self._told, key))

    def _told(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._telling.get(key) is task:
            del self._telling[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            # By its kind alone: the text of a database's error may quote what was to be stored.
            log.error("what a guardrail draws cannot be shared: %s", type(error).__name__)

    def _know(self, key: Key, call: _Call) -> _Call:
        self._calls[key] = call
        self._calls.move_to_end(key)
        while len(self._calls) > MOST_KNOWN:
            self._calls.popitem(last=False)[1].drawing.cancel()
        return call

    def _expire(self) -> None:
        """Forget calls that nobody has asked about for long."""
        before = time.monotonic() - self._keep_s
        while self._refused and next(iter(self._refused.values()))[1] < before:
            self._refused.popitem(last=False)
        while self._calls and next(iter(self._calls.values())).since < before:
            self._calls.popitem(last=False)[1].drawing.cancel()


_TWO_CHATS = "Two chats came under this litellm_call_id: which of them an answer belongs to cannot be told."
_STOPPED = "The drawing was broken off."
_SLOW = "The answers were not drawn in time."
_UNKNOWN = (
    "No request call came under this litellm_call_id, so nothing was drawn: the guardrail needs `pre_call` "
    "beside `post_call`."
)


def reason_of(error: BaseException) -> str:
    """Return an error in words fit for a caller."""
    if isinstance(error, EigencalError):
        return error.detail
    log.error("an unforeseen error in a guardrail", exc_info=error)
    return "Something went wrong in the service."


def _failed(drawing: "asyncio.Task[Generation]") -> bool:
    return drawing.done() and (drawing.cancelled() or drawing.exception() is not None)


async def _after(before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> None:
    with contextlib.closing(work):  # should this be cancelled before its turn comes
        if before is not None:
            await asyncio.wait({before})
        await work


async def _ready(generation: Generation) -> Generation:
    return generation


def _drawn(request: GenerationRequest, generation: Generation, target: Target) -> Drawn:
    # A watch of its own: the verdict's time is not that of the drawing, which was beside the LLM's answer.
    marks = Stopwatch()
    marks.lap("queue")
    marks.lap("generate")
    return Drawn(ScoreCommand(request, target=target), None, generation, marks)
