"""The kernel that compares answers to one question (**ours**, method, section 1).

The cosine of whole sentences compares wording: "The capital of Italy is Milan." is nearer to "The capital
of Italy is Rome." than "It is Rome." is. The kernel of two answers is a product of four:

- the cosine of the embeddings of the words that the question lacks;
- the cosine of their numbers, with units ("30 days" is neither 90 days nor 30 months; see `values`);
- the cosine of their names;
- `NEGATION` if exactly one of them is negated.

Each factor is a kernel with K(a, a) = 1, so their product is a kernel too (Schur, 1911), and the theory of
density matrices applies.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.claims.facts import (
    LISTS,
    Word,
    asked_part,
    beyond,
    negated_words,
    read_words,
    words_of_question,
)
from service.claims.values import Quantity, by_case, compared_form, final_answer, quantities
from service.embedding.port import FACTS, PAPER, Kernel
from service.spectral.spectrum import RANK_TOLERANCE, unit_rows

Floats = NDArray[np.float64]
COMMON = 0.3  # a coordinate that all texts share
# With these weights texts with different numbers have a cosine of .07, with different units .30, with
# different names .23.
NAME = 1.0
NUMBER, UNIT = 1.0, 3.0  # of a number, and of a number together with its unit
NEGATION = 0.3
LLM_WEIGHT = 0.8  # of P(same) in the kernel; the facts have the rest. See `comparison.PROMPT_VERSION`
LEAST_DIRECTION = 0.01  # of the largest singular value of the first texts: smaller ones are noise
BRIEF = 3  # words: a text of no more, without a number, may be a name
OPPOSITES = frozenset(word for pair in LISTS["opposites"] for word in pair)

_UNITS = [word for words in LISTS["units"].values() for word in words if len(word) > 1]
_MONTHS = frozenset(word for words in LISTS["months"].values() for word in words)
_COMMON_WORDS = [word for kind in ("no_names", "negations", "degrees", "ordinals") for word in LISTS[kind]]
_NO_NAME = re.compile(rf"(?:{'|'.join([*_COMMON_WORDS, *_UNITS])})\Z")


def compared_texts(texts: Sequence[str], question: str) -> list[str]:
    """Return the text of each answer that the kernel `facts` takes the embedding of."""
    return [compared_form(text) for text in beyond([final_answer(text) for text in texts], question)]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """n texts that answer a question, as the kernel compares them.

    compared: the texts to embed. num_drawn: number of drawn texts, which come first. The facts are empty in
    the kernel `paper`. quantities: the numbers of each text. names: its names. negated: whether the text
    contains a negation that the question lacks.
    """

    compared: Sequence[str]
    num_drawn: int
    quantities: Sequence[Sequence[Quantity]]
    names: Sequence[frozenset[str]]
    negated: Sequence[bool]


def read_texts(
    texts: Sequence[str], question: str = "", num_drawn: int | None = None, kernel: Kernel = FACTS
) -> Reading:
    """Return n texts that answer a question, as the kernel compares them.

    num_drawn: number of drawn texts, which come first (None: all). Names are recognised by the drawn texts,
    so the facts of these do not depend on the other texts.
    """
    count = len(texts)
    drawn = count if num_drawn is None else num_drawn
    if kernel == PAPER:
        return Reading([*texts], drawn, [()] * count, [frozenset()] * count, [False] * count)
    compared = compared_texts(texts, question)
    answers = [by_case(final_answer(text)) for text in texts]
    asked = negated_words(asked_part(question))
    return Reading(
        compared,
        drawn,
        [list(quantities(text)) for text in answers],
        _names([*map(read_words, answers)], compared, words_of_question(question), drawn),
        [bool(negated_words(text) - asked) for text in answers],
    )


def kernel_of(reading: Reading, embeddings: ArrayLike, same: Floats | None = None) -> Floats:
    """Return the kernel of n texts, (n, n), in [-1, 1].

    embeddings: (n, d), of the texts in `compared`. same: P(same) of each pair (n, n) by an LLM, NaN if
    unknown.
    """
    rows = unit_rows(embeddings)
    numbers = [dict(_weighted(of_text)) for of_text in reading.quantities]
    names = [dict.fromkeys(of_text, NAME) for of_text in reading.names]
    kernel = rows @ rows.T
    for facts in (numbers, names):
        if any(facts):
            kernel *= _fact_cosines(facts)
    kernel *= np.where(np.equal.outer(reading.negated, reading.negated), 1.0, NEGATION)
    if same is None:
        return kernel
    realized = realize_first(with_comparison(kernel, same), reading.num_drawn)  # P(same) need not be a kernel
    return realized @ realized.T


def with_comparison(facts: Floats, same: Floats, weight: float = LLM_WEIGHT) -> Floats:
    """Return the kernel of n texts that an LLM has compared, (n, n): not always positive semidefinite.

    facts: the kernel, (n, n). same: P(same), (n, n), NaN where it is not known: the kernel stands for it.
    weight: of P(same), in [0, 1].
    """
    return (1 - weight) * facts + weight * np.where(np.isnan(same), facts, same)


def _fact_cosines(facts_of_texts: Sequence[Mapping[str, float]]) -> Floats:
    """Return the cosines (n, n) of the facts of texts, in (0, 1]: 1 for the same facts, or none in both.

    A text's vector has the coordinate sqrt(weight) for each fact, and the coordinate sqrt(`COMMON`). The
    vectors are not built, because answers may contain tens of thousands of numbers. A fact has one weight.
    """
    holders, weights = defaultdict[str, list[int]](list), dict[str, float]()
    for i, facts in enumerate(facts_of_texts):
        weights.update(facts)
        for fact in facts:
            holders[fact].append(i)
    products = np.full((len(facts_of_texts), len(facts_of_texts)), COMMON)
    for fact, places in holders.items():
        if len(places) > 1:
            products[np.ix_(places, places)] += weights[fact]
    squared = np.array([COMMON + sum(facts.values()) for facts in facts_of_texts])
    np.fill_diagonal(products, squared)
    lengths = np.sqrt(squared)
    return np.asarray(products / np.outer(lengths, lengths))


def _weighted(quantities: Sequence[Quantity]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a text with their weights, and each number with its unit and with its bound."""
    for quantity in quantities:
        yield quantity.number, NUMBER
        if quantity.unit:
            yield quantity.amount, UNIT
        if quantity.bound:
            yield f"{quantity.bound} {quantity.amount}", UNIT


def realize(kernel: Floats) -> Floats:
    """Return unit vectors (n, n) with the products of a kernel matrix (n, n) of unit diagonal."""
    values, columns = np.linalg.eigh(kernel)
    return unit_rows(columns * np.sqrt(np.where(values > RANK_TOLERANCE, values, 0.0)))


def realize_first(kernel: Floats, count: int) -> Floats:
    """Return unit vectors (n, count + 1) with products close to a kernel matrix (n, n).

    The vectors of the first `count` texts do not depend on the others. Of the other texts only the products
    with the first ones count.
    """
    first = realize(kernel[:count, :count])
    rest = np.linalg.lstsq(first, kernel[:count, count:], rcond=LEAST_DIRECTION)[0].T
    outside = np.sqrt(np.maximum(1.0 - np.square(rest).sum(axis=1), 0.0))
    space = np.zeros((len(kernel), count + 1))
    space[:count, :count], space[count:, :count], space[count:, count] = first, rest, outside
    return unit_rows(space)


def _names(
    read: Sequence[Sequence[Word]],
    left: Sequence[str],
    question_words: frozenset[str],
    num_drawn: int,
) -> list[frozenset[str]]:
    """Return the names of each text. left: the texts without the words of the question.

    A name is a word with a capital that the question lacks. The first word of a sentence always has a
    capital: it is a name if the text is brief, or if a drawn answer has it with a capital inside a sentence.
    A word that a drawn answer writes without a capital is not a name. In a brief text,
    `OPPOSITES` are names, too.
    """
    is_brief = [len(text.split()) <= BRIEF and not re.search(r"\d", text) for text in left]
    own = [
        {
            word.plain
            for i, word in enumerate(words)
            if word.has_capital
            and not _NO_NAME.match(word.plain)
            and (brief or not word.is_initial)
            # "Mars" is a planet, and "4 mars" a day; the M of "5M" is no name.
            and not (word.plain in _MONTHS and any(near.is_number for near in words[max(i - 1, 0) : i + 2]))
            and not (i and words[i - 1].is_number and words[i - 1].end == word.start)
        }
        for words, brief in zip(read, is_brief, strict=True)
    ]
    drawn = read[:num_drawn]
    common = {word.plain for words in drawn for word in words if not word.has_capital} | question_words
    drawn_names = {name for names in own[:num_drawn] for name in names} - common
    return [
        frozenset(
            word.plain
            for word in words
            if word.plain in drawn_names
            or (word.plain in names and word.plain not in common)
            or (brief and word.plain in OPPOSITES)
        )
        for names, words, brief in zip(own, read, is_brief, strict=True)
    ]
