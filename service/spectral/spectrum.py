"""Spectra of answers, calibration maps of their eigenvalues, and the probability of a text.

Spectra are computed from the Gram matrix of the answers (method, section 1): float64, nothing of size d x d.

Calibration maps (section 2) change eigenvalues only, not eigenvectors or their order. A map defines two
spectra. *Fitted* is the operator on the full space; fits minimise its risk. *Served* is the spectrum that a
caller sees. They differ for `TemperatureMap` (the paper serves the sample spectrum) and agree for
`DepolarizedMap`. All maps work on logarithms, so that no temperature gives a NaN.

The probability of a text by Born's rule (**ours**, section 7): p(y) = y^T h(D) y = sum_i p_i (u_i . y)^2 +
q (1 - sum_i (u_i . y)^2) for a text with unit embedding y, under the served matrix: eigenvectors u_i from the
answers drawn, p_i and q served.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Eigenvalues up to this are null. Two vectors that differ only by float32 rounding (about 1e-7, or 1e-6
# between batch sizes) give an eigenvalue of at most 1e-12; the eigensolver's noise is below 1e-13. The
# smallest true eigenvalue on the recorded data is 8e-6. Without this cut, lambda^(1/T) at large T would turn
# rounding into a mode.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The non-zero part of a density matrix D = sum_a w_a e_a e_a^T, k answers, rank r.

    eigenvalues: (r,) positive, descending, sum 1.
    projections: (k, r), <e_a, u_i> of each answer on each eigenvector, in [-1, 1].
    weights: (k,) shares of the answers, sum 1.
    combination: (k, r), u_i = vectors.T @ combination[:, i] for the unit rows `vectors`.
    dimension: d, the dimension of the space of D; never below r.
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
    """Return columns with a positive entry of largest magnitude: the sign of an eigenvector is arbitrary."""
    peak = np.abs(columns).argmax(axis=0)
    signs = np.where(columns[peak, np.arange(columns.shape[1])] < 0, -1.0, 1.0)
    return np.asarray(columns * signs)


def spectrum_from_gram(
    gram: ArrayLike, weights: ArrayLike | None, dimension: int, *, tolerance: float = RANK_TOLERANCE
) -> Spectrum:
    """Return the spectrum of answers with cosines `gram` (k, k) and weights or counts (k,).

    Repeated answers may be repeated rows or weights: both give the same eigenvalues.
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
    keep = np.flatnonzero(values > tolerance)[::-1]  # eigh is ascending, a spectrum descending
    if keep.size == 0:
        raise ValueError("the Gram matrix has no eigenvalue above the rank tolerance")
    kept = values[keep]
    # u_i = E^T v_i / sqrt(m lambda_i) (method, section 1), stored as its coefficients on the rows.
    combination = root[:, None] * _fix_signs(columns[:, keep]) / np.sqrt(kept)
    rank = int(keep.size)
    # The coordinate of empty answers is not one of the d, so the rank may exceed d.
    return Spectrum(kept / kept.sum(), cosines @ combination, share, combination, max(dimension, rank))


def alignment(spectrum: Spectrum, cosines: ArrayLike) -> tuple[Floats, float]:
    """Return (c, outside) for reference cosines <y_j, e_a>, shape (t, k).

    c_i = (1/t) sum_j <u_i, y_j>^2, shape (r,), in [0, 1]; outside = 1 - sum c, clipped to [0, 1]: the share
    of the references' squared length outside the span of the answers (method, section 3).
    """
    targets = np.atleast_2d(np.asarray(cosines, dtype=np.float64))
    c = np.square(targets @ spectrum.combination).mean(axis=0)
    return c, float(np.clip(1.0 - c.sum(), 0.0, 1.0))


# Stored with a calibration, because the fitted temperature depends on it (method, section 2).
DEFAULT_EPS = 1e-10
# With g = 0, a reference outside the span has infinite risk, so fits stop just short of 0.
DEPOLARIZATION_BOUNDS = (1e-6, 1 - 1e-6)
LOGIT_BOUND = math.log1p(-1e-6) - math.log(1e-6)  # of |logit g|, from DEPOLARIZATION_BOUNDS


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
    def entropy(self) -> float:
        """Von Neumann entropy in nats, null values included, 0 log 0 = 0. Higher = less certain."""
        positive = self.eigenvalues[self.eigenvalues > 0]
        nats = -float(positive @ np.log(positive))
        if self.null_value > 0:
            nats -= self.null_count * self.null_value * math.log(self.null_value)
        return nats if nats > 0 else 0.0  # never -0.0

    def entropy_normalized(self, num_samples: int) -> float:
        """Entropy divided by its maximum for this spectrum, in [0, 1]. Higher = less certain.

        The maximum is log m for a sample spectrum (no weight on null directions) and log d for a full one.
        One sample (or one dimension) gives 0.
        """
        full = self.null_value > 0
        outcomes = self.eigenvalues.size + self.null_count if full else num_samples
        return min(self.entropy / math.log(outcomes), 1.0) if outcomes > 1 else 0.0


class CalibrationMap(ABC):
    """A calibration map of eigenvalues. The `log_` methods map n padded spectra at once.

    They take log eigenvalues (n, R), -inf where padded, ranks (n,) and the dimension d. They return
    log p (n, R) and log q (n,), where q is the probability of a single null direction.
    """

    __slots__ = ()

    @abstractmethod
    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p, log q of the served spectra."""

    def log_fitted(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p, log q of the fitted operators, on the full space: the risk is defined on them."""
        return self.log_served(log_eigenvalues, rank, dimension)

    def serve(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the served spectrum for the eigenvalues (r,) of one density matrix in d dimensions."""
        return _map_one(self.log_served, eigenvalues, dimension)

    def fitted(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the fitted operator for the eigenvalues (r,) of one density matrix in d dimensions."""
        return _map_one(self.log_fitted, eigenvalues, dimension)


def _map_one(
    log_map: Callable[[Floats, NDArray[np.int_], int], tuple[Floats, Floats]],
    eigenvalues: ArrayLike,
    dimension: int,
) -> ServedSpectrum:
    """Map one spectrum. Raises ValueError unless the eigenvalues are positive, finite and not empty."""
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not (values > 0).all() or not np.isfinite(values).all():
        raise ValueError("eigenvalues must be a non-empty vector of positive, finite numbers")
    log_p, log_q = log_map(np.log(values)[None], np.array([values.size]), dimension)
    return ServedSpectrum(np.exp(log_p[0]), float(np.exp(log_q[0])), max(dimension - values.size, 0))


def log_softmax(scores: Floats) -> Floats:
    """Return scores (n, R) minus the log of the sum of their exponentials, row by row; -inf stays -inf."""
    # The largest becomes 0, so nothing overflows and the sum is at least 1.
    shifted: Floats = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def log_null_count(rank: NDArray[np.int_], dimension: int) -> Floats:
    """Return log(d - r) (n,), -inf where the rank reaches the dimension."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(dimension - rank, 0).astype(np.float64)))


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class TemperatureMap(CalibrationMap):
    """The paper's matrix temperature scaling h_T(D) = D^(1/T) / tr D^(1/T); T > 1 flattens the spectrum.

    The fitted operator sets each null eigenvalue to `eps` > 0 before scaling; eps is part of the calibration.
    With a = 1/T, its eigenvalues are lambda_i^a / Z and eps^a / Z, Z = sum_i lambda_i^a + (d - r) eps^a. The
    served spectrum has only the positive eigenvalues, lambda_i^a / sum_j lambda_j^a. T = 1 is no calibration:
    the raw spectrum. Raises ValueError unless T and eps are positive.
    """

    temperature: float
    eps: float = DEFAULT_EPS
    depolarization: ClassVar[float] = 0.0  # of the served spectrum

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
        # One term for the joint weight of the d - r null directions, so that no array has length d.
        with_null = np.concatenate([scores, (null + log_null_count(rank, dimension))[:, None]], axis=1)
        peak = with_null.max(axis=1)  # not always lambda_1, because null directions are many
        log_z = peak + np.log(np.exp(with_null - peak[:, None]).sum(axis=1))
        return scores - log_z[:, None], null - log_z


@dataclass(frozen=True, slots=True)
class DepolarizedMap(CalibrationMap):
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
            # -inf for g = 0: null directions have probability 0.
            log_q = np.log(self.depolarization / np.maximum(dimension, rank))
        # In logarithms, because small eigenvalues of the shape underflow to 0 at a small T.
        return np.logaddexp(math.log1p(-self.depolarization) + shape, log_q[:, None]), log_q


def serve(spectrum: Spectrum, temperature: float = 1.0, depolarization: float = 0.0) -> ServedSpectrum:
    """Return the spectrum (1 - g) D^(1/T) / tr D^(1/T) + g I/d. T = 1 and g = 0 is the raw spectrum.

    temperature: T > 0. depolarization: g in [0, 1). In logarithms, so that nothing underflows at a small T.
    """
    scores = np.log(spectrum.eigenvalues) / temperature
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    null = depolarization / spectrum.dimension
    with np.errstate(divide="ignore"):
        values = np.exp(np.logaddexp(math.log1p(-depolarization) + scores, np.log(null)))
    return ServedSpectrum(values, null, spectrum.dimension - values.size)


TIE = 1e-9  # of squared lengths: batched and single computations differ in their last bits


@dataclass(frozen=True, slots=True, eq=False)
class BornProbability:
    """The probability of a text under a served spectrum.

    probability: p(y) in [0, lambda_max]. Higher = more likely meant.
    mode: index of the eigenvector with the largest share of y's squared length, 0 = largest eigenvalue. None
    if the share outside the answers' span is larger: then no answer says the same as the text.
    inside: (r,) squared length of y on each eigenvector, in [0, 1]; outside: the rest, in [0, 1].
    """

    probability: float
    mode: int | None
    inside: Floats
    outside: float


def bounded(inside: Floats) -> Floats:
    """Return squared lengths (.., r), scaled down if rounding makes their sum exceed 1."""
    return np.asarray(inside / np.maximum(inside.sum(axis=-1, keepdims=True), 1.0))


def is_supported(top: ArrayLike, outside: ArrayLike) -> NDArray[np.bool_]:
    """Return True if a text's largest squared length on an eigenvector is at least its length outside.

    top, outside: squared lengths of the text, of the same shape.
    """
    return np.asarray(np.asarray(top) >= np.asarray(outside) - TIE)


def born_probability(spectrum: Spectrum, served: ServedSpectrum, cosines: ArrayLike) -> BornProbability:
    """Return p(y) for a text y from its cosines (k,) to the answers of the spectrum.

    Raises ValueError unless there is one finite cosine per answer.
    """
    values = np.asarray(cosines, dtype=np.float64)
    if values.shape != spectrum.weights.shape or not np.isfinite(values).all():
        raise ValueError("a text needs a finite cosine to every answer")
    inside = bounded(alignment(spectrum, values)[0])
    outside = max(1.0 - float(inside.sum()), 0.0)
    # Only rounding of the weights puts this mean of eigenvalues above lambda_max.
    mean = float(inside @ served.eigenvalues) + outside * served.null_value
    top = int(inside.argmax())
    mode = top if is_supported(inside[top], outside) else None
    return BornProbability(min(mean, served.lambda_max), mode, inside, outside)
