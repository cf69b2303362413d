"""The density matrix of one claim of a long answer (**ours**, method, section 14): matched units.

A whole answer's embedding says what it is about, not which of its claims differ. So of each answer drawn the
sentence nearest to the claim stands for it, as a short answer would; an answer without a sentence near enough
is silent, an outcome of its own, orthogonal to the claim and to all others. What comes out are rows like
those of short answers: every map, fit and probability takes them as they are.

An embedder hardly sees which year or name a sentence holds: the same year in other words lies farther off
than another year in the same words. So s_j is e x e x f, twice the embedding e, and the unit vector f of the
sentence's facts, its numbers and names: D = (1/m) sum_j s_j s_j^T. Nothing of that size is built: cosines of
tensor products are products of cosines, and those of Gram matrices are one (Schur, 1911).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import Overlaps, weighted
from service.spectral.spectrum import Spectrum, spectrum_from_gram, unit_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Facts = Mapping[str, float]  # of a sentence: how much each counts, > 0; the same in every sentence

# More tell sentences of one wording apart, fewer are blinder to the wording (`benchmarks.claims`).
COPIES = 2
# What all sentences have in common beside their facts: those without any lie close to one another.
COMMON = 0.3
# Sentences on other questions have cosines of up to .55, 99 of 100 on the same one have more than .6.
SPEAKS = 0.55
# Sentences say the same where half of their facts, or nearly all of their words, are the same: of real
# answers two in three that do, and one in twelve of the others (`benchmarks.long_answers`).
AGREES_FACTS = 0.5
AGREES = 0.92


@dataclass(frozen=True, slots=True)
class Support:
    """How many of m answers drawn say what a claim says, say something else of it, or nothing."""

    agree: int
    differ: int
    silent: int


@dataclass(frozen=True, slots=True, eq=False)
class MatchedUnits:
    """The sentence of each of m answers drawn that is nearest to each of c claims. Build it by `of`.

    nearest: (c, m), its row in the table of distinct sentences, the first of equally near ones; -1 for an
    answer without a sentence. cosines: (c, m) to the claim, in [-1, 1]; -inf for such an answer.
    claims: (c, d), and sentences: (k, d), unit rows; claim_facts and sentence_facts: of each.
    """

    nearest: Ints
    cosines: Floats
    claims: Floats
    sentences: Floats
    claim_facts: Sequence[Facts]
    sentence_facts: Sequence[Facts]

    @classmethod
    def of(
        cls,
        claims: ArrayLike,
        sentences: ArrayLike,
        answers: Sequence[ArrayLike],
        facts: tuple[Sequence[Facts], Sequence[Facts]] | None = None,
    ) -> Self:
        """Return the nearest sentences.

        claims: (c, d); sentences: (k, d), a table of distinct ones; answers: m vectors (s_j,) of rows in the
        table, empty for an answer without a sentence. Rows need not be of length 1. facts: of the c claims,
        and of the k sentences; None: nobody knows any. Raises ValueError for rows that are zero or not
        finite, or without an answer.
        """
        wanted = unit_rows(claims)
        table = unit_rows(sentences) if len(np.asarray(sentences)) else wanted[:0]
        if len(answers) == 0:
            raise ValueError("a claim needs at least one answer drawn")
        cosines = wanted @ table.T
        nearest = np.full((len(wanted), len(answers)), -1, dtype=np.intp)
        best = np.full(nearest.shape, -np.inf)
        for j, rows in enumerate(np.asarray(one, dtype=np.intp) for one in answers):
            if rows.size:
                nearest[:, j] = rows[cosines[:, rows].argmax(axis=1)]
                best[:, j] = cosines[np.arange(len(wanted)), nearest[:, j]]
        known = facts or ([{}] * len(wanted), [{}] * len(table))
        return cls(nearest, best, wanted, table, *known)

    def speak(self, bound: float = SPEAKS) -> Bools:
        """Return whether each answer speaks of each claim, (c, m): its nearest sentence's cosine >= bound."""
        return self.cosines >= bound

    def agree(self) -> Bools:
        """Return whether each answer says what each claim says, (c, m)."""
        bounds = np.array([SPEAKS if facts else AGREES for facts in self.claim_facts])
        agree = self.cosines >= bounds[:, None]
        for i, facts in enumerate(self.claim_facts):
            spoken = self.nearest[i, agree[i]]
            [shared] = fact_cosines([facts], [self.sentence_facts[row] for row in spoken])
            agree[i, agree[i]] = shared >= AGREES_FACTS
        return agree

    def support(self) -> list[Support]:
        """Return the support of each claim: by `agree`, and by `speak`."""
        agree, speak = self.agree(), self.speak()
        counts = zip(agree.sum(axis=1).tolist(), speak.sum(axis=1).tolist(), strict=True)
        return [Support(same, of_it - same, agree.shape[1] - of_it) for same, of_it in counts]

    def spectra(self) -> list[tuple[Spectrum, Floats]]:
        """Return the spectrum of each claim, and the claim's cosines (k,) to the outcomes that made it.

        p(y) of the claim is `born_probability` of both. The dimension is that of one copy: as many null
        directions as short answers have, or a map would spread what it cannot place over nothing.
        """
        problems = [weighted(one) for one in self.overlaps()]
        dimension = self.claims.shape[1]
        return [(spectrum_from_gram(one.cosines, one.share, dimension), one.targets[0]) for one in problems]

    def overlaps(
        self,
        references: Sequence[tuple[ArrayLike, Sequence[Facts]]] | None = None,
        *,
        bound: float = SPEAKS,
        copies: int = COPIES,
    ) -> list[Overlaps]:
        """Return what the spectra of the c claims need, for any of the m answers.

        Outcomes are the distinct sentences that speak of a claim, in the order of the table, and then each
        silent answer. The target is the claim itself, as p(y) takes it, or its references: (t, d) of each,
        and their facts.
        """
        own = [(row[None], [facts]) for row, facts in zip(self.claims, self.claim_facts, strict=True)]
        targets = own if references is None else [(unit_rows(rows), facts) for rows, facts in references]
        rows = zip(self.nearest, self.speak(bound), targets, strict=True)
        return [self._overlaps(nearest, speak, *target, copies) for nearest, speak, target in rows]

    def _overlaps(
        self, nearest: Ints, speak: Bools, targets: Floats, facts: Sequence[Facts], copies: int
    ) -> Overlaps:
        spoken, which = np.unique(nearest[speak], return_inverse=True)
        silent = int((~speak).sum())
        index = np.empty(nearest.size, dtype=np.intp)
        index[speak], index[~speak] = which, spoken.size + np.arange(silent)
        vectors, said = self.sentences[spoken], [self.sentence_facts[row] for row in spoken]
        # A direction of its own for each silent answer: no cosine with anything but itself.
        cosines = np.eye(spoken.size + silent)
        cosines[: spoken.size, : spoken.size] = (vectors @ vectors.T) ** copies * fact_cosines(said, said)
        along = np.zeros((len(targets), spoken.size + silent))
        along[:, : spoken.size] = (targets @ vectors.T) ** copies * fact_cosines(facts, said)
        return Overlaps(cosines, along / np.sqrt(len(targets)), index)


def fact_cosines(some: Sequence[Facts], others: Sequence[Facts]) -> Floats:
    """Return the cosines (k, l) of the facts of sentences, in (0, 1]: 1 for the same facts, or none in both.

    A sentence's vector has a coordinate for each fact, of the square root of what it counts, and one of
    sqrt(`COMMON`).
    """
    place = {fact: i for i, fact in enumerate(dict.fromkeys(fact for one in others for fact in one))}

    def coordinates(sentences: Sequence[Facts]) -> Floats:
        found = np.zeros((len(sentences), len(place) + 1))
        found[:, -1] = np.sqrt(COMMON)
        for row, facts in zip(found, sentences, strict=True):
            for fact in facts.keys() & place.keys():
                row[place[fact]] = np.sqrt(facts[fact])
        lengths = np.array([COMMON + sum(facts.values()) for facts in sentences])
        return np.asarray(found / np.sqrt(lengths)[:, None])

    return np.asarray(coordinates(some) @ coordinates(others).T)
