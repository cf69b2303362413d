"""Keeps the caller's texts out of what an LLM server says about them. Pure functions, linear in the texts.

The server's message is short and the texts may be megabytes, so the work is put on the message: it is cut to
`SCANNED` characters, its escapes are undone instead of escaping the texts, and each 16 characters in a row of
it are looked up among those of the texts. Hashes are taken of whole arrays: a few milliseconds a megabyte.
"""

import html
import json
import re
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

SCANNED = 2000  # characters of a message that are looked at; the rest is dropped
MARK = "[prompt]"
ESCAPED_AT_MOST = 3  # JSON inside JSON inside JSON
# Texts are hashed in blocks of 8 characters, two neighbours together: of a text's characters in a row that a
# message repeats, any 23 hold two such blocks.
BLOCK = 8
GRAM = 2 * BLOCK
ECHO = GRAM + BLOCK - 1
PIECE = 4096  # hashes taken at a time, so that what is worked on stays in the processor's cache
WORD_OF_ITS_OWN = 8  # texts up to this length count as an echo only between characters that are no letters

Hashes = NDArray[np.uint64]
Span = tuple[int, int]

# Odd, so that no bit of a character is lost in the product.
_FACTORS = np.random.default_rng(8).integers(2**63, size=(2, BLOCK // 2), dtype=np.uint64) | np.uint64(1)
_ESCAPE = re.compile(
    r"""
    \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # a character beyond 16 bits, in two halves
    | \\(?:u[0-9a-fA-F]{4} | U[0-9a-fA-F]{8} | x[0-9a-fA-F]{2} | [abfnrtv'"\\/0])
    """,
    re.VERBOSE,
)
_ENTITY = re.compile(r"&#?\w{1,8};")
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


def redact(message: str, texts: Sequence[str]) -> str:
    """Return the beginning of the message with every echo of the texts replaced by `MARK`.

    An echo is a whole text (a short one as a word of its own), or any `ECHO` characters in a row of one,
    plain or escaped as JSON, Python or HTML do.
    """
    echoes = _Echoes(texts)
    message = message[:SCANNED]
    spans = {
        (origins[start], origins[end])
        for reading, origins in _readings(message)
        for start, end in echoes.spans(reading)
    }
    return _replaced(message, sorted(spans))


def _readings(message: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the message as it is and with escapes undone, each with the origin of every character."""
    plain: Sequence[int] = range(len(message) + 1)
    yield from _unescaped_again(message, plain)
    if "&" in message:
        yield from _unescaped_again(*_unescaped(_ENTITY, message, plain))


def _unescaped_again(level: str, origins: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    for _ in range(ESCAPED_AT_MOST):
        yield level, origins
        if "\\" not in level:
            return
        level, origins = _unescaped(_ESCAPE, level, origins)
    yield level, origins


def _replaced(message: str, spans: list[Span]) -> str:
    """Return the message with a mark for each run of spans that overlap or touch."""
    pieces: list[str] = []
    shown_to = 0
    for start, end in spans:
        if start > shown_to or not pieces:
            pieces += [message[shown_to:start], MARK]
        shown_to = max(shown_to, end)
    return "".join([*pieces, message[shown_to:]])


class _Echoes:
    """Finds what a message repeats of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        stripped = {text.strip() for text in texts} - {""}
        self._short = [text for text in stripped if len(text) < ECHO]
        # Each text begins at a block, and a block of nothing keeps it from the next.
        padded = (text.ljust(-(-len(text) // BLOCK) * BLOCK, "\0") for text in stripped if len(text) >= ECHO)
        self._long = ("\0" * BLOCK).join(padded)
        self._hashes = _hashes(self._long)

    def spans(self, message: str) -> Iterator[Span]:
        """Yield begin and end of each echo, in no order; they may overlap."""
        yield from self._whole(message)
        yield from self._parts(message)

    def _whole(self, message: str) -> Iterator[Span]:
        for text in self._short:
            start = message.find(text)
            while start >= 0:
                end = start + len(text)
                if len(text) > WORD_OF_ITS_OWN or _is_word(message, start, end):
                    yield start, end
                start = message.find(text, end)

    def _parts(self, message: str) -> Iterator[Span]:
        """Yield the places of 16 characters that stand in a long text too, with what agrees around them."""
        places: dict[int, list[int]] = {}
        for shift in range(BLOCK):
            for i, known in enumerate(_hashes(message[shift:]).tolist()):
                places.setdefault(known, []).append(shift + BLOCK * i)
        for block in _found(self._hashes, places):
            for place in places[int(self._hashes[block])]:
                yield self._agreeing(message, place, BLOCK * block)

    def _agreeing(self, message: str, place: int, origin: int) -> Span:
        """Widen 16 equal characters by what agrees left and right of them, less than a block each."""
        before, after = 0, 0
        while before < min(BLOCK - 1, place, origin) and (
            message[place - before - 1] == self._long[origin - before - 1]
        ):
            before += 1
        end, origin_end = place + GRAM, origin + GRAM
        left = min(BLOCK - 1, len(message) - end, len(self._long) - origin_end)
        while after < left and message[end + after] == self._long[origin_end + after]:
            after += 1
        return place - before, end + after


def _hashes(text: str) -> Hashes:
    """Return a hash of the 16 characters at every eighth place."""
    blocks = len(text) // BLOCK
    hashes = np.empty(max(blocks - 1, 0), dtype=np.uint64)
    for begin in range(0, len(hashes), PIECE):
        end = min(begin + PIECE, len(hashes))
        hashes[begin:end] = _hashes_of_piece(text[BLOCK * begin : BLOCK * (end + 1)])
    return hashes


def _hashes_of_piece(text: str) -> Hashes:
    # Two characters of 32 bits to a number.
    pairs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u8").reshape(-1, BLOCK // 2)
    first, second = _mixed(pairs, _FACTORS[0]), _mixed(pairs, _FACTORS[1])
    hashes: Hashes = first[:-1] + second[1:]
    return hashes


def _mixed(pairs: Hashes, factors: Hashes) -> Hashes:
    """Return the sum of products of each row, modulo 2^64; numpy's own is slow for integers."""
    total: Hashes = pairs[:, 0] * factors[0]
    for column in range(1, len(factors)):
        total += pairs[:, column] * factors[column]
    return total


def _found(hashes: Hashes, wanted: dict[int, list[int]]) -> list[int]:
    """Return the first index of each wanted hash among the hashes."""
    if not wanted or not len(hashes):
        return []
    known, leading = np.fromiter(wanted, dtype=np.uint64, count=len(wanted)), np.uint64(48)
    likely = np.zeros(2**16, dtype=np.bool_)  # by the leading 16 bits: sorts out nearly all
    likely[known >> leading] = True
    candidates = np.flatnonzero(likely[hashes >> leading])
    hits = candidates[np.isin(hashes[candidates], known)]
    _, first = np.unique(hashes[hits], return_index=True)
    return [int(block) for block in hits[first]]


def _is_word(message: str, start: int, end: int) -> bool:
    around = message[start - 1 : start] + message[end : end + 1]
    return not any(character.isalnum() or character == "_" for character in around)


def _unescaped(escapes: re.Pattern[str], message: str, origins: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return the message with one layer of escapes undone, and each character's (and the end's) origin."""
    pieces, kept, done = list[str](), list[int](), 0
    for match in escapes.finditer(message):
        start, character = match.start(), _character(match.group())
        pieces += [message[done:start], character]
        kept += [*origins[done:start], *[origins[start]] * len(character)]
        done = match.end()
    return "".join([*pieces, message[done:]]), [*kept, *origins[done:]]


def _character(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] not in "uUx":
        return _NAMED.get(escape[1], escape[1])
    if len(escape) == 12:  # two halves of a surrogate pair
        return str(json.loads(f'"{escape}"'))
    code = int(escape[2:], 16)
    return chr(code) if code <= sys.maxunicode else escape
