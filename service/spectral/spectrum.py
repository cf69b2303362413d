"""From answers to a spectrum (method, section 1): the Gram route, float64, nothing of size d x d."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Eigenvalues up to this are null. Two vectors that differ by float32 rounding only (about 1e-7, or 1e-6
# between batch sizes) make an eigenvalue of at most 1e-12; the eigensolver's own noise is below 1e-13.
# The smallest true eigenvalue on the recorded data is 8e-6. Without the cut, lambda^(1/T) at large T would
# blow rounding up to a mode of its own.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The non-zero part of a density matrix D = sum_a w_a e_a e_a^T, k answers, rank r.

    eigenvalues: (r,) positive, descending, sum 1.
    projections: (k, r), <e_a, u_i> of each answer on each eigenvector, in [-1, 1].
    weights: (k,) shares of the answers, sum 1.
    combination: (k, r), u_i = vectors.T @ combination[:, i] for the unit rows `vectors`.
    dimension: d of the space that D lives in; never below r.
    """

    eigenvalues: Floats
    projections: Floats
    weights: Floats
    combination: Floats
    dimension: int

    @property
    def rank(self) -> int:
        """Number of non-zero eigenvalues."""
        return int(self.eigenvalues.size)

    def eigenvectors(self, vectors: ArrayLike) -> Floats:
        """Return the unit eigenvectors as rows, (r, d), from the vectors (k, d) that made the spectrum."""
        return self.combination.T @ unit_rows(vectors)


def unit_rows(vectors: ArrayLike) -> Floats:
    """Return rows scaled to length 1 in float64, (k, d).

    Raises ValueError for anything but a non-empty matrix of finite, non-zero rows.
    """
    # A float32 eigensolver would leave null eigenvalues of 7e-10, above the rank tolerance.
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"vectors must be a non-empty matrix (k, d), got shape {rows.shape}")
    squares = np.einsum("kd,kd->k", rows, rows)
    if not np.isfinite(squares).all():
        raise ValueError("vectors hold values that are not finite")
    if not squares.all():
        raise ValueError("vectors hold a zero row, which has no direction")
    return np.asarray(rows / np.sqrt(squares)[:, None])


def gram(vectors: ArrayLike) -> Floats:
    """Return the cosines <e_a, e_b> of the rows, (k, k); rows are scaled to length 1 first."""
    rows = unit_rows(vectors)
    return rows @ rows.T


def shares(weights: ArrayLike | None, size: int) -> Floats:
    """Return weights or counts (size,) as shares of sum 1; equal shares for None.

    Raises ValueError for a wrong shape, negative or non-finite values, or a sum of zero.
    """
    if weights is None:
        return np.full(size, 1.0 / size)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (size,):
        raise ValueError(f"weights must have shape ({size},), got {values.shape}")
    total = values.sum()
    if not np.isfinite(total) or total <= 0 or values.min() < 0:
        raise ValueError("weights must be finite and not negative, with a positive sum")
    return np.asarray(values / total)


def _fix_signs(columns: Floats) -> Floats:
    """Make the entry of largest magnitude in each column positive: eigenvectors come with arbitrary sign."""
    peak = np.abs(columns).argmax(axis=0)
    signs = np.where(columns[peak, np.arange(columns.shape[1])] < 0, -1.0, 1.0)
    return np.asarray(columns * signs)


def spectrum_from_gram(
    gram: ArrayLike, weights: ArrayLike | None, dimension: int, *, tolerance: float = RANK_TOLERANCE
) -> Spectrum:
    """Return the spectrum of answers whose cosines are `gram` (k, k), with weights or counts (k,).

    Repeated answers may come as repeated rows or as weights: both give the same eigenvalues.
    Raises ValueError for a Gram matrix that is not square, not finite, or without weight on its diagonal.
    """
    cosines = np.asarray(gram, dtype=np.float64)
    if cosines.ndim != 2 or cosines.shape[0] != cosines.shape[1] or cosines.size == 0:
        raise ValueError(f"a Gram matrix must be square and not empty, got shape {cosines.shape}")
    if not np.isfinite(cosines).all():
        raise ValueError("the Gram matrix holds values that are not finite")
    share = shares(weights, cosines.shape[0])
    root = np.sqrt(share)
    values, columns = np.linalg.eigh(root[:, None] * cosines * root)
    keep = np.flatnonzero(values > tolerance)[::-1]  # eigh ascends, a spectrum descends
    if keep.size == 0:
        raise ValueError("the Gram matrix has no eigenvalue above the rank tolerance")
    kept = values[keep]
    # u_i = E^T v_i / sqrt(m lambda_i) (method, section 1), kept by its coefficients on the rows.
    combination = root[:, None] * _fix_signs(columns[:, keep]) / np.sqrt(kept)
    rank = int(keep.size)
    # The coordinate of empty answers is none of the d: with it the rank may exceed d.
    return Spectrum(kept / kept.sum(), cosines @ combination, share, combination, max(dimension, rank))


def spectrum(
    vectors: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    dimension: int | None = None,
    tolerance: float = RANK_TOLERANCE,
) -> Spectrum:
    """Return the spectrum of distinct answers `vectors` (k, d) with weights or counts (k,) (equal for None).

    `dimension` is the d of the space, where it is not the number of columns (an extra coordinate may stand
    for empty answers); the rank is a lower bound on it. Raises ValueError for unusable vectors or weights.
    """
    rows = unit_rows(vectors)
    space = rows.shape[1] if dimension is None else dimension
    return spectrum_from_gram(rows @ rows.T, weights, space, tolerance=tolerance)


def alignment(spectrum: Spectrum, cosines: ArrayLike) -> tuple[Floats, float]:
    """Return (c, outside) for reference cosines <y_j, e_a>, shape (t, k).

    c_i = (1/t) sum_j <u_i, y_j>^2, shape (r,), in [0, 1]; outside = 1 - sum c, clipped to [0, 1]: the share
    of the references' squared length outside the span of the answers (method, section 3).
    """
    targets = np.atleast_2d(np.asarray(cosines, dtype=np.float64))
    c = np.square(targets @ spectrum.combination).mean(axis=0)
    return c, float(np.clip(1.0 - c.sum(), 0.0, 1.0))


def reference_alignment(
    spectrum: Spectrum, vectors: ArrayLike, references: ArrayLike
) -> tuple[Floats, float]:
    """Return (c, outside) as `alignment` does, from answer vectors (k, d) and reference vectors (t, d)."""
    return alignment(spectrum, unit_rows(references) @ unit_rows(vectors).T)
