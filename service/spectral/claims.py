"""The density matrix of one claim of a long answer (**ours**, method, section 14): matched units.

A whole answer's embedding says what it is about, not which of its claims differ. So of each answer drawn the
sentence nearest to the claim stands for it, as a short answer would; an answer without a sentence near enough
does not speak of the claim, and is an outcome of its own, orthogonal to all others and to the claim. What
comes out are rows like those of short answers: every map, fit and probability takes them as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import Overlaps
from service.spectral.spectrum import unit_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

EVERY_ANSWER_SPEAKS = -1.0  # the bound below which no cosine is


@dataclass(frozen=True, slots=True, eq=False)
class MatchedUnits:
    """The sentence of each of m answers drawn that is nearest to each of c claims.

    nearest: (c, m), its row in the table of distinct sentences, the first of equal ones; -1 for an answer
    without a sentence. cosines: (c, m) to the claim, in [-1, 1]; -inf for an answer without a sentence.
    claims: (c, d), and sentences: (k, d), unit rows.
    """

    nearest: Ints
    cosines: Floats
    claims: Floats
    sentences: Floats

    def speaks(self, bound: float = EVERY_ANSWER_SPEAKS) -> NDArray[np.bool_]:
        """Return whether each answer speaks of each claim, (c, m): its nearest sentence's cosine >= bound."""
        return self.cosines >= bound

    def overlaps(
        self, bound: float = EVERY_ANSWER_SPEAKS, references: Sequence[ArrayLike] | None = None
    ) -> list[Overlaps]:
        """Return what the spectra of the claims need, of any of the m answers: c in number.

        Outcomes are the distinct sentences that speak of a claim, in the order of the table, and then each
        answer that does not. The target is the claim itself, as p(y) takes it, or its references (t, d), one
        matrix for each claim.
        """
        targets = self.claims[:, None] if references is None else [unit_rows(one) for one in references]
        rows = zip(self.nearest, self.speaks(bound), targets, strict=True)
        return [self._overlaps(*row) for row in rows]

    def _overlaps(self, nearest: Ints, speaks: NDArray[np.bool_], targets: Floats) -> Overlaps:
        spoken, which = np.unique(nearest[speaks], return_inverse=True)
        silent = int((~speaks).sum())
        index = np.empty(nearest.size, dtype=np.intp)
        index[speaks], index[~speaks] = which, spoken.size + np.arange(silent)
        vectors = self.sentences[spoken]
        # A direction of its own for each silent answer: no cosine with anything but itself.
        cosines = np.eye(spoken.size + silent)
        cosines[: spoken.size, : spoken.size] = vectors @ vectors.T
        along = np.zeros((len(targets), spoken.size + silent))
        along[:, : spoken.size] = targets @ vectors.T
        return Overlaps(cosines, along / np.sqrt(len(targets)), index)


def match(claims: ArrayLike, sentences: ArrayLike, answers: Sequence[ArrayLike]) -> MatchedUnits:
    """Return the sentence of each answer drawn that is nearest to each claim.

    claims: (c, d); sentences: (k, d), a table of distinct ones; answers: m vectors (s_j,) of rows in
    the table, empty for an answer without a sentence. Rows need not be of length 1.
    Raises ValueError for rows that are zero or not finite, or no answers.
    """
    wanted, table = unit_rows(claims), unit_rows(sentences)
    if not answers:
        raise ValueError("claims need at least one answer drawn")
    cosines = wanted @ table.T
    nearest = np.full((len(wanted), len(answers)), -1, dtype=np.intp)
    best = np.full(nearest.shape, -np.inf)
    for j, rows in enumerate(np.asarray(one, dtype=np.intp) for one in answers):
        if rows.size:
            first = cosines[:, rows].argmax(axis=1)
            nearest[:, j] = rows[first]
            best[:, j] = cosines[np.arange(len(wanted)), nearest[:, j]]
    return MatchedUnits(nearest, best, wanted, table)
