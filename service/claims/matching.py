"""Claims of a long answer compared with drawn answers, by sentences (**ours**, method, section 13).

A whole answer's embedding says what it is about, not which claims it makes. So the sentence nearest to a
claim stands for each drawn answer, as a short answer would, and the kernel of short answers compares them
(`claims.kernel`). An answer without a sentence near enough is silent: an outcome of its own, orthogonal to
the claim and to all others. Maps, fits and probabilities of short answers apply to these outcomes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.claims.facts import asked_part, beyond, possible_questions, read_words
from service.claims.kernel import Quantity, Reading, kernel_matrix, quantities_of, read_texts, realize
from service.spectral.spectrum import unit_rows

Floats = NDArray[np.float64]
# Sentences on other questions have cosines of up to .55, 99 of 100 on the same one have more than .6.
SPEAKS = 0.55
# Sentences without numbers and names agree if nearly all of their words are the same.
AGREES = 0.92


@dataclass(frozen=True, slots=True)
class Support:
    """The number of drawn answers that agree with a claim, differ from it, or do not speak of it."""

    agree: int
    differ: int
    silent: int

    @property
    def spoken_of(self) -> bool:
        """Whether any answer speaks of the claim."""
        return self.agree + self.differ > 0


@dataclass(frozen=True, slots=True, eq=False)
class MatchedClaim:
    """A claim and what m drawn answers say of it.

    outcomes: (k, m + 3), unit vectors of the distinct sentences that speak of the claim, then of each silent
    answer. index: (m,), the outcome of each answer. claim: (m + 3,). reference: (m + 3,), of the nearest
    reference; None if none speaks of the claim. The last coordinate of all is 0. cosines: (m,), of the whole
    claim to the nearest sentence of each answer; -inf for an answer without sentences. example: the differing
    sentence that is least like the claim.
    """

    outcomes: Floats
    index: NDArray[np.intp]
    claim: Floats
    reference: Floats | None
    cosines: Floats
    support: Support
    example: str | None


def match_claims(
    claims: Sequence[str],
    answers: Sequence[Sequence[str]],
    vectors: Mapping[str, NDArray[np.float32]],
    *,
    question: str,
    references: Sequence[str] = (),
) -> Iterator[MatchedClaim]:
    """Yield each claim with what m drawn answers say of it.

    answers: the sentences of each. vectors: (d,), of each sentence and of what it says beyond the question.
    In a prompt of several questions, sentences on the claim's own question come before nearer ones. Raises
    ValueError without answers.
    """
    if not answers:
        raise ValueError("a claim needs at least one drawn answer")
    table = list(dict.fromkeys(chain.from_iterable(answers)))
    row = {text: i for i, text in enumerate(table)}
    rows = [np.array([row[text] for text in answer], dtype=np.intp) for answer in answers]
    texts = [*table, *claims, *references]
    compared = beyond(texts, question)
    whole = unit_rows([vectors[text] for text in texts])
    reading = read_texts(texts, compared, question, len(table))
    kernel = kernel_matrix(reading, [vectors[text] for text in compared])
    part = asked_part(question)
    asked = {one.number for one in quantities_of(read_words(part), part)}
    questions = possible_questions(texts, question)
    end = len(table) + len(claims)  # of the claims, where the references begin
    for claim in range(len(table), end):
        cosines = whole @ whole[claim]
        is_own = [not questions[claim].isdisjoint(some) for some in questions]
        preferred = np.array(is_own) & (cosines >= SPEAKS)
        nearest = [_nearest(some, cosines, preferred) for some in rows]
        spoken = sorted({i for i in nearest if i is not None and cosines[i] >= SPEAKS})
        near = [i for i in range(end, len(texts)) if cosines[i] >= SPEAKS]
        chosen = [*spoken, claim, *sorted(near, key=cosines.__getitem__)[-1:]]
        outcomes, index, others = _space(kernel[np.ix_(chosen, chosen)], spoken, nearest)
        differing = {i for i in spoken if not _agrees(reading, claim, i, cosines[i], asked)}
        differ = sum(i in differing for i in nearest)
        silent = sum(i not in spoken for i in nearest)
        yield MatchedClaim(
            outcomes,
            index,
            others[0],
            others[1] if near else None,
            np.array([-np.inf if i is None else cosines[i] for i in nearest]),
            Support(len(answers) - silent - differ, differ, silent),
            table[min(differing, key=cosines.__getitem__)] if differing else None,
        )


def _space(
    kernel: Floats, spoken: Sequence[int], nearest: Sequence[int | None]
) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Return the outcomes (k, m + 3) of m answers, the outcome of each answer (m,), and the other texts.

    kernel: of the sentences that speak of a claim, the claim and, if there is one, its reference. nearest:
    the row of each answer's sentence; an answer whose sentence is not in `spoken` is an outcome of its own.
    """
    width = len(nearest) + 3
    vectors = np.zeros((len(kernel), width))
    vectors[:, : len(kernel)] = realize(kernel)
    place = {i: at for at, i in enumerate(spoken)}
    silent = [j for j, i in enumerate(nearest) if i not in place]
    index = np.array([place.get(i, 0) if i is not None else 0 for i in nearest], dtype=np.intp)
    index[silent] = len(spoken) + np.arange(len(silent))
    directions = np.eye(width)[len(kernel) : len(kernel) + len(silent)]
    return np.concatenate([vectors[: len(spoken)], directions]), index, vectors[len(spoken) :]


def _nearest(rows: NDArray[np.intp], cosines: Floats, preferred: NDArray[np.bool_]) -> int | None:
    """Return the row of an answer's sentence with the largest cosine, a preferred one if there is any."""
    if not rows.size:
        return None
    some = rows[preferred[rows]] if preferred[rows].any() else rows
    return int(some[cosines[some].argmax()])


def _agrees(reading: Reading, claim: int, sentence: int, cosine: float, asked: Set[str]) -> bool:
    """Return True if a sentence agrees with a claim. asked: the numbers of the question.

    It does not if only one of both is negated, if each holds a number that the other lacks, or if it holds
    none of the claim's numbers beyond the question. If both hold names, at least half of those in the text
    with fewer names are in the other. A sentence without names agrees by its numbers.
    """
    numbers, others = reading.quantities[claim], reading.quantities[sentence]
    missing, further = _less(numbers, others), _less(others, numbers)
    if reading.negated[claim] != reading.negated[sentence] or (missing and further):
        return False
    names, other_names = reading.names[claim].keys(), reading.names[sentence].keys()
    own = [one for one in numbers if one.number not in asked]
    if not own and not names:
        return not other_names and all(one.number in asked for one in further) and cosine >= AGREES
    if own and not _less(own, missing):
        return False
    if names and other_names:
        return 2 * len(names & other_names) >= min(len(names), len(other_names))
    return bool(own) or not names


def _less(some: Sequence[Quantity], others: Sequence[Quantity]) -> list[Quantity]:
    """Return the numbers that the others lack. A number without a unit is the same with any unit."""
    units = defaultdict[str, set[str]](set)
    for one in others:
        units[one.number].add(one.unit)
    return [
        one for one in some if not (found := units[one.number]) or (one.unit and not {one.unit, ""} & found)
    ]
