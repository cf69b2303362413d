"""Spectra, overlaps and dev sets from embedding vectors, for experiments without texts.

Calibrations and scores use the kernel of texts instead (`service.claims.kernel`).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import DevSpectra, Overlaps, solve, weighted
from service.spectral.spectrum import RANK_TOLERANCE, Spectrum, spectrum_from_gram, unit_rows

Floats = NDArray[np.float64]
SYMMETRIC_FROM = 32  # rows


def spectrum(
    vectors: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    dimension: int | None = None,
    tolerance: float = RANK_TOLERANCE,
) -> Spectrum:
    """Return the spectrum of distinct answers `vectors` (k, d) with weights or counts (k,) (equal for None).

    dimension: d of the space, if it is not the number of columns (an extra coordinate may represent empty
    answers); raised to the rank if it is lower. Raises ValueError for unusable vectors or weights.
    """
    rows = unit_rows(vectors)
    space = rows.shape[1] if dimension is None else dimension
    return spectrum_from_gram(rows @ rows.T, weights, space, tolerance=tolerance)


def eigenvectors(spectrum: Spectrum, vectors: ArrayLike) -> Floats:
    """Return the unit eigenvectors of a spectrum as rows, (r, d), from the vectors (k, d) of the answers."""
    return spectrum.combination.T @ unit_rows(vectors)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers to one prompt and its references.

    vectors: (k, d) of the distinct answers. index: (m,), the distinct answer of each draw. references: (t,
    d); without any, the right answer is an outcome that no answer has.
    """

    vectors: NDArray[np.floating]
    index: NDArray[np.int_]
    references: NDArray[np.floating]


def _dots(rows: Floats, size: int) -> tuple[Floats, Floats]:
    """Return the products of the first `size` rows with all rows, (size, n), and squared lengths (n,)."""
    if size > SYMMETRIC_FROM:  # a product with the own transpose costs half, but has overhead
        dots = rows @ rows.T
        return dots[:size], dots.diagonal().copy()
    return rows[:size] @ rows.T, np.einsum("nd,nd->n", rows, rows)


def overlaps(answers: Answers) -> Overlaps:
    """Return the overlaps of one prompt in float64; rows need not be of length 1.

    Raises ValueError for zero or non-finite rows, no answers, or an index out of range.
    """
    vectors, targets = np.asarray(answers.vectors), np.asarray(answers.references)
    index = np.asarray(answers.index)
    size, references = len(vectors), len(targets)
    if size == 0 or index.size == 0:
        raise ValueError("a prompt needs at least one answer")
    if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= size:
        raise ValueError("index points outside the distinct answers")
    if vectors.ndim != 2 or targets.shape != (references, vectors.shape[1]):
        raise ValueError("answers and references must be rows of one dimension")
    # Assignment copies and widens float32 rows in one step; concatenation would copy twice.
    rows = np.empty((size + references, vectors.shape[1]))
    rows[:size], rows[size:] = vectors, targets
    # Infinities and NaN are rejected just below; numpy's warnings would be redundant.
    with np.errstate(invalid="ignore", over="ignore"):
        cosines, squares = _dots(rows, size)
    if not (squares.min() > 0 and squares.max() < np.inf):  # also false for NaN
        raise ValueError("vectors hold a zero row or values that are not finite")
    # Dividing the few products by the lengths is cheaper than scaling the long rows.
    scale = 1 / np.sqrt(squares)
    cosines *= scale
    cosines *= scale[:size, None]
    # With 1 / sqrt(t), a sum of squares over the references is a mean, as in Y.
    return Overlaps(cosines[:, :size], cosines[:, size:].T / math.sqrt(max(references, 1)), index)


def dev_set(answers: Iterable[Answers], dimension: int, *, tolerance: float = RANK_TOLERANCE) -> DevSpectra:
    """Return the dev set of all draws of each prompt. An iterator is read once; its vectors are not kept."""
    return solve([weighted(overlaps(prompt)) for prompt in answers], dimension, tolerance=tolerance)
