"""Mean matrix log risk of the `evidence` map with its analytic gradient and Hessian (see `objectives`)."""

import numpy as np
from numpy.typing import NDArray

from service.spectral.evidence import LOGIT_BOUND
from service.spectral.missing_mass import logit_missing_mass
from service.spectral.objectives import Terms

Floats = NDArray[np.float64]


class EvidenceRisk:
    """R(x, a, b) of `EvidenceMap` with its gradient and Hessian; notation as in `objectives`.

    As `objectives.DepolarizedRisk` with z_n = a + b logit u_n of each prompt's own, so the derivatives by a
    and b are those by z_n, summed with weights 1 and logit u_n. Where z_n is clipped they are 0.
    """

    def __init__(self, parts: Terms, missing: Floats) -> None:
        self._parts = parts
        logits = logit_missing_mass(missing)
        self._design = np.stack([np.ones_like(logits), logits])
        # Relative to the largest eigenvalue: no temperature makes the exponentials overflow.
        self._below = parts.logs - parts.logs[parts.first][parts.prompt]
        self._dimension = np.maximum(parts.dev.dimension, parts.dev.rank).astype(np.float64)
        self._mass = parts.sums(parts.alignment) + parts.outside
        self._spread = float(self._mass @ np.log(self._dimension))

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), its gradient (3,) and Hessian (3, 3) at (log T, a, b)."""
        inverse, parts = float(np.exp(-point[0])), self._parts
        asked = point[1:] @ self._design
        z = np.clip(asked, -LOGIT_BOUND, LOGIT_BOUND)
        e = np.exp(inverse * self._below)
        total = parts.sums(e)
        ratio = e * (self._dimension * np.exp(-z) / total)[parts.prompt]
        value = float(self._mass @ np.logaddexp(0, -z)) - float(parts.alignment @ np.log1p(ratio))
        signal = parts.alignment * (ratio / (1 + ratio))
        mixed = signal / (1 + ratio)
        delta = self._below - (parts.sums(e * self._below) / total)[parts.prompt]
        by_x = self._by_log_temperature(inverse, signal, mixed, delta, parts.sums(e * delta * delta) / total)
        r_z, r_zz, r_az = self._by_logit(z, signal, mixed, delta) * (z == asked)
        return self._spread + value, *self._assembled(by_x, r_z, r_zz, -inverse * r_az)

    def _by_log_temperature(
        self, inverse: float, signal: Floats, mixed: Floats, delta: Floats, variance: Floats
    ) -> tuple[float, float]:
        r_a = -float(signal @ delta)
        r_aa = float(variance @ self._parts.sums(signal)) - float((mixed * delta) @ delta)
        return -inverse * r_a, inverse * inverse * r_aa + inverse * r_a

    def _by_logit(self, z: Floats, signal: Floats, mixed: Floats, delta: Floats) -> Floats:
        """Return dR/dz_n, d2R/dz_n^2 and d2R/(d(1/T) dz_n), (3, n)."""
        g, sums = 1 / (1 + np.exp(-z)), self._parts.sums
        r_z = sums(signal) - (1 - g) * self._mass
        return np.stack([r_z, g * (1 - g) * self._mass - sums(mixed), sums(mixed * delta)])

    def _assembled(
        self, by_x: tuple[float, float], r_z: Floats, r_zz: Floats, r_xz: Floats
    ) -> tuple[Floats, Floats]:
        hessian = np.empty((3, 3))
        hessian[0, 0] = by_x[1]
        hessian[0, 1:] = hessian[1:, 0] = self._design @ r_xz
        hessian[1:, 1:] = (self._design * r_zz) @ self._design.T
        return np.append(by_x[0], self._design @ r_z), hessian
