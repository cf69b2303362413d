"""A spectrum: of answers, under a map of its eigenvalues, and what it says of one text.

From answers to a spectrum (method, section 1) by the Gram route: float64, nothing of size d x d.

Calibration maps (section 2) act on eigenvalues only; eigenvectors and order stay. A map has two faces.
*Fitted* is the operator on the full space whose risk is minimised; *served* is the spectrum that a caller
sees. They differ for `TemperatureMap` (the paper serves the sample spectrum) and agree for `DepolarizedMap`.
Everything is done on logarithms: no temperature makes a NaN.

The probability of one given answer by Born's rule (**ours**, section 7): p(y) = y^T h(D) y = sum_i p_i
(u_i . y)^2 + q (1 - sum_i (u_i . y)^2) for a text with unit embedding y, under the served matrix:
eigenvectors u_i from the answers drawn, p_i and q served.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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


# Stored with a calibration: the fitted temperature hangs on it (method, section 2).
DEFAULT_EPS = 1e-10
# g = 0 would give a reference outside the span an infinite risk, so fits stop just short of it.
DEPOLARIZATION_BOUNDS = (1e-6, 1 - 1e-6)
LOGIT_BOUND = math.log1p(-1e-6) - math.log(1e-6)  # of |logit g| there


@dataclass(frozen=True, slots=True, eq=False)
class ServedSpectrum:
    """A calibrated spectrum: `eigenvalues` (r,), descending, and `null_count` more of `null_value` each."""

    eigenvalues: Floats
    null_value: float
    null_count: int

    @property
    def lambda_max(self) -> float:
        """The largest eigenvalue, in (0, 1]. Higher = more certain."""
        return float(self.eigenvalues[0])

    @property
    def total(self) -> float:
        """The trace, null values included: 1 up to rounding."""
        return float(self.eigenvalues.sum() + self.null_count * self.null_value)

    @property
    def entropy(self) -> float:
        """Von Neumann entropy in nats, null values included, 0 log 0 = 0. Higher = less certain."""
        positive = self.eigenvalues[self.eigenvalues > 0]
        nats = -float(positive @ np.log(positive))
        if self.null_value > 0:
            nats -= self.null_count * self.null_value * math.log(self.null_value)
        return nats if nats > 0 else 0.0  # never -0.0

    def entropy_normalized(self, num_samples: int) -> float:
        """Entropy over the largest value that this spectrum allows, in [0, 1]. Higher = less certain.

        That is log m for a sample spectrum (no weight on null directions) and log d for a full one.
        One sample (or one dimension) allows no uncertainty: 0.
        """
        full = self.null_value > 0
        outcomes = self.eigenvalues.size + self.null_count if full else num_samples
        return min(self.entropy / math.log(outcomes), 1.0) if outcomes > 1 else 0.0


class CalibrationMap(Protocol):
    """What every map offers. The `log_` methods work on n padded spectra at once.

    They take log eigenvalues (n, R), -inf where padded, ranks (n,) and the dimension d, and return
    log p (n, R) and log q (n,), q the probability of a single null direction.
    """

    def serve(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return what callers see of the eigenvalues (r,) of one density matrix in d dimensions."""

    def fitted(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the operator on the full space that the risk is about."""

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p, log q of the served spectra."""

    def log_fitted(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p, log q of the fitted operators."""


def log_softmax(scores: Floats) -> Floats:
    """Return scores (n, R) minus the log of the sum of their exponentials, row by row; -inf stays -inf."""
    # The largest becomes 0: nothing overflows, and the sum is at least 1.
    shifted: Floats = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def log_null_count(rank: NDArray[np.int_], dimension: int) -> Floats:
    """Return log(d - r), -inf where the rank reaches the dimension."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(dimension - rank, 0).astype(np.float64)))


def _row(eigenvalues: ArrayLike) -> Floats:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not (values > 0).all() or not np.isfinite(values).all():
        raise ValueError("eigenvalues must be a non-empty vector of positive, finite numbers")
    return values


class _OneByBatch:
    """A map of one spectrum by its map of many."""

    __slots__ = ()

    def serve(self: CalibrationMap, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the served spectrum of the eigenvalues (r,)."""
        return _one(self.log_served, eigenvalues, dimension)

    def fitted(self: CalibrationMap, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the operator on the full space."""
        return _one(self.log_fitted, eigenvalues, dimension)


def _one(
    log_map: Callable[[Floats, NDArray[np.int_], int], tuple[Floats, Floats]],
    eigenvalues: ArrayLike,
    dimension: int,
) -> ServedSpectrum:
    values = _row(eigenvalues)
    log_p, log_q = log_map(np.log(values)[None], np.array([values.size]), dimension)
    return ServedSpectrum(np.exp(log_p[0]), float(np.exp(log_q[0])), max(dimension - values.size, 0))


class ServedAsFitted(_OneByBatch):
    """A map whose fitted operator is the one served."""

    __slots__ = ()

    def log_fitted(
        self: CalibrationMap, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return what `log_served` does."""
        return self.log_served(log_eigenvalues, rank, dimension)


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class TemperatureMap(_OneByBatch):
    """The paper's matrix temperature scaling h_T(D) = D^(1/T) / tr D^(1/T); T > 1 flattens the spectrum.

    `eps` > 0 is what each null eigenvalue is set to before scaling, in the fitted operator; it is part of the
    calibration. With a = 1/T it is lambda_i^a / Z and eps^a / Z, Z = sum_i lambda_i^a + (d - r) eps^a. Served
    are the positive eigenvalues alone, lambda_i^a / sum_j lambda_j^a. Raises ValueError for T or eps that are
    not positive.
    """

    temperature: float
    eps: float = DEFAULT_EPS

    def __post_init__(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature > 0, "temperature must be positive")
        _require(math.isfinite(self.eps) and self.eps > 0, "eps must be positive")

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p (n, R) of the sample spectra; log q (n,) is -inf."""
        return log_softmax(log_eigenvalues / self.temperature), np.full(rank.shape, -np.inf)

    def log_fitted(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p (n, R), log q (n,) of the operators on the full space."""
        scores = log_eigenvalues / self.temperature
        null = np.full(rank.shape, math.log(self.eps) / self.temperature)
        # The d - r null directions as one term of their joint weight: nothing of length d is made.
        with_null = np.concatenate([scores, (null + log_null_count(rank, dimension))[:, None]], axis=1)
        peak = with_null.max(axis=1)  # not always lambda_1: null directions are many
        log_z = peak + np.log(np.exp(with_null - peak[:, None]).sum(axis=1))
        return scores - log_z[:, None], null - log_z


@dataclass(frozen=True, slots=True)
class DepolarizedMap(ServedAsFitted):
    """h_{T,g}(D) = (1 - g) D^(1/T) / tr D^(1/T) + g I/d: T for the shape, g for the mass outside the span.

    p_i = (1 - g) lambda_i^a / sum_j lambda_j^a + g/d with a = 1/T; each null value is g/d. T = 1 and g = 0 is
    the identity. Raises ValueError unless T > 0 and 0 <= g < 1.
    """

    temperature: float
    depolarization: float

    def __post_init__(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature > 0, "temperature must be positive")
        _require(0 <= self.depolarization < 1, "depolarization must be in [0, 1)")

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p (n, R), log q (n,). d is never below the rank, so the trace stays 1."""
        shape = log_softmax(log_eigenvalues / self.temperature)
        with np.errstate(divide="ignore"):
            # -inf for g = 0: null directions have no probability then.
            log_q = np.log(self.depolarization / np.maximum(dimension, rank))
        # In logarithms: at a small T the smaller eigenvalues of the shape underflow to 0.
        return np.logaddexp(math.log1p(-self.depolarization) + shape, log_q[:, None]), log_q


@dataclass(frozen=True, slots=True)
class Identity:
    """No calibration: the raw spectrum is served.

    A raw spectrum gives an answer outside its span probability 0 and so an infinite risk. Its *fitted*
    operator, used for risks only, therefore sets each null eigenvalue to `eps`, as `TemperatureMap(1, eps)`
    does.
    """

    eps: float = DEFAULT_EPS

    def __post_init__(self) -> None:
        _require(math.isfinite(self.eps) and self.eps > 0, "eps must be positive")

    def serve(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the eigenvalues (r,) as they are; null value 0."""
        values = _row(eigenvalues)
        return ServedSpectrum(values, 0.0, max(dimension - values.size, 0))

    def fitted(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the raw spectrum with null eigenvalues set to eps, scaled to trace 1."""
        return TemperatureMap(1.0, self.eps).fitted(eigenvalues, dimension)

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return the log eigenvalues as they are; log q (n,) is -inf."""
        return log_eigenvalues, np.full(rank.shape, -np.inf)

    def log_fitted(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p, log q of `TemperatureMap(1, eps)`."""
        return TemperatureMap(1.0, self.eps).log_fitted(log_eigenvalues, rank, dimension)


TIE = 1e-9  # of squared lengths: one text's in a stack of prompts and alone differ in their last bits


@dataclass(frozen=True, slots=True, eq=False)
class BornProbability:
    """What a served spectrum says of one text.

    probability: p(y) in [0, lambda_max]. Higher = more likely meant.
    mode: the eigenvector, 0 the largest, that holds most of y's squared length; None where none holds as much
    as what lies outside the answers' span: then the text says something that no answer said.
    inside: (r,) squared length of y on each eigenvector, in [0, 1]; outside: the rest, in [0, 1].
    """

    probability: float
    mode: int | None
    inside: Floats
    outside: float


def bounded(inside: Floats) -> Floats:
    """Return squared lengths (.., r), scaled down where rounding makes their sum exceed 1."""
    return np.asarray(inside / np.maximum(inside.sum(axis=-1, keepdims=True), 1.0))


def is_supported(top: ArrayLike, outside: ArrayLike) -> NDArray[np.bool_]:
    """Return whether as much of a text lies on one eigenvector, at most `top`, as outside the span."""
    return np.asarray(np.asarray(top) >= np.asarray(outside) - TIE)


def born_probability(spectrum: Spectrum, served: ServedSpectrum, cosines: ArrayLike) -> BornProbability:
    """Return p(y) for a text y from its cosines (k,) to the answers that made the spectrum.

    Raises ValueError for cosines that are not finite or not one per answer.
    """
    given = np.asarray(cosines, dtype=np.float64)
    if given.shape != spectrum.weights.shape or not np.isfinite(given).all():
        raise ValueError("a text needs a finite cosine to every answer")
    inside = bounded(alignment(spectrum, given)[0])
    outside = max(1.0 - float(inside.sum()), 0.0)
    # A mean of eigenvalues is at most lambda_max, but for the rounding of its weights.
    mean = float(inside @ served.eigenvalues) + outside * served.null_value
    top = int(inside.argmax())
    mode = top if is_supported(inside[top], outside) else None
    return BornProbability(min(mean, served.lambda_max), mode, inside, outside)


def born_probability_of(
    spectrum: Spectrum, served: ServedSpectrum, vectors: ArrayLike, text: ArrayLike
) -> BornProbability:
    """Return p(y) for a text's embedding (d,), from the vectors (k, d) that made the spectrum.

    Rows need not be of length 1. Raises ValueError for a zero or non-finite row or another dimension.
    """
    [cosines] = unit_rows(np.atleast_2d(text)) @ unit_rows(vectors).T
    return born_probability(spectrum, served, cosines)
