"""The `evidence` map (**ours**, method, section 6): depolarisation by what the log-probabilities leave over.

h_{T,a,b}(D; u) = (1 - g) D^(1/T) / tr D^(1/T) + g I/d, where u is the missing mass of the prompt and
g = sigmoid(a + b logit u). b = 0 is `DepolarizedMap`; b >= 0: more missing mass never means more confidence.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.maps import DepolarizedMap, ServedSpectrum, log_softmax
from service.spectral.missing_mass import logit_missing_mass
from service.spectral.risk import DevSet

Floats = NDArray[np.float64]

# sigmoid(12) is within 6e-6 of 1: at b = 0 a wider box is worth less than 1e-5 nats.
INTERCEPT_BOUNDS = (-12.0, 12.0)
# Not below 0: more missing mass never means more confidence.
SLOPE_BOUNDS = (0.0, 5.0)
# |logit g| stays within this: g in [1e-6, 1 - 1e-6], so that no reference has an infinite risk.
LOGIT_BOUND = math.log1p(-1e-6) - math.log(1e-6)


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]  # false for NaN


@dataclass(frozen=True, slots=True, eq=False)
class PromptDepolarizedMap:
    """`DepolarizedMap` with one temperature for all prompts and one depolarization (n,) for each, in order.

    It fits the n prompts that it was made for, and only them: `risk.risks(evidence.over(u), dev)`.
    """

    temperature: float
    depolarizations: Floats

    def serve(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return the served spectrum of the only prompt. Raises ValueError where there are several."""
        return DepolarizedMap(self.temperature, self.depolarizations.item()).serve(eigenvalues, dimension)

    def fitted(self, eigenvalues: ArrayLike, dimension: int) -> ServedSpectrum:
        """Return what `serve` does: the operator that is fitted is the one served."""
        return self.serve(eigenvalues, dimension)

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p (n, R), log q (n,). Raises ValueError for another number of prompts."""
        if rank.shape != self.depolarizations.shape:
            raise ValueError("the map was made for another number of prompts")
        shape = log_softmax(log_eigenvalues / self.temperature)
        log_q = np.log(self.depolarizations / np.maximum(dimension, rank))
        return np.logaddexp(np.log1p(-self.depolarizations)[:, None] + shape, log_q[:, None]), log_q

    def log_fitted(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return what `log_served` does."""
        return self.log_served(log_eigenvalues, rank, dimension)


@dataclass(frozen=True, slots=True)
class EvidenceMap:
    """T, intercept a and slope b. It becomes a map of eigenvalues at a missing mass: `at`, `over`.

    Raises ValueError unless T > 0, a in [-12, 12] and b in [0, 5].

    >>> round(EvidenceMap(1.0, 0.0, 1.0).at(0.25).depolarization, 12)
    0.25
    """

    temperature: float
    intercept: float
    slope: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError("temperature must be positive")
        if not (_within(self.intercept, INTERCEPT_BOUNDS) and _within(self.slope, SLOPE_BOUNDS)):
            raise ValueError("intercept must be in [-12, 12] and slope in [0, 5]")

    def depolarizations(self, missing_mass: ArrayLike) -> Floats:
        """Return g = sigmoid(a + b logit u), within [1e-6, 1 - 1e-6], for u (n,) in [0, 1].

        u is clipped as `missing_mass` does, so g is finite for 0 and 1, too. Rises with u.
        """
        logits = self.intercept + self.slope * logit_missing_mass(missing_mass)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))))

    def at(self, missing_mass: float) -> DepolarizedMap:
        """Return the map for one prompt of this missing mass."""
        return DepolarizedMap(self.temperature, self.depolarizations(missing_mass).item())

    def over(self, missing_mass: ArrayLike) -> PromptDepolarizedMap:
        """Return the map for n prompts of these missing masses (n,), in their order."""
        return PromptDepolarizedMap(self.temperature, np.atleast_1d(self.depolarizations(missing_mass)))


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceSet:
    """A dev set of n prompts with the missing mass (n,) of each. Raises ValueError for other lengths."""

    dev: DevSet
    missing_mass: Floats

    def __post_init__(self) -> None:
        if self.missing_mass.shape != (len(self.dev),):
            raise ValueError("every prompt of the dev set needs a missing mass")

    def __len__(self) -> int:
        return len(self.dev)

    def take(self, rows: NDArray[np.int_] | NDArray[np.bool_]) -> "EvidenceSet":
        """Return the prompts selected by an index or mask."""
        return EvidenceSet(self.dev.take(rows), self.missing_mass[rows])
