"""Exchanged roles: texts of the same words, in which two parts have changed places (**ours**).

"Google bought YouTube" and "YouTube bought Google" have the same words and nearly the same embedding. Such
texts say different things. Texts say the same if only "and", "is" or the like stands between the parts
("Jupiter is the largest planet", "The largest planet is Jupiter"), in enumerations ("North Korea and South
Korea"), and if one text begins with another part ("He won in 1990", "In 1990 he won").

Not recognised are exchanged roles in other words ("YouTube was bought by Google") or around "is" ("The owner
of A is B"), symmetric verbs ("Anna met Ben") and German sentences that begin with their object.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, product
from typing import NamedTuple

from service.claims.facts import LISTS, Word

MIN_WORDS, MAX_WORDS = 3, 60  # of a text, without articles
MAX_PART = 4  # words of a part
MAX_ORDERS = 8  # of the same words that are distinguished
_STEM_FROM = 4  # characters: "owes" and "owe" are one word
_SEPARATOR = re.compile(r"[,;/\n.!?:]")
_BREAK = ","  # stands for any separator


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) >= _STEM_FROM else word


def _stemmed(*lists: str) -> frozenset[str]:
    return frozenset(_stem(word) for name in lists for word in LISTS[name])


_ARTICLES = frozenset(LISTS["articles"])
_JOINS = _stemmed("conjunctions") | {_BREAK}
_SYMMETRIC = _JOINS | _stemmed("copulas")
# Pronouns have other forms as objects. A part that begins with a preposition or an adverb has no role.
_NO_ROLE = _stemmed("no_names", "adverbs")

Stems = tuple[str, ...]


class Role(NamedTuple):
    """The order of a text's parts. Texts of equal `words` have exchanged roles if their places differ.

    place: 0 for the first order, and for those that do not contradict it. text: as it is written.
    """

    words: Stems
    place: int
    text: str


def roles_of(read: Sequence[Sequence[Word]], texts: Sequence[str], num_drawn: int) -> list[Role]:
    """Return the order of the parts of each text.

    read: the words of each text. num_drawn: number of first texts, which were drawn. Their places do not
    depend on the rest.
    """
    stems = [
        tuple(_stems(words, text)) if len(words) <= 2 * MAX_WORDS else ()
        for words, text in zip(read, texts, strict=True)
    ]
    keys = [tuple(sorted(_bare(of_text))) for of_text in stems]
    keys = [key if MIN_WORDS <= len(key) <= MAX_WORDS else () for key in keys]
    orders = defaultdict[Stems, _Orders](_Orders)
    for key, of_text in zip(keys[:num_drawn], stems, strict=False):
        if key:
            orders[key].add(of_text)
    return [
        Role(key, orders[key].place(of_text) if key else 0, text)
        for key, of_text, text in zip(keys, stems, texts, strict=True)
    ]


class _Orders:
    """The orders of the same words in drawn texts, in groups that differ only in where the text begins."""

    def __init__(self) -> None:
        self._groups: list[list[Stems]] = []
        self._places: list[int] | None = None

    def add(self, stems: Stems) -> None:
        at = self._find(stems)
        if at is None and len(self._groups) < MAX_ORDERS:
            self._groups.append([stems])
        elif at is not None and stems not in self._groups[at] and len(self._groups[at]) < MAX_ORDERS:
            self._groups[at].append(stems)

    def place(self, stems: Stems) -> int:
        """Return the place of a text, when all drawn texts were added."""
        if self._places is None:
            self._places = []
            for group in self._groups:
                self._places.append(self._free_place(group))
        at = self._find(stems)
        return self._free_place([stems]) if at is None else self._places[at]

    def _find(self, stems: Stems) -> int | None:
        bare = _bare(stems)
        for at, group in enumerate(self._groups):
            if any(_begin_elsewhere(_bare(order), bare) for order in group):
                return at
        return None

    def _free_place(self, group: Sequence[Stems]) -> int:
        """Return the first place without an order that contradicts these."""
        placed = zip(self._groups, self._places or (), strict=False)
        taken = {
            place for others, place in placed if any(exchanged(*pair) for pair in product(others, group))
        }
        return next(place for place in count() if place not in taken)


def exchanged(first: Stems, second: Stems) -> bool:
    """Return True if the second text is the first one with two parts exchanged around another word."""
    if first.count(_BREAK) != second.count(_BREAK):
        first, second = _bare(first), _bare(second)
    before, after = list[str](), list[str]()  # what both have in common at their beginning and their end
    while first and second and first[0] == second[0]:
        before.append(first[0])
        first, second = first[1:], second[1:]
    while first and second and first[-1] == second[-1]:
        after.insert(0, first[-1])
        first, second = first[:-1], second[:-1]
    n = len(first)
    return n == len(second) and any(
        (first[:i], first[i : n - j], first[n - j :]) == (second[n - i :], second[j : n - i], second[:j])
        and _may_have_a_role(first[:i])
        and _may_have_a_role(first[n - j :])
        and not _joins(first[i : n - j], tuple(before), tuple(after))
        for i in range(1, min(MAX_PART, n - 2) + 1)
        for j in range(1, min(MAX_PART, n - 1 - i) + 1)
    )


def _bare(stems: Stems) -> Stems:
    return tuple(word for word in stems if word != _BREAK)


def _begin_elsewhere(first: Stems, second: Stems) -> bool:
    """Return True if two texts are equal but for the part with which they begin."""
    return first == second or any(
        word == second[0] and first[i:] + first[:i] == second for i, word in enumerate(first) if second
    )


def _may_have_a_role(part: Stems) -> bool:
    is_word = part[0] not in _NO_ROLE or len(part[0]) == 1  # "A beats B"
    return is_word and not all(word[0].isdigit() for word in part)


def _joins(between: Stems, before: Stems, after: Stems) -> bool:
    """Return True if the parts on both sides of these words may change places.

    before, after: the words before the first part and after the second. In "New York and New Jersey" the
    parts are "York" and "Jersey": between them are a conjunction, and what stands before both parts.
    """
    n = len(between)
    begins = [i for i in range(n) if between[:i] == after[:i]]
    ends = [j for j in range(1, n + 1) if between[j:] == before[len(before) - (n - j) :] or j == n]
    return _SYMMETRIC.issuperset(between) or any(
        i < j and between[i] in _JOINS and between[j - 1] in _JOINS for i in begins for j in ends
    )


def _stems(words: Sequence[Word], text: str) -> Iterator[str]:
    """Yield the words of a text without articles and plural, and a break for a separator between words."""
    end = words[0].start if words else 0
    for word in words:
        if _SEPARATOR.search(text, end, word.start):
            yield _BREAK
        end = word.end
        is_letter = word.has_capital and not word.is_initial  # "A beats B"
        if word.plain not in _ARTICLES or is_letter:
            yield _stem(word.plain)
