"""What a model is given at a time: texts cut to what it reads, in chunks of like length, by fair turns.

A text is cut before it is tokenised: else all of it is tokenised, and most dropped. A call of many texts is
cut into chunks, between which the small calls of others take their turns.
"""

import asyncio
import contextlib
import hashlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.embedding.lru import LRU
from service.errors import EmbedderUnavailable, Overloaded
from service.llm.port import Embedded, EmbedderIdentity

CHARACTERS_PER_TOKEN = 8  # of the first try at a cut; English has four or five
GROWTH = 4
MOST_TEXTS = 64
# Tokens, padding counted. On two CPU cores all-mpnet-base-v2 works on these for a second or two; accelerators
# are far faster, and want more at once.
BUDGET = {"cpu": 1024}
BUDGET_OF_OTHERS = 32_768
# Of work that is done ahead of a call, and may keep another caller waiting: one or two tenths of a second
# with all-mpnet-base-v2 on a CPU core.
SMALL_CHARACTERS = 400
BYTES_PER_TOKEN = 3  # English has 4, Chinese 3, code and digits fewer


class TextCut:
    """Cuts a text where the tokens before the cut fill the model already: its vector stays the same.

    A beginning is tried that four times as long does not change: all tokens but those of its last word, which
    the cut may have gone through, are at least as many as the model reads. So words that become one token
    however long they are, spaces, and characters that the tokenizer drops, are read on over.

    `count` returns the number of tokens of a text without those of its last word.
    """

    def __init__(self, count: Callable[[str], int], longest: int) -> None:
        self._count = count
        self._longest = longest
        self.untouched = CHARACTERS_PER_TOKEN * longest  # characters; texts up to it are not looked at

    def __call__(self, text: str) -> str:
        """Return a beginning of the text that has the same vector, or the text."""
        end = self.untouched
        while end < len(text):
            if self._count(text[:end]) >= self._longest:
                return text[:end]
            end *= GROWTH
        return text


def cut_of(model: Any) -> TextCut | None:
    """Return the cut for a sentence-transformers model; None where it reads all or hides its tokenizer."""
    longest = getattr(model, "max_seq_length", None)
    own = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if longest is None or own is None:
        return None
    from tokenizers import Tokenizer

    # A copy: the model's own is told to cut and to pad.
    tokenizer = Tokenizer.from_str(own.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lower = bool(getattr(model[0], "do_lower_case", False))

    def count(text: str) -> int:
        words = tokenizer.encode(text.lower() if lower else text, add_special_tokens=False).word_ids
        return sum(word != words[-1] for word in words) if words else 0

    return TextCut(count, longest)


def budget_on(device: object) -> int:
    """Return the most tokens at once on a torch device."""
    return BUDGET.get(str(device).partition(":")[0], BUDGET_OF_OTHERS)


def chunks(texts: Sequence[str], longest: int | None, budget: int) -> Iterator[list[int]]:
    """Yield places of texts of like length: at most MOST_TEXTS, and `budget` tokens unless it is one text.

    `longest`: tokens at which the model cuts a text; None: never. Shortest first, so that padding is small.
    """
    tokens = [tokens_of(text, longest) for text in texts]
    chunk: list[int] = []
    for i in sorted(range(len(texts)), key=lambda i: (tokens[i], len(texts[i]))):
        if chunk and (len(chunk) == MOST_TEXTS or (len(chunk) + 1) * tokens[i] > budget):
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def small_pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the distinct texts in order, few at a time: no piece takes long unless it is one long text."""
    piece = list[str]()
    for text in dict.fromkeys(texts):
        if piece and sum(map(len, piece)) + len(text) > SMALL_CHARACTERS:
            yield piece
            piece = []
        piece.append(text)
    if piece:
        yield piece


def tokens_of(text: str, longest: int | None) -> int:
    """Return about how many tokens a text has after the cut at `longest`."""
    about = 2 + len(text.encode(errors="replace")) // BYTES_PER_TOKEN
    return about if longest is None else min(about, longest)


@dataclass(slots=True)
class Share:
    """What one caller has had so far: the virtual time at which its last piece of work ends."""

    ends: float = 0.0


class FairTurns:
    """One turn at a time, in the order in which the work would end if all callers were served side by side.

    Self-clocked fair queueing (Golestani, INFOCOM 1994): a caller with little work waits for the piece at
    work and for little else, however many have brought much; and none waits for ever.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._taken = False
        self._virtual = 0.0

    @asynccontextmanager
    async def turn(self, size: float, share: Share) -> AsyncIterator[None]:
        """Hold a turn for a piece of work of this size (any unit); waits for it to begin."""
        share.ends = max(share.ends, self._virtual) + size
        await self._begin(share.ends)
        try:
            yield
        finally:
            self._pass_on()

    async def _begin(self, ends: float) -> None:
        if not self._taken:
            self._taken, self._virtual = True, ends
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (ends, next(self._arrivals), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():  # the turn came just as the caller left
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            ends, _, given = heapq.heappop(self._waiting)
            if not given.done():
                self._virtual = ends
                given.set_result(None)
                return
        self._taken = False


# What every embedder needs around its model: each text embedded once, kept, and never too many at a time.

Vectors = NDArray[np.float32]

SMALLEST_NORM = 1e-12  # below it a direction is rounding noise
HUGE = 1e100  # a number whose square may be too large for a float64; a server may send any
SMOOTHING = 0.2  # of the mean time of a batch, from which Retry-After comes
LONGEST_KEY = 200  # characters; a hash is shorter than longer ones
STARTS = 3  # of a call that meets two makers: one swap is met once, a server of two models for ever


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """What made vectors. Two may have one identity: other weights behind the same name.

    `mark`: its vector of a text that is known, by which a server is told apart; None: not asked for.
    """

    identity: EmbedderIdentity
    mark: Vectors | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Unit rows, one per text, and what made all of them."""

    rows: Vectors
    maker: Maker


class TwoMakersError(Exception):
    """Vectors of two models came for one call."""


class _AheadError(Exception):
    """A batch failed that was begun ahead: who has joined it since begins one of his own."""


Compute = Callable[[list[str]], Awaitable[Made]]
"""Embeds texts; raises TwoMakersError, or what the caller is told."""


def unit_rows(raw: NDArray[np.generic], count: int) -> Vectors:
    """Return the rows scaled to length 1: float32, C-contiguous, shape (count, dimension).

    Raises EmbedderUnavailable when the shape is wrong, or a row is zero or not finite.
    """
    if raw.ndim != 2 or raw.shape[0] != count or raw.shape[1] == 0:
        raise EmbedderUnavailable("The embedder did not return one vector per text.")
    rows = raw.astype(np.float64)
    if not np.isfinite(rows).all():
        raise EmbedderUnavailable("The embedder returned a vector that is not finite.")
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows /= np.where(largest > HUGE, largest, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if count and norms.min() < SMALLEST_NORM:
        raise EmbedderUnavailable("The embedder returned a zero vector.")
    return np.ascontiguousarray(rows / norms, dtype=np.float32)


@dataclass(eq=False, slots=True)
class _Batch:
    """Texts being embedded, and how many callers wait for them. `ahead`: begun before one asked for them."""

    texts: list[str]
    task: asyncio.Task[Made]
    ahead: bool = False
    waiters: int = 0


class VectorCache:
    """Embeds what is missing, keeps at most `max_entries` vectors, runs at most `max_queue` batches at once.

    A text that is being embedded for one caller is not embedded again for another. When every caller of a
    batch has gone, the batch is cancelled. Vectors take 4 bytes per dimension each. All that are kept are of
    one maker, the last seen, and so are those of a call: one that meets two starts again.
    """

    def __init__(self, compute: Compute, *, max_entries: int, max_queue: int) -> None:
        self._compute = compute
        self._kept: LRU[str | bytes, Vectors] = LRU(max_entries)
        self._max_entries = max_entries
        self._max_queue = max_queue
        self._idle = asyncio.Event()  # no batch is under way
        self._idle.set()
        self._running: dict[str, _Batch] = {}
        self._batches: set[_Batch] = set()
        self._mean_s = 0.0
        self._maker: Maker | None = None

    async def rows(self, texts: Sequence[str]) -> Embedded:
        """Return one row per text, shape (len(texts), dimension); `texts` is not empty.

        Raises Overloaded when the queue is full, EmbedderUnavailable when the maker changes again and again,
        and what `compute` raises.
        """
        for _ in range(STARTS):
            with contextlib.suppress(TwoMakersError, _AheadError):
                return await self._rows(texts)
        raise EmbedderUnavailable("The embedder answers as two models by turns; ask again.")

    async def ahead(self, texts: Sequence[str]) -> None:
        """Embed and keep those of the texts that are new, in small pieces, each begun while none is embedded.

        One piece at a time, whoever asks: more would stand between a caller and the vectors he waits for.
        Raises what `compute` raises.
        """
        if not self._max_entries:
            return
        for piece in small_pieces(texts):
            # Again and again: of those who wait here, he who woke first has begun a batch.
            while self._batches:
                await self._idle.wait()
            missing = [text for text in piece if self._kept.get(_key(text)) is None]
            if missing:
                await self._made_ahead(missing)

    async def _made_ahead(self, texts: list[str]) -> None:
        batch = self._start(texts, ahead=True)
        batch.waiters += 1
        try:
            with contextlib.suppress(TwoMakersError):
                await _result(batch)
        finally:
            self._release(batch)

    async def _rows(self, texts: Sequence[str]) -> Embedded:
        maker = self._maker
        rows, batches = self._look_up(texts)
        makers = {maker} if rows else set()
        for batch in batches:
            batch.waiters += 1
        try:
            for batch in batches:
                made = await _shared(batch)
                makers.add(made.maker)
                rows.update(zip(batch.texts, made.rows, strict=True))
        finally:
            for batch in batches:
                self._release(batch)
        if len(makers) > 1:
            raise TwoMakersError
        (one,) = makers
        assert one is not None
        return Embedded(np.stack([rows[text] for text in texts]), one.identity)

    def _look_up(self, texts: Sequence[str]) -> tuple[dict[str, Vectors], list[_Batch]]:
        # Batches in order and once each: two texts may be in one.
        rows, batches, missing = dict[str, Vectors](), dict[_Batch, None](), list[str]()
        for text in dict.fromkeys(texts):
            if (row := self._kept.get(_key(text))) is not None:
                rows[text] = row
            elif (batch := self._running.get(text)) is not None:
                batches[batch] = None
            else:
                missing.append(text)
        if missing:
            batches[self._start(missing)] = None
        return rows, list(batches)

    def _start(self, texts: list[str], *, ahead: bool = False) -> _Batch:
        asked = sum(not batch.ahead for batch in self._batches)  # nobody is refused for what is done ahead
        if asked >= self._max_queue:
            wait_s = max(1.0, len(self._batches) * self._mean_s)
            raise Overloaded("Too many texts are waiting for the embedder.", retry_after_s=wait_s)
        batch = _Batch(texts, asyncio.create_task(self._embed(texts)), ahead)
        self._batches.add(batch)
        self._idle.clear()
        self._running.update(dict.fromkeys(texts, batch))
        batch.task.add_done_callback(lambda task: self._done(batch))
        return batch

    async def _embed(self, texts: list[str]) -> Made:
        began = time.monotonic()
        # A lone surrogate, which JSON can carry, is no text that a tokenizer or a socket takes.
        made = await self._compute([text.encode("utf-8", "replace").decode() for text in texts])
        self._mean_s += SMOOTHING * (time.monotonic() - began - self._mean_s)
        return made

    def _done(self, batch: _Batch) -> None:
        self._forget(batch)
        if not batch.task.cancelled() and batch.task.exception() is None:
            made = batch.task.result()
            self._keep_those_of(made.maker)
            for text, row in zip(batch.texts, made.rows, strict=True):
                self._kept.put(_key(text), row.copy())  # a view would keep its whole batch in memory

    def _keep_those_of(self, maker: Maker) -> None:
        if maker is not self._maker:
            self._kept.clear()
            self._maker = maker

    def _release(self, batch: _Batch) -> None:
        batch.waiters -= 1
        if batch.waiters == 0 and not batch.task.done():
            self._forget(batch)
            batch.task.cancel()

    def _forget(self, batch: _Batch) -> None:
        self._batches.discard(batch)
        if not self._batches:
            self._idle.set()
        for text in batch.texts:
            if self._running.get(text) is batch:
                del self._running[text]


def _key(text: str) -> str | bytes:
    """Return the text, or a hash of a long one: else the cache could hold gigabytes of text."""
    if len(text) <= LONGEST_KEY:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()


async def _shared(batch: _Batch) -> Made:
    try:
        return await _result(batch)
    except EmbedderUnavailable:
        if batch.ahead:
            raise _AheadError from None
        raise


async def _result(batch: _Batch) -> Made:
    try:
        return await asyncio.shield(batch.task)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if batch.task.cancelled() and not (task is not None and task.cancelling()):
            raise EmbedderUnavailable("The embedder has been stopped.") from None
        raise
