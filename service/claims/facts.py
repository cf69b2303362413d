"""The numbers and names in a sentence: its facts, as far as they can be told without knowing the language."""

import re
import unicodedata
from collections.abc import Sequence

# A wrong number is wrong; a name may be left out, or be one of several for the same.
NUMBER_COUNTS, NAME_COUNTS = 4.0, 1.0

_WORD = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|[^\W\d_]+")
_GROUPS = re.compile(r"[.,](?=\d{3}(?!\d))")


def facts(sentences: Sequence[str], *, question: str = "") -> list[dict[str, float]]:
    """Return the facts of each sentence and how much each counts, less those of the question.

    A name is a word with a capital. The first of a sentence is one where it has a capital within another:
    "Paris is ..", "the capital is Paris". Scripts without capitals have numbers alone.
    """
    asked = {_plain(word.group()) for word in _WORD.finditer(question)}
    words = [[*_WORD.finditer(one)] for one in sentences]
    named = {_plain(word.group()) for found in words for word in found[1:] if word.group()[0].isupper()}
    return [
        {
            plain: NUMBER_COUNTS if word["number"] else NAME_COUNTS
            for i, word in enumerate(found)
            if (plain := _plain(word.group())) not in asked
            and (word["number"] or (word.group()[0].isupper() and (i > 0 or plain in named)))
        }
        for found in words
    ]


def _plain(word: str) -> str:
    """Return a word without case and accents, or a number without marks of thousands."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return _GROUPS.sub("", bare).casefold()
