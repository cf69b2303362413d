"""Mean matrix log risk with its analytic gradient and Hessian in the unconstrained parameters of each map.

Notation: l_i = log lambda_i, a = 1/T, x = log T, z = logit g, c_i and c_out as in `risk`, sum c + c_out = 1.
Averages are over prompts, with optional weights (n,) of sum 1 (a bootstrap resample).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral.maps import log_null_count, log_softmax
from service.spectral.risk import DevSet

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What both objectives take from a dev set once: finite l (n, R), mask (n, R), c (n, R), weights (n,)."""

    log_eigenvalues: Floats
    padding: Floats
    alignment: Floats
    outside: Floats
    weights: Floats
    dev: DevSet


def terms(dev: DevSet, weights: Floats | None = None) -> Terms:
    """Return the terms of a dev set; equal weights for None."""
    inside = dev.eigenvalues > 0
    finite = np.where(inside, dev.log_eigenvalues, 0.0)
    share = np.full(len(dev), 1.0 / len(dev)) if weights is None else weights
    return Terms(finite, np.where(inside, 0.0, -np.inf), dev.alignment, dev.outside, share, dev)


class TemperatureRisk:
    """R(x) of `TemperatureMap`: R_a = -sum c l - c_out log eps + E_p[l], R_aa = Var_p[l]; convex in a."""

    def __init__(self, parts: Terms, eps: float) -> None:
        null = np.full((len(parts.dev), 1), np.log(eps))
        count = log_null_count(parts.dev.rank, parts.dev.dimension)
        self._scores = np.concatenate([parts.log_eigenvalues, null], axis=1)
        self._offset = np.concatenate([parts.padding, count[:, None]], axis=1)
        target = (parts.alignment * parts.log_eigenvalues).sum(axis=1) + parts.outside * np.log(eps)
        self._target = float(parts.weights @ target)
        self._weights = parts.weights

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), dR/dx (1,), d2R/dx2 (1, 1) at x = log T."""
        a = float(np.exp(-point[0]))
        exponent = a * self._scores + self._offset
        peak = exponent.max(axis=1)
        p = np.exp(exponent - peak[:, None])
        total = p.sum(axis=1)
        mean = np.einsum("nr,nr->n", p, self._scores) / total
        square = np.einsum("nr,nr,nr->n", p, self._scores, self._scores) / total
        value = float(self._weights @ (peak + np.log(total))) - a * self._target
        slope = float(self._weights @ mean) - self._target
        curvature = float(self._weights @ np.maximum(square - mean**2, 0.0))
        return value, np.array([-a * slope]), np.array([[a * a * curvature + a * slope]])


class DepolarizedRisk:
    """R(x, z) of `DepolarizedMap`.

    With s = softmax(a l), delta_i = l_i - E_s[l], V = Var_s[l] and rho_i = (1 - g) s_i / p_i, the part of p_i
    that is not noise: R_a = -sum c rho delta, R_z = g - c_out - sum c (1 - rho),
    R_aa = V sum c rho - sum c rho (1 - rho) delta^2, R_az = sum c rho (1 - rho) delta,
    R_zz = g (1 - g) - sum c rho (1 - rho).
    """

    def __init__(self, parts: Terms) -> None:
        self._parts = parts
        self._log_d = np.log(np.maximum(parts.dev.dimension, parts.dev.rank).astype(np.float64))
        self._outside = float(parts.weights @ parts.outside)
        self._null = float(parts.weights @ (parts.outside * self._log_d))
        self._weighted = parts.weights[:, None] * parts.alignment

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), its gradient (2,) and Hessian (2, 2) at (log T, logit g)."""
        a, z = float(np.exp(-point[0])), float(point[1])
        g, log_g = 1 / (1 + np.exp(-z)), -np.logaddexp(0, -z)
        log_s = log_softmax(a * self._parts.log_eigenvalues + self._parts.padding)
        ratio = np.exp(log_s + self._log_d[:, None] - z)
        # log p = log(g/d) + log(1 + ratio); the ratio of signal to noise is rho / (1 - rho)
        logs = float(self._weighted.sum(axis=1) @ (log_g - self._log_d))
        value = -logs - float((self._weighted * np.log1p(ratio)).sum()) - log_g * self._outside + self._null
        return value, *self._derivatives(a, g, log_s, ratio / (1 + ratio))

    def _derivatives(self, a: float, g: float, log_s: Floats, rho: Floats) -> tuple[Floats, Floats]:
        logs, c = self._parts.log_eigenvalues, self._weighted
        s = np.exp(log_s)
        delta = logs - np.einsum("nr,nr->n", s, logs)[:, None]
        variance = np.einsum("nr,nr,nr->n", s, delta, delta)
        signal, mixed = c * rho, c * rho * (1 - rho)
        r_a = -float((signal * delta).sum())
        r_aa = float(variance @ signal.sum(axis=1) - (mixed * delta**2).sum())
        r_az = float((mixed * delta).sum())
        r_z = g - self._outside - float((c - signal).sum())
        r_zz = g * (1 - g) - float(mixed.sum())
        return np.array([-a * r_a, r_z]), np.array([[a * a * r_aa + a * r_a, -a * r_az], [-a * r_az, r_zz]])
