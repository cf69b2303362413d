"""The density matrix of one claim of a long answer (**ours**, method, section 14): matched units.

A whole answer's embedding says what it is about, not which of its claims differ. So of each answer drawn the
sentence nearest to the claim stands for it, as a short answer would; an answer without a sentence near enough
is silent, an outcome of its own, orthogonal to the claim and to all others. What comes out are rows like
those of short answers: every map, fit and probability takes them as they are.

Sentences that answer one question in different ways share most of their words, and lie close: cosines of .6
to .97 where short answers have .3. So the matrix is that of some copies of each vector e, the tensor power
e x .. x e, whose cosines are powers of the cosines: D = (1/m) sum_j (s_j s_j^T)^{x copies}. Nothing of
that size is built, and a power of a Gram matrix is one (Schur, 1911).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import Overlaps, weighted
from service.spectral.spectrum import Spectrum, spectrum_from_gram, unit_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

# `benchmarks.claims`: with one copy every answer is in one mode, whatever it says. More than 16 help
# sentences of one wording a little more, and harm paraphrases.
COPIES = 16
# Sentences on other questions have cosines up to .55, on the same one from .59.
SPEAKS = 0.55
# Two sentences on one question that say the same, or not: errors of both kinds are about equal there.
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
    claims: (c, d), and sentences: (k, d), unit rows.
    """

    nearest: Ints
    cosines: Floats
    claims: Floats
    sentences: Floats

    @classmethod
    def of(cls, claims: ArrayLike, sentences: ArrayLike, answers: Sequence[ArrayLike]) -> Self:
        """Return the nearest sentences.

        claims: (c, d); sentences: (k, d), a table of distinct ones; answers: m vectors (s_j,) of rows in the
        table, empty for an answer without a sentence. Rows need not be of length 1. Raises ValueError for
        rows that are zero or not finite, or without an answer.
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
        return cls(nearest, best, wanted, table)

    def speak(self, bound: float = SPEAKS) -> Bools:
        """Return whether each answer speaks of each claim, (c, m): its nearest sentence's cosine >= bound."""
        return self.cosines >= bound

    def support(self) -> list[Support]:
        """Return the support of each claim, by `AGREES` and `SPEAKS`."""
        agree, speak = self.cosines >= AGREES, self.speak()
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
        references: Sequence[ArrayLike] | None = None,
        *,
        bound: float = SPEAKS,
        copies: int = COPIES,
    ) -> list[Overlaps]:
        """Return what the spectra of the c claims need, for any of the m answers.

        Outcomes are the distinct sentences that speak of a claim, in the order of the table, and then each
        silent answer. The target is the claim itself, as p(y) takes it, or its references: (t, d) of each.
        """
        targets = self.claims[:, None] if references is None else [unit_rows(one) for one in references]
        rows = zip(self.nearest, self.speak(bound), targets, strict=True)
        return [self._overlaps(*row, copies) for row in rows]

    def _overlaps(self, nearest: Ints, speak: Bools, targets: Floats, copies: int) -> Overlaps:
        spoken, which = np.unique(nearest[speak], return_inverse=True)
        silent = int((~speak).sum())
        index = np.empty(nearest.size, dtype=np.intp)
        index[speak], index[~speak] = which, spoken.size + np.arange(silent)
        vectors = self.sentences[spoken]
        # A direction of its own for each silent answer: no cosine with anything but itself.
        cosines = np.eye(spoken.size + silent)
        cosines[: spoken.size, : spoken.size] = (vectors @ vectors.T) ** copies
        along = np.zeros((len(targets), spoken.size + silent))
        along[:, : spoken.size] = (targets @ vectors.T) ** copies
        return Overlaps(cosines, along / np.sqrt(len(targets)), index)
