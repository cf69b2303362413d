"""What the fit is given: the usable rows, or their claims, with their answers as vectors."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Unit
from service.calibration.rows import MIN_USABLE_ROWS, ClaimIn, DevRow
from service.claims.facts import beyond
from service.claims.kernel import (
    compared_texts,
    kernel_matrix,
    read_texts,
    realize,
    realize_first,
    with_comparison,
)
from service.claims.matching import match_claims
from service.claims.segments import claims
from service.embedding.port import PAPER, EmbedderIdentity, EmptyAnswers, Kernel, distinct, usable
from service.errors import Conflict, InvalidDevData, LLMError
from service.spectral.conformal import ConformalReference
from service.spectral.dev_set import Answers
from service.spectral.text_scores import words

Floats = NDArray[np.float64]
Vectors = Mapping[str, NDArray[np.float32]]  # (d,) of each text
FULL_SHARE = 0.9
# Cosine of two questions with a reference in common that ask nearly the same. Of 1,151 recorded questions
# under MiniLM, different ones with a common reference have .79 at most, two that ask the same .93. Of ten
# questions thirty times, with numbers before or behind them, ten are left at .85; at .9 up to 18. Different
# questions of one form ("the 7th president") reach .97: hence the common reference. Of 58 questions "Is 7 a
# prime number?", all with the reference "yes", 17 are left.
NEAR = 0.85
COMPARED_AT_ONCE = 256  # rows
MAX_REFERENCE = 1000  # rows; every score is compared with all of them


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """The usable rows, at most `num_samples` answers each, as vectors.

    answers: one per row; full: positions of the rows that have `num_samples` answers; texts: the distinct
    answers of each row, in the order of its vectors; rows: as stored, answers cut to `num_samples`.
    dimension: d of the embedder; vectors have one more coordinate where any answer is empty. judged: by row,
    the vector (d,) of the `answer` that its verdict is about, None where it gives none. made_by: the embedder
    of every vector, where it is known. questions: by row, the vector (d,) of what is asked, None where it has
    no text; empty where they were not embedded. groups: (n,), rows that go together, as the claims of one
    answer do: drawn, held out and counted whole; None: each row is one.
    """

    rows: Sequence[DevRow]
    answers: Sequence[Answers]
    texts: Sequence[Sequence[str]]
    full: NDArray[np.int_]
    num_samples: int
    dimension: int
    judged: Sequence[NDArray[np.floating] | None]
    made_by: EmbedderIdentity | None = None
    questions: Sequence[NDArray[np.float32] | None] = ()
    groups: NDArray[np.int_] | None = None

    @property
    def shares_space(self) -> bool:
        """Return True if the vectors of two rows compare."""
        return self.groups is None and (self.made_by is None or self.made_by.kernel == PAPER)

    @property
    def full_groups(self) -> NDArray[np.int_] | None:
        """Return the groups of the full rows; None: each is one."""
        return None if self.groups is None else self.groups[self.full]

    def take(self, positions: Sequence[int]) -> "Material":
        """Return the rows at these positions. The rows must not have groups."""
        full = np.isin(positions, self.full)
        return replace(
            self,
            rows=[self.rows[i] for i in positions],
            answers=[self.answers[i] for i in positions],
            texts=[self.texts[i] for i in positions],
            judged=[self.judged[i] for i in positions],
            questions=[self.questions[i] for i in positions] if self.questions else (),
            full=np.flatnonzero(full),
        )


def full_number(sizes: Sequence[int], asked: int | None) -> int:
    """Return the number m of answers to fit with: as asked, or else the largest that nine rows in ten reach.

    Rows with more than m answers give their first m; rows with fewer serve the fits of smaller numbers only.
    """
    if asked is not None:
        return asked
    descending = sorted(sizes, reverse=True)
    return descending[int(np.ceil(FULL_SHARE * len(descending))) - 1]


def answered(stored: Sequence[DevRow], empty_answers: EmptyAnswers) -> list[DevRow]:
    """Return the rows with those of their draws that are answers."""
    return [replace(one, draws=usable(one.draws, empty_answers)) for one in stored]


def usable_rows(
    stored: Sequence[DevRow], asked: int | None, rng: np.random.Generator, unit: Unit = "answer"
) -> tuple[list[DevRow], int, int]:
    """Return the usable rows, answers cut to m; m; and how many copies of questions are left out.

    One row stands for each question. Raises InvalidDevData when fewer than 10 have m.
    """
    every = [one for one in stored if one.labelled(unit) and len(one.draws) >= 2]
    asked_once = _one_for_each_question(every, rng)
    num_samples = full_number([len(one.draws) for one in asked_once], asked) if asked_once else 2
    reach = sum(len(one.draws) >= num_samples for one in asked_once)
    if reach < MIN_USABLE_ROWS:
        refused = [one.refused for one in stored if one.refused is not None]
        if refused and not any(one.draws for one in stored):
            raise LLMError(refused[0])
        why = f" The LLM server refused {len(refused)} of the others: {refused[0]}" if refused else ""
        labelled = "a reference" if unit == "answer" else "claims with verdicts"
        raise InvalidDevData(
            f"{reach} of {len(stored)} rows have {labelled} and {num_samples} answers; a fit needs at least "
            f"{MIN_USABLE_ROWS}. Copies of a question count once, answers without text not at all "
            f"(EIGENCAL_EMPTY_ANSWERS).{why}"
        )
    cut = [replace(one, draws=one.draws[:num_samples]) for one in asked_once]
    return cut, num_samples, len(every) - len(asked_once)


def _one_for_each_question(rows: Sequence[DevRow], rng: np.random.Generator) -> list[DevRow]:
    """Return one row of each question, in order: the one with most answers, of several such a random one.

    Folds, bootstrap and bounds take rows for independent: ten copies of one question are no ten questions.
    Where no verdict is given, what any copy calls right is right.
    """
    asked: dict[Hashable, list[DevRow]] = {}
    for one in rows:
        asked.setdefault(one.wording, []).append(one)
    return [copies[0] if len(copies) == 1 else _of_copies(copies, rng) for copies in asked.values()]


def _of_copies(copies: Sequence[DevRow], rng: np.random.Generator) -> DevRow:
    most = max(len(one.draws) for one in copies)
    full = [one for one in copies if len(one.draws) == most]
    # At random: others may judge otherwise.
    chosen = full[rng.integers(len(full))]
    if chosen.correct is not None:
        return chosen
    known = (text for one in copies if one.correct is None for text in one.references)
    return replace(chosen, references=tuple(dict.fromkeys(known)))


def without_near_copies(material: Material, rng: np.random.Generator) -> Material:
    """Return one row for each question, chosen at random among the near copies with the most answers.

    Rows are near copies if the cosine of their questions is at least `NEAR`, they share a reference, and
    their turns before the question are equal. Rows of claims, which have groups, are not compared. Raises
    InvalidDevData if fewer than 10 rows with all answers are left.
    """
    if material.groups is not None or not material.questions:
        return material
    kept = list[int]()
    for copies in _near_copies(material):
        most = max(len(material.rows[i].draws) for i in copies)
        full = [i for i in copies if len(material.rows[i].draws) == most]
        kept.append(full[rng.integers(len(full))])
    left = material.take(sorted(kept))
    if left.full.size < MIN_USABLE_ROWS:
        raise InvalidDevData(
            f"Only {left.full.size} of {len(material.rows)} rows count, since rows with nearly the same "
            f"question and a reference in common count once. A fit needs at least {MIN_USABLE_ROWS}."
        )
    return left


def _near_copies(material: Material) -> list[list[int]]:
    """Return the positions of the rows, in groups of near copies of one row."""
    earliest = np.arange(len(material.rows))
    sharing: dict[Hashable, list[int]] = {}
    for i, (row, question) in enumerate(zip(material.rows, material.questions, strict=True)):
        for reference in row.right_answers if question is not None else ():
            sharing.setdefault((row.context, reference), []).append(i)
    for rows in map(np.array, sharing.values()):
        vectors = np.array([material.questions[i] for i in rows])
        for begin in range(0, len(rows), COMPARED_AT_ONCE):
            some = slice(begin, begin + COMPARED_AT_ONCE)
            near = vectors[some] @ vectors[: some.stop].T >= NEAR
            first = np.minimum(rows[near.argmax(axis=1)], rows[some])
            earliest[rows[some]] = np.minimum(earliest[rows[some]], first)
    found: dict[int, list[int]] = {}
    for i, other in enumerate(earliest.tolist()):
        earliest[i] = earliest[other]
        found.setdefault(int(earliest[i]), []).append(i)
    return list(found.values())


def check_made_by(*identities: EmbedderIdentity | None) -> None:
    """Raise Conflict unless all are one embedder: vectors of two do not compare."""
    names = [field.name for field in fields(EmbedderIdentity)]
    differs = [name for name in names if len({getattr(one, name, None) for one in identities}) > 1]
    if differs:
        parts = ", ".join(f"embedder_{name}" for name in differs)
        raise Conflict(f"The embedder changed while texts were embedded ({parts}); run it again.")


def all_texts(rows: Sequence[DevRow], kernel: Kernel = PAPER) -> list[str]:
    """Return the distinct texts to embed, of answers, references and judged answers, as they appear."""
    texts: list[str] = []
    for one in rows:
        texts += compared_texts(texts_of(one), one.question or "", kernel)
    return distinct(texts)[0]


def texts_of(row: DevRow) -> list[str]:
    """Return the distinct answers of a row, its references and, last, the judged answer, if it gives one."""
    judged = [] if row.answer is None else [row.answer.strip()]  # as answers drawn are
    return [*distinct([draw.text for draw in row.draws])[0], *row.references, *judged]


def assemble(
    rows: Sequence[DevRow],
    num_samples: int,
    vectors: NDArray[np.float32],
    place: dict[str, int],
    dimension: int,
    kernel: Kernel = PAPER,
    same: Sequence[Floats] = (),
) -> Material:
    """Return the rows as vectors; place: the row of each text in `vectors`, made by `outcome_vectors`.

    same: by row, what an LLM says of each two of its `texts_of`, (k, k), if it compares them.
    """
    width = max((len(texts_of(row)) for row in rows), default=0) + bool(same)
    answers, texts = [], []
    judged: list[NDArray[np.floating] | None] = []
    for i, row in enumerate(rows):
        outcomes, index = distinct([draw.text for draw in row.draws])
        known, count = texts_of(row), len(outcomes)
        own: NDArray[np.floating]
        others: NDArray[np.floating]
        if kernel == PAPER:
            own, others = (
                _rows_at(vectors, [place[text] for text in part]) for part in (known[:count], known[count:])
            )
        else:
            question = row.question or ""
            compared = compared_texts(known, question, kernel)
            embeddings = _rows_at(vectors, [place[text] for text in compared])
            # Vectors of different rows are not comparable. They have one dimension for Algorithm 1.
            space = np.zeros((len(known), width), dtype=np.float32)
            of_row = kernel_matrix(read_texts(known, compared, question, count), embeddings)
            if same:
                space[:, : count + 1] = realize_first(with_comparison(of_row, same[i]), count)
            else:
                space[:, : len(known)] = realize(of_row)
            own, others = space[:count], space[count:]
        answers.append(Answers(own, index, others[: len(row.references)]))
        texts.append(outcomes)
        judged.append(None if row.answer is None else others[-1])
    full = np.flatnonzero([len(row.draws) == num_samples for row in rows])
    return Material(rows, answers, texts, full, num_samples, dimension, judged)


def conformal_reference(material: Material, rng: np.random.Generator) -> ConformalReference:
    """Return what the full rows' prompts are like: of many, `MAX_REFERENCE` drawn at random."""
    chosen = material.full
    if material.full_groups is not None:
        chosen = chosen[np.unique(material.full_groups, return_index=True)[1]]
    if chosen.size > MAX_REFERENCE:
        chosen = np.sort(rng.choice(chosen, MAX_REFERENCE, replace=False))
    known = {
        material.rows[i].question: vector
        for i in chosen.tolist()
        if material.questions and (vector := material.questions[i]) is not None
    }
    questions = np.array(list(known.values()), dtype=np.float32).reshape(-1, material.dimension)
    lengths = [[len(words(draw.text)) for draw in material.rows[i].draws] for i in chosen.tolist()]
    given = [] if material.full_groups is not None else [material.rows[i].answer for i in chosen.tolist()]
    judged = [len(words(text)) for text in given if text is not None]
    return ConformalReference(questions, np.array(lengths, dtype=np.int32), np.array(judged, dtype=np.int32))


def _rows_at(vectors: NDArray[np.float32], places: Sequence[int]) -> NDArray[np.float32]:
    """Return the rows, (n, d): a view where they follow one another, as texts seen first in one prompt do.

    Where all answers differ, copies would double the memory of a job.
    """
    first = places[0]
    if places == list(range(first, first + len(places))):
        return vectors[first : first + len(places)]
    return vectors[places]


# Claims as rows of their own (**ours**, method, section 13). A claim's reference is the sentence of its row's
# references nearest to it, where one speaks of it. Where none does, a right claim is its own; of a wrong one,
# the truth is taken for something that no answer drawn says.


@dataclass(frozen=True, slots=True, eq=False)
class Sentences:
    """What a row says. drawn: in each of its answers; references: in all of them."""

    drawn: Sequence[Sequence[str]]
    references: Sequence[str]


def sentences_of(row: DevRow) -> Sentences:
    """Return the sentences of a row that are to be compared with its claims."""
    question = row.question or ""
    references = [one for text in row.references for one in claims(text, question=question)]
    return Sentences(
        [[one.text for one in claims(draw.text, question=question)] for draw in row.draws],
        list(dict.fromkeys(one.text for one in references)),
    )


def claim_texts(rows: Sequence[DevRow], said: Sequence[Sentences]) -> list[str]:
    """Return the distinct texts of claims, answers and references, and what each says beyond its question."""
    texts = dict[str, None]()
    for row, one in zip(rows, said, strict=True):
        of_row = [claim.text for claim in row.claims]
        of_row += [*chain.from_iterable(one.drawn), *one.references]
        texts |= dict.fromkeys(of_row)
        texts |= dict.fromkeys(beyond(of_row, row.question or ""))
    return list(texts)


def claim_material(
    rows: Sequence[DevRow], said: Sequence[Sentences], vectors: Vectors, num_samples: int, dimension: int
) -> Material:
    """Return every claim as a row: its verdict on its text, all claims of a row a group."""
    made = list[tuple[DevRow, Answers, Floats]]()
    groups = list[int]()
    for group, (row, one) in enumerate(zip(rows, said, strict=True)):
        answers = _answers(row, one, vectors, num_samples)
        for claim, (matched, judged) in zip(row.claims, answers, strict=True):
            made.append((_row(row, claim), matched, judged))
            groups.append(group)
    full = np.flatnonzero([len(row.draws) == num_samples for row, *_ in made])
    return Material(
        [row for row, *_ in made],
        [answers for _, answers, _ in made],
        [()] * len(made),
        full,
        num_samples,
        dimension,
        [judged for *_, judged in made],
        groups=np.array(groups),
    )


def _row(row: DevRow, claim: ClaimIn) -> DevRow:
    """Return the row of a claim. Log-probabilities of whole answers say nothing of it."""
    draws = tuple(replace(one, total_logprob=None) for one in row.draws)
    mine = replace(row, answer=claim.text, answer_logprob=None, correct=claim.correct, claims=(claim,))
    return replace(mine, draws=draws)


def _answers(
    row: DevRow, said: Sentences, vectors: Vectors, num_samples: int
) -> list[tuple[Answers, Floats]]:
    """Return, of each claim, what the answers say with its reference, and the claim itself (k,)."""
    matched = match_claims(
        [claim.text for claim in row.claims],
        said.drawn,
        vectors,
        question=row.question or "",
        references=said.references,
    )
    answers = list[tuple[Answers, Floats]]()
    for claim, one in zip(row.claims, matched, strict=True):
        reference = one.reference
        if reference is None:
            unsaid = np.eye(one.claim.size)[-1]
            reference = one.claim if claim.correct else unsaid
        answers.append((Answers(one.outcomes, one.index, reference[None]), one.claim))
    return answers
