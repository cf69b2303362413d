"""Exchanged roles: texts of the same words, in which two parts have changed places (**ours**).

"Google bought YouTube" and "YouTube bought Google" have the same words and nearly the same embedding. Such
texts say different things. Texts say the same if only "and", "is" or the like stands between the parts
("Jupiter is the largest planet", "The largest planet is Jupiter"), in enumerations, and if one text begins
with another part ("He won in 1990", "In 1990 he won").

Not recognised are exchanged roles in other words ("YouTube was bought by Google"), symmetric verbs ("Anna met
Ben") and German sentences that begin with their object.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from service.claims.facts import LISTS, Word

MIN_WORDS, MAX_WORDS = 3, 60  # of a text, without articles
MAX_PART = 4  # words of a part
MAX_ORDERS = 8  # of the same words that are distinguished
_STEM_FROM = 4  # characters: "owes" and "owe" are one word
_ARTICLES = frozenset(LISTS["articles"])
_JOINS = frozenset(LISTS["conjunctions"]) | {","}
_SYMMETRIC = _JOINS | frozenset(LISTS["copulas"])
# Pronouns have other forms as objects. A part that begins with a preposition or an adverb has no role.
_NO_ROLE = frozenset(LISTS["no_names"]) | frozenset(LISTS["adverbs"])

Stems = tuple[str, ...]


def roles_of(read: Sequence[Sequence[Word]], texts: Sequence[str], num_drawn: int) -> list[dict[str, str]]:
    """Return for each text the order of its parts, if a drawn text exchanges them: a key, and the text.

    read: the words of each text. num_drawn: number of first texts, which were drawn. Their roles do not
    depend on the rest.
    """
    orders = defaultdict[Stems, list[Stems]](list)  # of the drawn texts, by their sorted words
    places = list[tuple[Stems, int]]()
    for i, (words, text) in enumerate(zip(read, texts, strict=True)):
        stems = tuple(_stems(words, text)) if len(words) <= 2 * MAX_WORDS else ()
        is_read = MIN_WORDS <= len(stems) <= MAX_WORDS
        key = tuple(sorted(stems)) if is_read else ()
        known = orders[key]
        place = next((at for at, order in enumerate(known) if not exchanged(order, stems)), len(known))
        if place == len(known) < MAX_ORDERS and is_read and i < num_drawn:
            known.append(stems)
        places.append((key, place))
    return [
        {f"{' '.join(key)} {place}": text} if orders[key] and max(len(orders[key]), place + 1) > 1 else {}
        for text, (key, place) in zip(texts, places, strict=True)
    ]


def exchanged(first: Stems, second: Stems) -> bool:
    """Return True if the second text is the first one with two parts exchanged around another word."""
    if _begin_elsewhere(*(tuple(word for word in text if word != ",") for text in (first, second))):
        return False
    while first and second and first[0] == second[0]:
        first, second = first[1:], second[1:]
    while first and second and first[-1] == second[-1]:
        first, second = first[:-1], second[:-1]
    n = len(first)
    return n == len(second) and any(
        (first[:i], first[i : n - j], first[n - j :]) == (second[n - i :], second[j : n - i], second[:j])
        and _may_have_a_role(first[:i])
        and _may_have_a_role(first[n - j :])
        and not _joins(first[i : n - j])
        for i in range(1, min(MAX_PART, n - 2) + 1)
        for j in range(1, min(MAX_PART, n - 1 - i) + 1)
    )


def _begin_elsewhere(first: Stems, second: Stems) -> bool:
    """Return True if two texts are equal but for the part with which they begin."""
    return any(word == second[0] and first[i:] + first[:i] == second for i, word in enumerate(first))


def _may_have_a_role(part: Stems) -> bool:
    return part[0] not in _NO_ROLE and not all(word[0].isdigit() for word in part)


def _joins(between: Stems) -> bool:
    """Return True if the parts on both sides of these words may change places."""
    return _SYMMETRIC.issuperset(between) or (between[0] in _JOINS and between[-1] in _JOINS)


def _stems(words: Sequence[Word], text: str) -> Iterator[str]:
    """Yield the words of a text without articles and plural, and its commas."""
    end = 0
    for word in words:
        if "," in text[end : word.start]:
            yield ","
        end = word.end
        if word.plain not in _ARTICLES:
            yield word.plain.removesuffix("s") if len(word.plain) >= _STEM_FROM else word.plain
