"""The missing mass of answers with log-probabilities, and the map that uses it (**ours**, method, section 6).

Every answer has the log-probability of its whole text. The distinct texts drawn cover s = sum_a exp(l_a) of
the LLM's distribution. The missing mass u = 1 - s is the probability of all other texts. Three equal answers
have the same spectrum whether the LLM gives this answer 99 % or 40 % of its mass, but a different u.

The `evidence` map is h_{T,a,b}(D; u) = (1 - g) D^(1/T) / tr D^(1/T) + g I/d with g = sigmoid(a + b logit u),
where u is the missing mass of the prompt. b = 0 is `DepolarizedMap`. b >= 0, so more missing mass never means
more confidence. T, a and b are fitted together by mean matrix log risk (`fit`).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.spectrum import LOGIT_BOUND, CalibrationMap, DepolarizedMap, log_softmax

Floats = NDArray[np.float64]

MISSING_MASS_CLIP = 1e-4  # u stays this far from 0 and 1, so that its logit is at most 9.21
# Sums of float32 log-probabilities exceed 0 by rounding. A larger value is not a log-probability, but for
# example a probability, or one without its sign. Clipping it would turn a mistake into a confident score.
POSITIVE_ROUNDING = 1e-2
MIN_LOG_PROBABILITY = -700.0  # its exp, 1e-304, is near the smallest normal float64
# sigmoid(12) is within 6e-6 of 1, so at b = 0 a wider box would gain less than 1e-5 nats.
INTERCEPT_BOUNDS = (-12.0, 12.0)
# Not below 0: more missing mass never means more confidence.
SLOPE_BOUNDS = (0.0, 5.0)


def checked_log_probabilities(totals: ArrayLike) -> Floats:
    """Return log-probabilities of whole answers (m,) in nats, clipped to [-700, 0].

    -inf (an answer with probability 0) becomes -700, and values above 0 by rounding become 0. Raises
    ValueError for no values, NaN, +inf, or a value above 0 by more than rounding.

    >>> checked_log_probabilities([-1.5, 1e-7, -np.inf]).tolist()
    [-1.5, 0.0, -700.0]
    """
    values = np.asarray(totals, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"log-probabilities must be a non-empty vector, got shape {values.shape}")
    if not (values <= POSITIVE_ROUNDING).all():  # false for NaN, too
        raise ValueError("a log-probability is not a number or lies above 0")
    return np.clip(values, MIN_LOG_PROBABILITY, 0.0)


def missing_mass(totals: ArrayLike, index: ArrayLike) -> float:
    """Return u = 1 - sum_a exp(l_a) over the distinct texts a, clipped to [1e-4, 1 - 1e-4].

    totals: (m,) log-probability of each answer drawn, in nats, including its last token. index: (m,), the
    distinct text of each answer. A text may have several totals (it can be tokenised in several ways, and
    surrounding white space is dropped); the largest one counts. Higher = less certain. Never NaN.
    Raises ValueError as `checked_log_probabilities` does, or for an index that does not fit.

    >>> round(missing_mass(np.log([0.5, 0.5, 0.2]), [0, 0, 1]), 12)
    0.3
    """
    values, text = checked_log_probabilities(totals), np.asarray(index)
    if text.shape != values.shape or text.dtype.kind not in "iu" or text.min() < 0:
        raise ValueError("index must say which distinct text each log-probability belongs to")
    largest = np.full(int(text.max()) + 1, -np.inf)
    # Assigning to `largest[text]` would keep the last of several totals, not the largest.
    np.maximum.at(largest, text, values)
    return float(np.clip(1 - np.exp(largest).sum(), MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP))


def logit_missing_mass(missing: ArrayLike) -> Floats:
    """Return log(u / (1 - u)) of missing masses (n,), in [-9.21, 9.21] because u is clipped first.

    Higher = less certain. Raises ValueError for values outside [0, 1].
    """
    values = np.asarray(missing, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a missing mass must be in [0, 1]")
    inside = np.clip(values, MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def mean_log_probability(totals: ArrayLike) -> float:
    """Return the mean log-probability of the answers drawn (m,), in [-700, 0] nats. Higher = more certain.

    This is the negated predictive entropy, but never infinite. Raises ValueError as
    `checked_log_probabilities` does.
    """
    return float(checked_log_probabilities(totals).mean())


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]  # false for NaN


@dataclass(frozen=True, slots=True, eq=False)
class PromptDepolarizedMap(CalibrationMap):
    """`DepolarizedMap` with one temperature for all prompts and one depolarization (n,) for each, in order.

    The map applies only to the n prompts that it was made for.
    """

    temperature: float
    depolarizations: Floats

    def log_served(
        self, log_eigenvalues: Floats, rank: NDArray[np.int_], dimension: int
    ) -> tuple[Floats, Floats]:
        """Return log p (n, R), log q (n,). Raises ValueError for another number of prompts."""
        if rank.shape != self.depolarizations.shape:
            raise ValueError("the map was made for another number of prompts")
        shape = log_softmax(log_eigenvalues / self.temperature)
        log_q = np.log(self.depolarizations / np.maximum(dimension, rank))
        return np.logaddexp(np.log1p(-self.depolarizations)[:, None] + shape, log_q[:, None]), log_q


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

        u is clipped as in `missing_mass`, so that its logit is finite. g rises with u.
        """
        logits = self.intercept + self.slope * logit_missing_mass(missing_mass)
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))))

    def at(self, missing_mass: float) -> DepolarizedMap:
        """Return the map for one prompt of this missing mass."""
        return DepolarizedMap(self.temperature, self.depolarizations(missing_mass).item())

    def over(self, missing_mass: ArrayLike) -> PromptDepolarizedMap:
        """Return the map for n prompts of these missing masses (n,), in their order."""
        return PromptDepolarizedMap(self.temperature, np.atleast_1d(self.depolarizations(missing_mass)))
