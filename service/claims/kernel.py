"""The kernel that answers to one question are compared by (**ours**, method, section 16).

The cosine of whole sentences compares wording: "The capital of Italy is Milan." is nearer to "The capital
of Italy is Rome." than "It is Rome." is. The kernel of two answers is a product of four:

- the cosine of the embeddings of what each says beyond the question;
- the cosine of their numbers, with units ("30 days" is neither 90 days nor 30 months);
- the cosine of their names;
- `NEGATION` where one of them is negated and the other is not.

Each factor is a kernel with K(a, a) = 1, so the product is one (Schur, 1911), and all theory of density
matrices holds for it. `kernel_vectors` returns unit vectors that realize it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.claims.facts import POWERS_OF_TEN, Word, beyond, read_words, words_of_question
from service.embedding.port import FACTS, Kernel
from service.spectral.claims import Facts, fact_cosines
from service.spectral.spectrum import RANK_TOLERANCE, unit_rows

Floats = NDArray[np.float64]
# Beside .3 that all texts have in common: texts with different numbers have a cosine of .07, with different
# units .30, with different names .23.
NAME = 1.0
NUMBER, UNIT = 1.0, 3.0  # of a number, and of a number together with its unit
NEGATION = 0.3
BRIEF = 3  # words: a text of no more, without a number, may be a name

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_NEGATION = re.compile(rf"(?:{'|'.join(_DATA['negations'])})\Z")
_CONTRACTION = re.compile(r"n['\u2019]t(?!\w)")
_NUMERALS = {word: number for number, words in _DATA["numerals"].items() for word in words}
_UNITS = {word: unit for unit, words in _DATA["units"].items() for word in words}
_DEGREES = frozenset(_DATA["degrees"])
_NO_NAME = re.compile(
    rf"(?:{'|'.join([*_DATA['no_names'], *_DATA['negations'], *_DATA['degrees'], *_UNITS])})\Z"
)
_SIGNS: Mapping[str, str] = _DATA["signs"]


def compared_texts(texts: Sequence[str], question: str, kernel: Kernel) -> list[str]:
    """Return the text of each answer that the kernel takes the embedding of."""
    return beyond(texts, question) if kernel == FACTS else [*texts]


def kernel_vectors(
    texts: Sequence[str],
    compared: Sequence[str],
    embeddings: ArrayLike,
    question: str,
    num_drawn: int | None = None,
) -> Floats:
    """Return one unit vector per text, (n, n): their products are the kernel, in [-1, 1].

    compared: the `compared_texts`; embeddings: (n, d), of these. num_drawn: the number of first texts by
    which words are recognised as names (None: all). The kernel of these does not depend on the rest.
    """
    rows = unit_rows(embeddings)
    read = [read_words(text) for text in texts]
    numbers = [dict(_numbers(words, text)) for words, text in zip(read, texts, strict=True)]
    names = _names(read, compared, words_of_question(question), num_drawn)
    kernel = rows @ rows.T * fact_cosines(numbers, numbers) * fact_cosines(names, names)
    if not _is_negated(read_words(question), question):
        negated = [_is_negated(words, text) for words, text in zip(read, texts, strict=True)]
        kernel *= np.where(np.equal.outer(negated, negated), 1.0, NEGATION)
    return realize(kernel)


def realize(kernel: Floats) -> Floats:
    """Return unit vectors (n, n) with the products of a kernel matrix (n, n) of unit diagonal."""
    values, columns = np.linalg.eigh(kernel)
    return unit_rows(columns * np.sqrt(np.where(values > RANK_TOLERANCE, values, 0.0)))


def _numbers(words: Sequence[Word], text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a text with their weights, and each number with its unit."""
    for i, word in enumerate(words):
        number = word.plain if word.is_number else _NUMERALS.get(word.plain)
        if number is None:
            continue
        yield number, NUMBER
        between = next((word.plain for word in words[i + 1 : i + 2]), "")
        skips = between in _DEGREES or between.startswith(tuple(POWERS_OF_TEN))
        following = words[i + 1 + skips].plain if i + 1 + skips < len(words) else ""
        # A space may stand between number and sign.
        after = text[word.end : word.end + 2].lstrip()[:1]
        before = text[max(word.start - 2, 0) : word.start].rstrip()[-1:]
        unit = _SIGNS.get(after) or _SIGNS.get(before) or _UNITS.get(following)
        if unit is not None:
            yield f"{number} {unit}", UNIT


def _names(
    read: Sequence[Sequence[Word]], left: Sequence[str], asked: frozenset[str], num_drawn: int | None
) -> list[Facts]:
    """Return the names of each text. left: what the texts say beyond the question.

    A name is a word with a capital that the question does not hold. The first word of a sentence has a
    capital in any case: it is a name if the text is brief, or if it has a capital within a sentence of a
    drawn answer. A word that a drawn answer writes without a capital is none.
    """
    is_brief = [len(text.split()) <= BRIEF and not re.search(r"\d", text) for text in left]
    own = [
        {
            word.plain
            for word in words
            if word.has_capital and not _NO_NAME.match(word.plain) and (brief or not word.is_initial)
        }
        for words, brief in zip(read, is_brief, strict=True)
    ]
    drawn = read[:num_drawn]
    common = {word.plain for words in drawn for word in words if not word.has_capital} | asked
    known = {name for names in own[:num_drawn] for name in names} - common
    return [
        dict.fromkeys((names - common) | (known & {word.plain for word in words}), NAME)
        for names, words in zip(own, read, strict=True)
    ]


def _is_negated(words: Sequence[Word], text: str) -> bool:
    return any(_NEGATION.match(word.plain) for word in words) or bool(_CONTRACTION.search(text))
