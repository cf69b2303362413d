"""Calibration maps (method, section 2). They act on eigenvalues only; eigenvectors and order stay.

A map has two faces. *Fitted* is the operator on the full space whose risk is minimised; *served* is the
spectrum that a caller sees. They differ for `TemperatureMap` (the paper serves the sample spectrum) and
agree for `DepolarizedMap`. Everything is done on logarithms: no temperature makes a NaN.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# Stored with a calibration: the fitted temperature hangs on it (method, section 2).
DEFAULT_EPS = 1e-10


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
