"""The input of a fit: the usable rows, or their claims, with the kernels of their texts."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Unit
from service.calibration.rows import MIN_USABLE_ROWS, ClaimIn, DevRow
from service.claims.facts import words
from service.claims.kernel import compared_texts, kernel_of, read_texts
from service.claims.matching import MatchedClaim, Matcher
from service.claims.refusals import is_refusal
from service.claims.segments import claims
from service.embedding.port import PAPER, EmbedderIdentity, Kernel
from service.errors import Conflict, InvalidDevData, LLMError
from service.llm.samples import distinct, usable
from service.spectral.conformal import ConformalReference
from service.spectral.dev_set import Overlaps

Floats = NDArray[np.float64]
Vectors = Mapping[str, NDArray[np.float32]]  # (d,) of each text
FULL_SHARE = 0.9
# Least cosine of two questions with a common reference that count as the same question. Among 1,151 recorded
# questions under MiniLM, different questions with a common reference reach .79, and two that ask the same
# have .93. Ten questions, repeated thirty times with numbers before or after them, leave ten at .85 and up
# to 18 at .9. Different questions of one form ("the 7th president") reach .97, so a common reference is
# required. 58 questions "Is 7 a prime number?", all with the reference "yes", leave 17.
NEAR = 0.85
COMPARED_AT_ONCE = 256  # rows
MAX_REFERENCE = 1000  # rows; every score is compared with all of them


@dataclass(frozen=True, slots=True, eq=False)
class DevSet:
    """The usable rows, with at most `num_samples` answers each.

    answers: one per row, with its references; full: positions of the rows that have `num_samples` answers;
    texts: the k distinct answers of each row, in the order of `answers`; rows: as stored, answers cut to
    `num_samples`. dimension: d of the embedder. judged: by row, the kernel (1, k) of the `answer` that the
    verdict is about, None for rows without one. alone: by row, the text that is judged without drawn answers,
    as if it were the only answer; empty for claims. made_by: the embedder of every vector, if known.
    questions: by row, the vector (d,) of the question, None for rows without its text; empty if the questions
    were not embedded. groups: (n,), rows that are resampled, held out and counted together, such as the
    claims of one answer; None: each row by itself.
    """

    rows: Sequence[DevRow]
    answers: Sequence[Overlaps]
    texts: Sequence[Sequence[str]]
    full: NDArray[np.int_]
    num_samples: int
    dimension: int
    judged: Sequence[Floats | None]
    alone: Sequence[Overlaps] = ()
    made_by: EmbedderIdentity | None = None
    questions: Sequence[NDArray[np.float32] | None] = ()
    groups: NDArray[np.int_] | None = None

    @property
    def full_groups(self) -> NDArray[np.int_] | None:
        """Return the groups of the full rows; None: each row by itself."""
        return None if self.groups is None else self.groups[self.full]

    def take(self, positions: Sequence[int]) -> "DevSet":
        """Return the rows at these positions. The rows must not have groups."""
        full = np.isin(positions, self.full)
        return replace(
            self,
            rows=[self.rows[i] for i in positions],
            answers=[self.answers[i] for i in positions],
            texts=[self.texts[i] for i in positions],
            judged=[self.judged[i] for i in positions],
            alone=[self.alone[i] for i in positions],
            questions=[self.questions[i] for i in positions] if self.questions else (),
            full=np.flatnonzero(full),
        )


def full_number(sizes: Sequence[int], requested: int | None) -> int:
    """Return the number m of answers of a fit: `requested`, or else the largest that 90 % of the rows reach.

    Rows with more than m answers contribute their first m. Rows with fewer are left out of the fit.
    """
    if requested is not None:
        return requested
    descending = sorted(sizes, reverse=True)
    return descending[int(np.ceil(FULL_SHARE * len(descending))) - 1]


def answered(stored: Sequence[DevRow]) -> list[DevRow]:
    """Return the rows with blank draws removed: they do not count as answers."""
    return [replace(row, draws=usable(row.draws)) for row in stored]


def usable_rows(
    stored: Sequence[DevRow], requested: int | None, rng: np.random.Generator, unit: Unit = "answer"
) -> tuple[list[DevRow], int, int]:
    """Return the usable rows with answers cut to m, m, and the number of copies of questions left out.

    One row is kept for each question. Raises InvalidDevData if fewer than 10 rows have m answers, and
    LLMError if the LLM server refused rows and no row has any answer.
    """
    candidates = [row for row in stored if row.labelled(unit) and len(row.draws) >= 2]
    questions = _one_for_each_question(candidates, rng)
    num_samples = full_number([len(row.draws) for row in questions], requested) if questions else 2
    reach = sum(len(row.draws) >= num_samples for row in questions)
    if reach < MIN_USABLE_ROWS:
        refused = [row.refused for row in stored if row.refused is not None]
        if refused and not any(row.draws for row in stored):
            raise LLMError(refused[0])
        refusal = f" The LLM server refused {len(refused)} of the others: {refused[0]}" if refused else ""
        labelled = "a reference" if unit == "answer" else "claims with verdicts"
        raise InvalidDevData(
            f"{reach} of {len(stored)} rows have {labelled} and {num_samples} answers; a fit needs at least "
            f"{MIN_USABLE_ROWS}. Copies of a question count once, answers without text not at all.{refusal}"
        )
    cut = [replace(row, draws=row.draws[:num_samples]) for row in questions]
    return cut, num_samples, len(candidates) - len(questions)


def _one_for_each_question(rows: Sequence[DevRow], rng: np.random.Generator) -> list[DevRow]:
    """Return one row for each question, in order, chosen at random among those with the most answers.

    Folds, resamples and bounds treat rows as independent, which copies of a question are not. A chosen row
    without a verdict gets the references of all copies without one.
    """
    by_wording: dict[Hashable, list[DevRow]] = {}
    for row in rows:
        by_wording.setdefault(row.wording, []).append(row)
    return [copies[0] if len(copies) == 1 else _of_copies(copies, rng) for copies in by_wording.values()]


def _of_copies(copies: Sequence[DevRow], rng: np.random.Generator) -> DevRow:
    most = max(len(row.draws) for row in copies)
    full = [row for row in copies if len(row.draws) == most]
    # At random, since verdicts on copies may differ.
    chosen = full[rng.integers(len(full))]
    if chosen.correct is not None:
        return chosen
    references = (text for row in copies if row.correct is None for text in row.references)
    return replace(chosen, references=tuple(dict.fromkeys(references)))


def without_near_copies(material: DevSet, rng: np.random.Generator) -> DevSet:
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


def _near_copies(material: DevSet) -> list[list[int]]:
    """Return the positions of the rows, in groups of near copies of one row."""
    earliest = np.arange(len(material.rows))
    sharing: dict[Hashable, list[int]] = {}
    for i, (row, question) in enumerate(zip(material.rows, material.questions, strict=True)):
        for reference in row.alike_by if question is not None else ():
            sharing.setdefault((row.context, reference), []).append(i)
    for rows in map(np.array, sharing.values()):
        vectors = np.array([material.questions[i] for i in rows])
        for begin in range(0, len(rows), COMPARED_AT_ONCE):
            block = slice(begin, begin + COMPARED_AT_ONCE)
            near = vectors[block] @ vectors[: block.stop].T >= NEAR
            first = np.minimum(rows[near.argmax(axis=1)], rows[block])
            earliest[rows[block]] = np.minimum(earliest[rows[block]], first)
    by_earliest: dict[int, list[int]] = {}
    for i, other in enumerate(earliest.tolist()):
        earliest[i] = earliest[other]
        by_earliest.setdefault(int(earliest[i]), []).append(i)
    return list(by_earliest.values())


def check_made_by(*identities: EmbedderIdentity | None) -> None:
    """Raise Conflict unless all identities are equal. Vectors of different embedders are not comparable."""
    names = [field.name for field in fields(EmbedderIdentity)]
    differs = [name for name in names if len({getattr(identity, name, None) for identity in identities}) > 1]
    if differs:
        parts = ", ".join(f"embedder_{name}" for name in differs)
        raise Conflict(f"The embedder changed while texts were embedded ({parts}); run it again.")


def all_texts(rows: Sequence[DevRow], kernel: Kernel = PAPER) -> list[str]:
    """Return the distinct texts to embed (answers, references, judged answers) in order of appearance."""
    texts: list[str] = []
    for one in rows:
        of_row = texts_of(one)
        texts += of_row if kernel == PAPER else compared_texts(of_row, one.question or "")
    return distinct(texts)[0]


def texts_of(row: DevRow) -> list[str]:
    """Return the distinct answers of a row, its references and, last, its `answer`, if it has one."""
    judged = [] if row.answer is None else [row.answer.strip()]  # drawn answers are stripped, too
    return [*distinct([draw.text for draw in row.draws])[0], *row.right_texts, *judged]


def assemble(
    rows: Sequence[DevRow],
    num_samples: int,
    vectors: NDArray[np.float32],
    place: dict[str, int],
    dimension: int,
    kernel: Kernel = PAPER,
    same: Sequence[Floats] = (),
) -> DevSet:
    """Return the rows with the kernels of their texts. place: the row of each text in `vectors`.

    same: by row, an LLM's comparisons of its `texts_of`, (k, k); empty if no LLM compares them.
    """
    answers, texts, alone = list[Overlaps](), list[list[str]](), list[Overlaps]()
    judged = list[Floats | None]()
    for i, row in enumerate(rows):
        outcomes, index = distinct([draw.text for draw in row.draws])
        known, count = texts_of(row), len(outcomes)
        reading = read_texts(known, row.question or "", count, kernel)
        embeddings = vectors[[place[text] for text in reading.compared]]
        of_row = kernel_of(reading, embeddings, same[i] if same else None)
        references = range(count, count + len(row.right_texts))
        only = int(index[0]) if row.answer is None else len(known) - 1
        answers.append(Overlaps.of(of_row, range(count), references, index))
        texts.append(outcomes)
        judged.append(None if row.answer is None else of_row[-1:, :count].copy())
        alone.append(Overlaps.of(of_row, [only], references, np.zeros(1, dtype=np.intp)))
    full = np.flatnonzero([len(row.draws) == num_samples for row in rows])
    return DevSet(rows, answers, texts, full, num_samples, dimension, judged, alone)


def conformal_reference(material: DevSet, rng: np.random.Generator) -> ConformalReference:
    """Return the out-of-distribution reference: full rows, at most `MAX_REFERENCE`, chosen at random."""
    chosen = material.full
    if material.full_groups is not None:
        chosen = chosen[np.unique(material.full_groups, return_index=True)[1]]
    if chosen.size > MAX_REFERENCE:
        chosen = np.sort(rng.choice(chosen, MAX_REFERENCE, replace=False))
    by_question = {
        material.rows[i].question: vector
        for i in chosen.tolist()
        if material.questions and (vector := material.questions[i]) is not None
    }
    questions = np.array(list(by_question.values()), dtype=np.float32).reshape(-1, material.dimension)
    lengths = [[len(words(draw.text)) for draw in material.rows[i].draws] for i in chosen.tolist()]
    answers = [] if material.full_groups is not None else [material.rows[i].answer for i in chosen.tolist()]
    judged = [len(words(text)) for text in answers if text is not None]
    return ConformalReference(questions, np.array(lengths, dtype=np.int32), np.array(judged, dtype=np.int32))


# Claims as rows of their own (**ours**, method, section 13). The reference of a claim is the nearest sentence
# of its row's references, if one is about the same thing. Otherwise a right claim is its own reference, and
# the reference of a wrong claim is an outcome that no drawn answer has.


@dataclass(frozen=True, slots=True, eq=False)
class Sentences:
    """The sentences of a row. drawn: by answer; references: the distinct sentences of all references."""

    drawn: Sequence[Sequence[str]]
    references: Sequence[str]


def sentences_of(row: DevRow) -> Sentences:
    """Return the sentences that are compared with a row's claims. A refusal has none, as in a score."""
    question = row.question or ""
    references = [claim for text in row.references for claim in claims(text, question=question)]
    drawn = ["" if is_refusal(draw.text, question) else draw.text for draw in row.draws]
    return Sentences(
        [[claim.text for claim in claims(text, question=question)] for text in drawn],
        list(dict.fromkeys(claim.text for claim in references)),
    )


def claim_texts(rows: Sequence[DevRow], sentences: Sequence[Sentences]) -> list[str]:
    """Return the distinct texts of claims, answers and references, and their parts beyond the question."""
    texts = dict[str, None]()
    for row, of_row_sentences in zip(rows, sentences, strict=True):
        of_row = [claim.text for claim in row.claims]
        of_row += [*chain.from_iterable(of_row_sentences.drawn), *of_row_sentences.references]
        texts |= dict.fromkeys(of_row)
        texts |= dict.fromkeys(compared_texts(of_row, row.question or ""))
    return list(texts)


def claim_material(
    rows: Sequence[DevRow],
    sentences: Sequence[Sentences],
    vectors: Vectors,
    num_samples: int,
    dimension: int,
) -> DevSet:
    """Return each claim as a row with its own verdict; the claims of a row form a group."""
    made = list[tuple[DevRow, Overlaps, Floats]]()
    groups = list[int]()
    for group, (row, of_row) in enumerate(zip(rows, sentences, strict=True)):
        answers = _answers(row, claim_matcher(row, of_row, vectors).matches())
        for claim, (matched, judged) in zip(row.claims, answers, strict=True):
            made.append((_row(row, claim), matched, judged))
            groups.append(group)
    full = np.flatnonzero([len(row.draws) == num_samples for row, *_ in made])
    return DevSet(
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
    """Return the row of a claim, without log-probabilities: those of whole answers say nothing about it."""
    draws = tuple(replace(draw, total_logprob=None) for draw in row.draws)
    of_claim = replace(row, answer=claim.text, answer_logprob=None, correct=claim.correct, claims=(claim,))
    return replace(of_claim, draws=draws)


def claim_matcher(row: DevRow, sentences: Sentences, vectors: Vectors) -> Matcher:
    """Return the matcher of a row's claims. vectors: of the `claim_texts`."""
    return Matcher(
        [claim.text for claim in row.claims],
        sentences.drawn,
        vectors,
        question=row.question or "",
        references=sentences.references,
    )


def _answers(row: DevRow, matched: Iterable[MatchedClaim]) -> Iterator[tuple[Overlaps, Floats]]:
    """Yield, for each claim, the matched answers with its reference, and the kernel (1, k) of the claim."""
    for claim, match in zip(row.claims, matched, strict=True):
        kernel, k = match.kernel, match.num_outcomes
        own = [k] if claim.correct else []
        references = [len(kernel) - 1] if match.has_reference else own
        yield Overlaps.of(kernel, range(k), references, match.index), kernel[k : k + 1, :k].copy()
