"""Mean matrix log risk with its analytic gradient and Hessian in the unconstrained parameters of each map.

Notation: l_i = log lambda_i, a = 1/T, x = log T, z = logit g, c_i and c_out as in `risk`, sum c + c_out = 1.
Averages are over prompts, with optional weights (n,) of sum 1 (a bootstrap resample). The eigenvalues of all
prompts lie end to end in one vector of E: ranks differ widely, and padding would be most of a matrix.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral.maps import log_null_count
from service.spectral.risk import DevSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What both objectives take from a dev set once.

    logs: (E,), l, descending within a prompt; alignment: (E,), c times the prompt's weight.
    first: (n,), where each prompt begins; prompt: (E,), whose eigenvalue it is.
    outside: (n,), c_out times the weight; weights: (n,).
    """

    logs: Floats
    alignment: Floats
    first: Ints
    prompt: Ints
    outside: Floats
    weights: Floats
    dev: DevSet

    def sums(self, values: Floats) -> Floats:
        """Return the sum over each prompt's eigenvalues, (n,), of values (E,)."""
        # reduceat has no empty segments: every prompt has at least one eigenvalue.
        return np.asarray(np.add.reduceat(values, self.first))


def terms(dev: DevSet, weights: Floats | None = None) -> Terms:
    """Return the terms of a dev set; equal weights for None."""
    share = np.full(len(dev), 1.0 / len(dev)) if weights is None else weights
    prompt = np.repeat(np.arange(len(dev)), dev.rank)
    first = np.cumsum(dev.rank) - dev.rank
    column = np.arange(prompt.size) - first[prompt]
    logs, aligned = dev.log_eigenvalues[prompt, column], dev.alignment[prompt, column]
    return Terms(logs, aligned * share[prompt], first, prompt, dev.outside * share, share, dev)


class TemperatureRisk:
    """R(x) of `TemperatureMap`: R_a = -sum c l - c_out log eps + E_p[l], R_aa = Var_p[l]; convex in a."""

    def __init__(self, parts: Terms, eps: float) -> None:
        self._parts = parts
        self._top = parts.logs[parts.first]
        self._below = parts.logs - self._top[parts.prompt]
        self._null = np.log(eps) - self._top
        self._null_count = log_null_count(parts.dev.rank, parts.dev.dimension)
        self._target = float(parts.alignment @ parts.logs + parts.outside.sum() * np.log(eps))

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), dR/dx (1,), d2R/dx2 (1, 1) at x = log T."""
        a, parts, below = float(np.exp(-point[0])), self._parts, self._below
        # relative to the largest eigenvalue; the null ones, many, may outweigh it
        null = a * self._null + self._null_count
        peak = np.maximum(null, 0.0)
        null = np.exp(null - peak)
        p = np.exp(a * below - peak[parts.prompt])
        total = parts.sums(p) + null
        weighted = p * below
        mean = (parts.sums(weighted) + null * self._null) / total
        square = (parts.sums(weighted * below) + null * self._null**2) / total
        value = float(parts.weights @ (a * self._top + peak + np.log(total))) - a * self._target
        slope = float(parts.weights @ (self._top + mean)) - self._target
        # A variance as a difference of squares may fall below 0 by rounding.
        curvature = float(parts.weights @ np.maximum(square - mean**2, 0.0))
        # By the chain rule for a = exp(-x): R_x = -a R_a and R_xx = a^2 R_aa + a R_a.
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
        self._below = parts.logs - parts.logs[parts.first][parts.prompt]
        self._dimension = np.maximum(parts.dev.dimension, parts.dev.rank).astype(np.float64)
        mass = parts.sums(parts.alignment) + parts.outside
        self._mass = float(mass.sum())
        self._spread = float(mass @ np.log(self._dimension))

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), its gradient (2,) and Hessian (2, 2) at (log T, logit g)."""
        a, z, parts = float(np.exp(-point[0])), float(point[1]), self._parts
        g, log_g = 1 / (1 + np.exp(-z)), -np.logaddexp(0, -z)
        e = np.exp(a * self._below)
        total = parts.sums(e)
        # log p = log(g/d) + log(1 + ratio); the ratio of signal to noise is rho / (1 - rho)
        ratio = e * (self._dimension * np.exp(-z) / total)[parts.prompt]
        value = self._spread - log_g * self._mass - float(parts.alignment @ np.log1p(ratio))
        mean = parts.sums(e * self._below) / total
        delta = self._below - mean[parts.prompt]
        variance = parts.sums(e * delta * delta) / total
        return value, *self._derivatives(a, g, delta, variance, ratio)

    def _derivatives(
        self, a: float, g: float, delta: Floats, variance: Floats, ratio: Floats
    ) -> tuple[Floats, Floats]:
        noise = 1 / (1 + ratio)
        signal = self._parts.alignment * (ratio * noise)
        mixed = signal * noise
        tilted = mixed * delta
        r_a = -float(signal @ delta)
        r_aa = float(variance @ self._parts.sums(signal)) - float(tilted @ delta)
        r_az = float(tilted.sum())
        r_z = g - self._mass + float(signal.sum())
        r_zz = g * (1 - g) - float(mixed.sum())
        return np.array([-a * r_a, r_z]), np.array([[a * a * r_aa + a * r_a, -a * r_az], [-a * r_az, r_zz]])
