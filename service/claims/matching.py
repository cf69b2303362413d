"""Claims of a long answer compared with drawn answers, by sentences (**ours**, method, section 13).

The embedding of a whole answer shows its topic, not its claims. So each drawn answer is represented by its
sentence nearest to the claim, and the kernel of short answers compares these sentences (`claims.kernel`).
An answer without a sentence near enough is silent: a separate outcome, orthogonal to the claim and to all
other answers. Maps, fits and probabilities of short answers apply to these outcomes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.claims.facts import asked_part, possible_questions
from service.claims.kernel import kernel_of, read_texts
from service.claims.values import Quantity, quantities
from service.spectral.spectrum import unit_rows

Floats = NDArray[np.float64]
# Sentences about other questions have cosines of at most .55, 99 % of those about the same one above .6.
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
    """A claim compared with m drawn answers.

    kernel: (n, n), of the k outcomes, which are the distinct sentences that speak of the claim and each
    silent answer; then of the claim; last of the nearest reference, if one speaks of the claim
    (`has_reference`). index: (m,), the outcome of each answer. cosines: (m,), of the whole claim to the
    nearest sentence of each answer; -inf for an answer without sentences. example: the differing sentence
    that is least like the claim.
    """

    kernel: Floats
    index: NDArray[np.intp]
    has_reference: bool
    cosines: Floats
    support: Support
    example: str | None

    @property
    def num_outcomes(self) -> int:
        """Number of outcomes k, at least 1."""
        return len(self.kernel) - 1 - self.has_reference


class Matcher:
    """Compares claims with m drawn answers.

    answers: the sentences of each. vectors: (d,), by text, of each sentence and of its words that the
    question lacks. In a prompt with several questions, sentences about the same question as the claim
    precede nearer ones. Raises ValueError without answers.
    """

    def __init__(
        self,
        claims: Sequence[str],
        answers: Sequence[Sequence[str]],
        vectors: Mapping[str, NDArray[np.float32]],
        *,
        question: str,
        references: Sequence[str] = (),
    ) -> None:
        if not answers:
            raise ValueError("a claim needs at least one drawn answer")
        table = list(dict.fromkeys(chain.from_iterable(answers)))
        row = {text: i for i, text in enumerate(table)}
        self._answers = [np.array([row[text] for text in answer], dtype=np.intp) for answer in answers]
        self._texts = [*table, *claims, *references]
        self._claims = range(len(table), len(table) + len(claims))
        self._whole = unit_rows([vectors[text] for text in self._texts])
        self._reading = read_texts(self._texts, question, len(table))
        self._kernel = kernel_of(self._reading, [vectors[text] for text in self._reading.compared])
        part = asked_part(question)
        self._question_numbers = {quantity.number for quantity in quantities(part)}
        self._questions = possible_questions(self._texts, question)

    def matches(self) -> Iterator[MatchedClaim]:
        """Yield each claim compared with the answers."""
        return map(self._match, self._claims)

    def _match(self, row: int) -> MatchedClaim:
        cosines = self._whole @ self._whole[row]
        is_own = [not self._questions[row].isdisjoint(of_text) for of_text in self._questions]
        preferred = np.array(is_own) & (cosines >= SPEAKS)
        nearest = [_nearest(of_answer, cosines, preferred) for of_answer in self._answers]
        spoken = sorted({i for i in nearest if i is not None and cosines[i] >= SPEAKS})
        references = [i for i in range(self._claims.stop, len(self._texts)) if cosines[i] >= SPEAKS]
        others = [row, *sorted(references, key=cosines.__getitem__)[-1:]]
        place = {sentence: at for at, sentence in enumerate(spoken)}
        index = np.array([-1 if i is None else place.get(i, -1) for i in nearest], dtype=np.intp)
        silent = np.flatnonzero(index < 0)
        index[silent] = len(spoken) + np.arange(silent.size)
        # Silent answers are orthogonal to everything.
        kernel = np.eye(len(spoken) + silent.size + len(others))
        known = [*range(len(spoken)), *range(len(spoken) + silent.size, len(kernel))]
        kernel[np.ix_(known, known)] = self._kernel[np.ix_([*spoken, *others], [*spoken, *others])]
        differing = {i for i in spoken if not self._agrees(row, i, cosines[i])}
        differ = sum(i in differing for i in nearest)
        return MatchedClaim(
            kernel,
            index,
            len(others) > 1,
            np.array([-np.inf if i is None else cosines[i] for i in nearest]),
            Support(len(self._answers) - silent.size - differ, differ, silent.size),
            self._texts[min(differing, key=cosines.__getitem__)] if differing else None,
        )

    def _agrees(self, claim: int, sentence: int, cosine: float) -> bool:
        """Return True if a sentence agrees with a claim, by their facts.

        It disagrees if only one of the two is negated, if each has a number that the other lacks, or if it
        has none of the claim's numbers that the question lacks. If both have names, at least half of the
        names in the text with fewer names must be in the other. A sentence without names agrees by its
        numbers.
        """
        reading, question_numbers = self._reading, self._question_numbers
        numbers, others = reading.quantities[claim], reading.quantities[sentence]
        missing, further = _less(numbers, others), _less(others, numbers)
        is_negation = reading.negated[claim] != reading.negated[sentence]
        if is_negation or (missing and further):
            return False
        names, other_names = reading.names[claim], reading.names[sentence]
        own = [quantity for quantity in numbers if quantity.number not in question_numbers]
        if not own and not names:
            is_known = all(quantity.number in question_numbers for quantity in further)
            return not other_names and is_known and cosine >= AGREES
        if own and not _less(own, missing):
            return False
        if names and other_names:
            return 2 * len(names & other_names) >= min(len(names), len(other_names))
        return bool(own) or not names


def _nearest(rows: NDArray[np.intp], cosines: Floats, preferred: NDArray[np.bool_]) -> int | None:
    """Return the row of an answer's sentence with the largest cosine, among preferred rows if any."""
    if not rows.size:
        return None
    rows = rows[preferred[rows]] if preferred[rows].any() else rows
    return int(rows[cosines[rows].argmax()])


def _less(quantities: Sequence[Quantity], others: Sequence[Quantity]) -> list[Quantity]:
    """Return the quantities that the others lack. A number without a unit equals the number with any unit."""
    amounts = {other.amount for other in others}
    units = defaultdict[str, set[str]](set)
    for other in others:
        units[other.number].add(other.unit)
    return [
        quantity
        for quantity in quantities
        if quantity.amount not in amounts
        and (
            not (of_number := units[quantity.number])
            or (quantity.unit and not {quantity.unit, ""} & of_number)
        )
    ]
