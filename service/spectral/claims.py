"""The density matrix of one claim of a long answer (**ours**, method, section 13): matched units.

A whole answer's embedding says what it is about, not which of its claims differ. So of each answer drawn the
sentence nearest to the claim stands for it, as a short answer would; an answer without a sentence near enough
is silent, an outcome of its own, orthogonal to the claim and to all others. What comes out are rows like
those of short answers: every map, fit and probability takes them as they are.

An embedder hardly sees which year or name a sentence holds: the same year in other words lies farther off
than another year in the same words. So s_j is e x f, the embedding e of what the sentence says beyond the
question, and the unit vector f of its facts, its numbers and names: D = (1/m) sum_j s_j s_j^T. Nothing of
that size is built: cosines of tensor products are products of cosines, and those of Gram matrices are one
(Schur, 1911).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import Overlaps, weighted
from service.spectral.spectrum import RANK_TOLERANCE, Spectrum, spectrum_from_gram, unit_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Facts = Mapping[str, float]  # of a sentence: how much each counts, > 0; the same in every sentence

# What all sentences have in common beside their facts: those without any lie close to one another.
COMMON = 0.3
# Sentences on other questions have cosines of up to .55, 99 of 100 on the same one have more than .6.
SPEAKS = 0.55
# A sentence says what a claim says where they share half of the facts of the one that has fewer, and a
# quarter of the claim's; where neither has any, nearly all of their words (`benchmarks.long_answers`).
AGREES_HALF, AGREES_OWN = 0.5, 0.25
AGREES = 0.92


@dataclass(frozen=True, slots=True)
class Support:
    """How many of m answers drawn say what a claim says, say something else of it, or nothing."""

    agree: int
    differ: int
    silent: int

    @property
    def spoken_of(self) -> bool:
        """Whether any answer speaks of the claim."""
        return self.agree + self.differ > 0


@dataclass(frozen=True, slots=True, eq=False)
class SentenceVectors:
    """n sentences. Build it by `of`.

    vectors, beyond: (n, d), unit rows, of the sentence and of what it says beyond the question. asked: the
    words of the question that it holds, facts among them. names: those of its facts that are no numbers.
    brief: whether it says hardly more than names beyond the question, as a short answer does. questions: of
    those in the prompt the places of the ones that it may answer. negated: whether it holds a negation.
    """

    vectors: Floats
    beyond: Floats
    facts: Sequence[Facts]
    asked: Sequence[frozenset[str]]
    names: Sequence[frozenset[str]]
    brief: Sequence[bool]
    questions: Sequence[frozenset[int]]
    negated: Sequence[bool]

    @classmethod
    def of(
        cls,
        vectors: ArrayLike,
        beyond: ArrayLike | None = None,
        facts: Sequence[Facts] | None = None,
        asked: Sequence[frozenset[str]] | None = None,
        names: Sequence[frozenset[str]] | None = None,
        brief: Sequence[bool] | None = None,
        questions: Sequence[frozenset[int]] | None = None,
        negated: Sequence[bool] | None = None,
    ) -> Self:
        """Return sentences by rows that need not be of length 1.

        beyond: None for what the sentences say themselves. facts, asked, names: None where nobody knows any;
        brief, negated: None where none is; questions: None where there is but one. Raises ValueError for no
        rows, and for some that are zero or not finite.
        """
        whole = unit_rows(vectors)
        none = [frozenset[str]()] * len(whole)
        return cls(
            whole,
            whole if beyond is None else unit_rows(beyond),
            [{}] * len(whole) if facts is None else facts,
            none if asked is None else asked,
            none if names is None else names,
            [False] * len(whole) if brief is None else brief,
            [frozenset({0})] * len(whole) if questions is None else questions,
            [False] * len(whole) if negated is None else negated,
        )

    def take(self, rows: Sequence[int]) -> "SentenceVectors":
        """Return some of the sentences, or none."""
        which = np.asarray(rows, dtype=np.intp)
        known = [self.facts[i] for i in which]
        brief, negated = ([of[i] for i in which] for of in (self.brief, self.negated))
        asked, names = ([of[i] for i in which] for of in (self.asked, self.names))
        questions = [self.questions[i] for i in which]
        return SentenceVectors(
            self.vectors[which], self.beyond[which], known, asked, names, brief, questions, negated
        )

    def same_question(self, others: "SentenceVectors") -> Bools:
        """Return whether each sentence may answer a question that each of l others may, (n, l)."""
        rows = [[not one.isdisjoint(other) for other in others.questions] for one in self.questions]
        return np.array(rows, dtype=bool).reshape(len(self.questions), len(others.questions))


def disputed(*some: SentenceVectors) -> tuple[bool, bool]:
    """Tell whether some sentences name different things of the question, and whether facts of it.

    As to "steel or aluminium?". A pronoun for one of them is no difference.
    """
    asked = [one for each in some for one in each.asked]
    named = [
        one.intersection(facts) for each in some for one, facts in zip(each.asked, each.facts, strict=True)
    ]
    return _disagree(asked), _disagree(named)


def beyond_question(some: SentenceVectors) -> list[Facts]:
    """Return the facts of each sentence that are not the question's."""
    return [_less(facts, one) for one, facts in zip(some.asked, some.facts, strict=True)]


def _less(facts: Facts, some: Set[str]) -> Facts:
    return {fact: facts[fact] for fact in facts.keys() - some}


def _disagree(sets: Sequence[frozenset[str]]) -> bool:
    """Tell whether any two hold each what the other does not."""
    return any(one - other and other - one for one, other in combinations(set(sets), 2))


@dataclass(frozen=True, slots=True, eq=False)
class MatchedUnits:
    """The sentence of each of m answers drawn that is nearest to each of c claims. Build it by `of`.

    nearest: (c, m), its row in the table of distinct sentences, the first of equally near ones; -1 for an
    answer without a sentence. cosines: (c, m) to the claim, in [-1, 1]; -inf for such an answer.
    """

    nearest: Ints
    cosines: Floats
    claims: SentenceVectors
    sentences: SentenceVectors

    @classmethod
    def of(cls, claims: SentenceVectors, sentences: SentenceVectors, answers: Sequence[ArrayLike]) -> Self:
        """Return the nearest sentences: of those near enough first the ones on the claim's own question.

        sentences: a table of k distinct ones; answers: m vectors (s_j,) of rows in the table, empty for an
        answer without a sentence. Raises ValueError where there is no answer.
        """
        if len(answers) == 0:
            raise ValueError("a claim needs at least one answer drawn")
        count = len(claims.vectors)
        cosines = claims.vectors @ sentences.vectors.T
        # "Italy: Rome" is nearer to "France: Rome" than "France: Paris" is.
        own = claims.same_question(sentences) & (cosines >= SPEAKS)
        nearest = np.full((count, len(answers)), -1, dtype=np.intp)
        best = np.full(nearest.shape, -np.inf)
        for j, rows in enumerate(np.asarray(one, dtype=np.intp) for one in answers):
            if rows.size:
                asked = own[:, rows]
                passed_over = asked.any(axis=1, keepdims=True) & ~asked
                order = np.where(passed_over, -np.inf, cosines[:, rows])
                nearest[:, j] = rows[order.argmax(axis=1)]
                best[:, j] = cosines[np.arange(count), nearest[:, j]]
        return cls(nearest, best, claims, sentences)

    def speak(self, bound: float = SPEAKS) -> Bools:
        """Return whether each answer speaks of each claim, (c, m): its nearest sentence's cosine >= bound."""
        return self.cosines >= bound

    def agree(self) -> Bools:
        """Return whether each answer says what each claim says, (c, m)."""
        agree = self.speak()
        for i, (nearest, cosines) in enumerate(zip(self.nearest, self.cosines, strict=True)):
            rows, first, index = np.unique(nearest, return_index=True, return_inverse=True)
            same = map(self._agrees, [i] * rows.size, rows.tolist(), cosines[first].tolist())
            agree[i] &= np.fromiter(same, dtype=bool, count=rows.size)[index]
        return agree

    def _agrees(self, claim: int, sentence: int, cosine: float) -> bool:
        """Return True if the sentence agrees with the claim. cosine: between their embeddings.

        Where only one is negated, and where both hold names and none in common, they do not.
        """
        if cosine < SPEAKS or self.claims.negated[claim] != self.sentences.negated[sentence]:
            return False
        of_claim, of_sentence = self.claims.facts[claim], self.sentences.facts[sentence]
        asked = self.claims.asked[claim], self.sentences.asked[sentence]
        if not _disagree([asked[0].intersection(of_claim), asked[1].intersection(of_sentence)]):
            of_claim, of_sentence = _less(of_claim, asked[0]), _less(of_sentence, asked[1])
        if not of_claim:
            return not of_sentence and cosine >= AGREES
        names = (
            self.claims.names[claim] & of_claim.keys(),
            self.sentences.names[sentence] & of_sentence.keys(),
        )
        if all(names) and names[0].isdisjoint(names[1]):
            return False
        shared = sum(of_claim[fact] for fact in of_claim.keys() & of_sentence.keys())
        claim_weight, sentence_weight = sum(of_claim.values()), sum(of_sentence.values())
        bound = max(AGREES_HALF * min(claim_weight, sentence_weight), AGREES_OWN * claim_weight)
        return shared >= bound

    def support(self) -> list[Support]:
        """Return the support of each claim: by `agree`, and by `speak`."""
        agree, speak = self.agree(), self.speak()
        counts = zip(agree.sum(axis=1).tolist(), speak.sum(axis=1).tolist(), strict=True)
        return [Support(same, of_it - same, agree.shape[1] - of_it) for same, of_it in counts]

    def each(self) -> Iterator["MatchedUnits"]:
        """Yield the matched units of one claim at a time."""
        for i in range(len(self.nearest)):
            nearest, cosines = self.nearest[i : i + 1], self.cosines[i : i + 1]
            yield MatchedUnits(nearest, cosines, self.claims.take([i]), self.sentences)

    def spectra(self) -> list[tuple[Spectrum, Floats]]:
        """Return the spectrum of each claim, and the claim's cosines (k,) to the outcomes that made it.

        p(y) of the claim is `born_probability` of both. The dimension is that of embeddings: as many null
        directions as short answers have, or a map would spread what it cannot place over nothing.
        """
        problems = [weighted(one) for one in self.overlaps()]
        dimension = self.claims.vectors.shape[1]
        return [(spectrum_from_gram(one.cosines, one.share, dimension), one.targets[0]) for one in problems]

    def overlaps(
        self, references: Sequence[SentenceVectors] | None = None, *, bound: float = SPEAKS
    ) -> list[Overlaps]:
        """Return what the spectra of the c claims need, for any of the m answers.

        Outcomes are the distinct sentences that speak of a claim, in the order of the table, and then each
        silent answer. The target is the claim itself, as p(y) takes it, or its t references.
        """
        own = [self.claims.take([i]) for i in range(len(self.nearest))]
        rows = zip(self.nearest, self.speak(bound), own, references or own, strict=True)
        return [self._overlaps(*row) for row in rows]

    def _overlaps(
        self, nearest: Ints, speak: Bools, claim: SentenceVectors, targets: SentenceVectors
    ) -> Overlaps:
        spoken, which = np.unique(nearest[speak], return_inverse=True)
        silent = int((~speak).sum())
        index = np.empty(nearest.size, dtype=np.intp)
        index[speak], index[~speak] = which, spoken.size + np.arange(silent)
        sentences = self.sentences.take(spoken.tolist())
        in_dispute, of_question = disputed(sentences, targets, claim)
        vectors, own = (one.vectors if in_dispute else one.beyond for one in (sentences, targets))
        said, facts = (one.facts if of_question else beyond_question(one) for one in (sentences, targets))
        if not in_dispute and all([*sentences.brief, *claim.brief]):
            # Short answers, but for the question: an embedder tells names alone apart. How long a reference
            # is decides nothing: a claim that is served has none.
            names = {name for one in (sentences, targets) for each in one.names for name in each}
            said, facts = ([_less(one, names) for one in some] for some in (said, facts))
        # A direction of its own for each silent answer: no cosine with anything but itself.
        cosines = np.eye(spoken.size + silent)
        cosines[: spoken.size, : spoken.size] = vectors @ vectors.T * fact_cosines(said, said)
        along = np.zeros((len(own), spoken.size + silent))
        along[:, : spoken.size] = own @ vectors.T * fact_cosines(facts, said)
        return Overlaps(cosines, along / np.sqrt(len(along)), index)


def realised(one: Overlaps, width: int) -> tuple[Floats, Floats]:
    """Return unit vectors that have these cosines: of the outcomes (k, width), and of the targets (t, width).

    For fits that take vectors. What of a target lies outside of all outcomes is its last coordinate.
    width: > k. Vectors of two claims share no space: they do not compare.
    """
    size, count = len(one.cosines), len(one.targets)
    values, columns = np.linalg.eigh(one.cosines)
    spanned = values > RANK_TOLERANCE
    root = np.sqrt(np.where(spanned, values, 1.0))
    outcomes, targets = np.zeros((size, width)), np.zeros((count, width))
    outcomes[:, :size] = columns * np.where(spanned, root, 0.0)
    targets[:, :size] = np.where(spanned, np.sqrt(count) * one.targets @ columns / root, 0.0)
    targets[:, -1] = np.sqrt(np.clip(1.0 - np.square(targets).sum(axis=1), 0.0, 1.0))
    return outcomes, targets


def fact_cosines(some: Sequence[Facts], others: Sequence[Facts]) -> Floats:
    """Return the cosines (k, l) of the facts of sentences, in (0, 1]: 1 for the same facts, or none in both.

    A sentence's vector has a coordinate for each fact, of the square root of what it counts, and one of
    sqrt(`COMMON`). Vectors are not built: answers may hold tens of thousands of numbers.
    """
    holders = defaultdict[str, tuple[list[int], list[float]]](lambda: ([], []))
    for j, facts in enumerate(others):
        for fact, count in facts.items():
            places, roots = holders[fact]
            places.append(j)
            roots.append(math.sqrt(count))
    products = np.full((len(some), len(others)), COMMON)
    for row, facts in zip(products, some, strict=True):
        for fact, count in facts.items():
            if fact in holders:
                places, roots = holders[fact]
                row[places] += math.sqrt(count) * np.array(roots)
    lengths, others_lengths = (
        np.sqrt([COMMON + sum(facts.values()) for facts in sentences]) for sentences in (some, others)
    )
    return np.asarray(products / lengths[:, None] / others_lengths)
