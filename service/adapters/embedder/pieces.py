"""What a model is given at a time: texts cut to what it reads, in chunks of like length, by fair turns.

A text is cut before it is tokenised: else all of it is tokenised, and most dropped. A call of many texts is
cut into chunks, between which the small calls of others take their turns.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

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
