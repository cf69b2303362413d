"""What log-probabilities of answers leave over, and the map by it (**ours**, method, section 6).

Every answer comes with the log-probability of its whole text. The distinct texts drawn cover s = sum_a
exp(l_a) of the LLM's own distribution; the missing mass u = 1 - s is what it would rather have answered.
Three equal answers have one spectrum whether the LLM gives that answer 99 % or 40 % of its mass: u tells them
apart.

The `evidence` map is h_{T,a,b}(D; u) = (1 - g) D^(1/T) / tr D^(1/T) + g I/d with g = sigmoid(a + b logit u),
u of the prompt. b = 0 is `DepolarizedMap`; b >= 0: more missing mass never means more confidence. T, a and b
are fitted together by mean matrix log risk, on the prompts, resamples and folds of the other maps, so that
risks compare in pairs.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import DevSet, mean_entropy, risk, risks
from service.spectral.fit import (
    LOGIT_BOUND,
    TEMPERATURE_BOUNDS,
    Bootstrap,
    DepolarizedRisk,
    Fit,
    Minimum,
    Prior,
    drawn_to,
    fit_depolarized,
    minimize,
    per_row,
    refitted,
    terms,
)
from service.spectral.resampling import DEFAULT
from service.spectral.spectrum import DepolarizedMap, ServedAsFitted, log_softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

MISSING_MASS_CLIP = 1e-4  # u stays this far from 0 and 1, so that its logit is at most 9.21
# Sums of float32 log-probabilities exceed 0 by rounding. More than this above 0 is no log-probability at all:
# a probability, say, or one with the sign lost; clipping it would serve a confident score made of a mistake.
POSITIVE_ROUNDING = 1e-2
MIN_LOG_PROBABILITY = -700.0  # its exp, 1e-304, is near the smallest that float64 holds in full
# sigmoid(12) is within 6e-6 of 1: at b = 0 a wider box is worth less than 1e-5 nats.
INTERCEPT_BOUNDS = (-12.0, 12.0)
# Not below 0: more missing mass never means more confidence.
SLOPE_BOUNDS = (0.0, 5.0)
PARAMETERS = ("temperature", "intercept", "slope")
SLOPE_START = 0.4  # near what recorded answers give; the other start is b = 0, the depolarized optimum


def checked_log_probabilities(totals: ArrayLike) -> Floats:
    """Return log-probabilities of whole answers (m,) in nats, clipped to [-700, 0].

    -inf (an answer that the LLM gives no mass) becomes -700, and what is above 0 by rounding becomes 0.
    Raises ValueError for no values, NaN, +inf, or a value above 0 by more than rounding.

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

    totals: (m,) log-probability of each answer drawn, in nats, its last token included; index: (m,) which
    distinct text each is. One text may come with several sums (it can be cut into tokens in several ways, and
    white space around it is dropped): the largest counts. Higher = less certain. Never NaN.
    Raises ValueError as `checked_log_probabilities` does, or for an index that does not fit.

    >>> round(missing_mass(np.log([0.5, 0.5, 0.2]), [0, 0, 1]), 12)
    0.3
    """
    values, text = checked_log_probabilities(totals), np.asarray(index)
    if text.shape != values.shape or text.dtype.kind not in "iu" or text.min() < 0:
        raise ValueError("index must say which distinct text each log-probability belongs to")
    largest = np.full(int(text.max()) + 1, -np.inf)
    # Assigning to `largest[text]` would keep the last of several sums, not the largest.
    np.maximum.at(largest, text, values)
    return float(np.clip(1 - np.exp(largest).sum(), MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP))


def logit_missing_mass(missing: ArrayLike) -> Floats:
    """Return log(u / (1 - u)) of missing masses (n,), clipped first: at most 9.21 from 0.

    Higher = less certain. Raises ValueError for values that are not in [0, 1].
    """
    values = np.asarray(missing, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a missing mass must be in [0, 1]")
    inside = np.clip(values, MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def mean_log_probability(totals: ArrayLike) -> float:
    """Return the mean log-probability of the answers drawn (m,), in [-700, 0] nats. Higher = more certain.

    It is the predictive entropy, negated, but never infinite. Raises ValueError as
    `checked_log_probabilities` does.
    """
    return float(checked_log_probabilities(totals).mean())


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]  # false for NaN


@dataclass(frozen=True, slots=True, eq=False)
class PromptDepolarizedMap(ServedAsFitted):
    """`DepolarizedMap` with one temperature for all prompts and one depolarization (n,) for each, in order.

    It fits the n prompts that it was made for, and only them: `risks(evidence.over(u), dev)`.
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


def evidence_risk(rows: EvidenceSet, weights: Floats | None = None) -> DepolarizedRisk:
    """Return the risk of `EvidenceMap` at (log T, a, b), prompts of these weights (n,), equal for None."""
    logits = logit_missing_mass(rows.missing_mass)
    return DepolarizedRisk(terms(rows.dev, weights), np.stack([np.ones_like(logits), logits]))


# "slope" on its bound, at 0, says that the evidence gave the fit nothing. A temperature that was not fitted
# (one answer a prompt) is on none.
EvidenceFit = Fit[EvidenceMap]


def _box(rows: EvidenceSet) -> tuple[Floats, Floats]:
    """Return the bounds of (log T, a, b). Spectra that are all a single 1 have no shape: T is fixed at 1."""
    temperature = (1.0, 1.0) if rows.dev.rank.max() == 1 else TEMPERATURE_BOUNDS
    sides = np.array([np.log(temperature), INTERCEPT_BOUNDS, SLOPE_BOUNDS])
    return sides[:, 0], sides[:, 1]


def _search(
    rows: EvidenceSet, starts: list[Floats], prior: Prior | None, weights: Floats | None = None
) -> Minimum:
    """Return the best end of the starts: the risk is not convex in all three parameters."""
    objective = drawn_to(evidence_risk(rows, weights), prior)
    return min((minimize(objective, start, *_box(rows)) for start in starts), key=lambda end: end.value)


def _starts(rows: EvidenceSet, prior: Prior | None) -> list[Floats]:
    """Return where to begin: the depolarized optimum, turned about the mean evidence, the prior's centre.

    From the first the fit is no worse than it.
    """
    flat = fit_depolarized(rows.dev).map
    g = flat.depolarization
    x, z = np.log(flat.temperature), np.log(g) - np.log1p(-g)
    turned = z - SLOPE_START * logit_missing_mass(rows.missing_mass).mean()
    starts = [np.array([x, z, 0.0]), np.array([x, turned, SLOPE_START])]
    return starts if prior is None else [*starts, prior.center]


def _map(point: Floats) -> EvidenceMap:
    # exp(log T) may leave the bounds by a last bit.
    temperature = float(np.clip(np.exp(point[0]), *TEMPERATURE_BOUNDS))
    return EvidenceMap(temperature, float(point[1]), float(point[2]))


def fit_evidence(rows: EvidenceSet, prior: Prior | None = None) -> EvidenceFit:
    """Return T, a and b of least mean risk over the dev set (method, section 6).

    prior: of (log T, a, b). Without one, the risk is no higher than that of the depolarized fit, which is the
    case b = 0 (up to 1e-5 nats where that one has g below 6e-6 or above 1 - 6e-6, outside the bounds of a).
    """
    end = _search(rows, _starts(rows, prior), per_row(prior, len(rows)))
    fitted = _map(end.point)
    over = fitted.over(rows.missing_mass)
    bound = tuple(name for name, hit in zip(PARAMETERS, end.bound, strict=True) if hit)
    return EvidenceFit(fitted, risk(over, rows.dev), mean_entropy(over, rows.dev), bound, end.slope)


def bootstrap_evidence(
    rows: EvidenceSet,
    *,
    rng: np.random.Generator,
    resamples: int = DEFAULT.bootstrap,
    prior: Prior | None = None,
) -> Bootstrap:
    """Return refits on the resamples of `fit.bootstrap`, each started from the optimum of all prompts."""
    size, best = len(rows), fit_evidence(rows, prior).map
    start = np.array([np.log(best.temperature), best.intercept, best.slope])
    share = per_row(prior, size)

    def refit(drawn: Ints, weights: Floats) -> Floats:
        return _search(rows.take(drawn), [start], share, weights).point

    points = refitted(refit, np.arange(size), resamples, rng)
    points[:, 0] = np.exp(points[:, 0])
    return Bootstrap(dict(zip(PARAMETERS, points.T, strict=True)))


def held_out_evidence(
    rows: EvidenceSet, fold: Ints, prior: Prior | None = None
) -> tuple[Floats, tuple[EvidenceMap, ...]]:
    """Return out-of-fold risks (n,) in nats and the map fitted without each fold.

    fold: (n,) which fold holds each prompt out: `CrossValidation.fold` of the other maps, so that all are
    compared on the same folds. Raises ValueError where it does not fit the prompts.
    """
    if fold.shape != (len(rows),):
        raise ValueError("every prompt needs a fold")
    numbers = range(int(fold.max()) + 1)
    maps = tuple(fit_evidence(rows.take(fold != number), prior).map for number in numbers)
    out_of_fold = np.empty(len(rows))
    for number, map_ in enumerate(maps):
        held = rows.take(fold == number)
        out_of_fold[fold == number] = risks(map_.over(held.missing_mass), held.dev)
    return out_of_fold, maps
