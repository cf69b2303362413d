"""Fitting the `evidence` map: T, a and b together by mean matrix log risk, with bootstrap and held-out risk.

The same prompts, resamples and folds as for the other maps, so that risks compare in pairs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral.evidence import INTERCEPT_BOUNDS, SLOPE_BOUNDS, EvidenceMap, EvidenceSet
from service.spectral.evidence_risk import EvidenceRisk
from service.spectral.fit import TEMPERATURE_BOUNDS, Interval, fit_depolarized, percentile_interval
from service.spectral.missing_mass import logit_missing_mass
from service.spectral.newton import Minimum, minimize
from service.spectral.objectives import terms
from service.spectral.risk import mean_entropy, risk, risks

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

PARAMETERS = ("temperature", "intercept", "slope")
SLOPE_START = 0.4  # near what recorded answers give; the other start is b = 0, the depolarised optimum


@dataclass(frozen=True, slots=True)
class EvidenceFit:
    """Fitted T, a and b. `risk` and `mean_entropy` in nats.

    at_bound: which of "temperature", "intercept", "slope" sit on a bound; "slope" at 0 says that the evidence
    told the fit nothing. A temperature that was not fitted (one answer a prompt) is on none.
    stationarity_gap: largest |dR| by log T, a or b, over the parameters that are not on a bound.
    """

    map: EvidenceMap
    risk: float
    mean_entropy: float
    at_bound: tuple[str, ...]
    stationarity_gap: float


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceBootstrap:
    """Refits on resampled prompts: parameters (B, 3) of T, a and b, and their percentile intervals."""

    parameters: Floats
    temperature: Interval
    intercept: Interval
    slope: Interval


def _box(rows: EvidenceSet) -> tuple[Floats, Floats]:
    """Return the bounds of (log T, a, b). Spectra that are all a single 1 have no shape: T is fixed at 1."""
    temperature = (1.0, 1.0) if rows.dev.rank.max() == 1 else TEMPERATURE_BOUNDS
    sides = np.array([np.log(temperature), INTERCEPT_BOUNDS, SLOPE_BOUNDS])
    return sides[:, 0], sides[:, 1]


def _search(rows: EvidenceSet, starts: list[Floats], weights: Floats | None = None) -> Minimum:
    """Return the best end of the starts: the risk is not convex in all three parameters."""
    objective = EvidenceRisk(terms(rows.dev, weights), rows.missing_mass)
    return min((minimize(objective, start, *_box(rows)) for start in starts), key=lambda end: end.value)


def _starts(rows: EvidenceSet) -> list[Floats]:
    """Return the depolarised optimum, so that the fit is no worse, and it turned about the mean evidence."""
    flat = fit_depolarized(rows.dev).map
    g = flat.depolarization
    x, z = np.log(flat.temperature), np.log(g) - np.log1p(-g)
    turned = z - SLOPE_START * logit_missing_mass(rows.missing_mass).mean()
    return [np.array([x, z, 0.0]), np.array([x, turned, SLOPE_START])]


def _map(point: Floats) -> EvidenceMap:
    # exp(log T) may leave the bounds by a last bit.
    temperature = float(np.clip(np.exp(point[0]), *TEMPERATURE_BOUNDS))
    return EvidenceMap(temperature, float(point[1]), float(point[2]))


def fit_evidence(rows: EvidenceSet) -> EvidenceFit:
    """Return T, a and b of least mean risk over the dev set (method, section 6).

    Its risk is no higher than that of the depolarised fit, which is the case b = 0 (up to 1e-5 nats where
    that one has g below 6e-6 or above 1 - 6e-6, outside the bounds of a).
    """
    end = _search(rows, _starts(rows))
    found = _map(end.point)
    over = found.over(rows.missing_mass)
    gap = float(np.abs(np.where(end.bound, 0.0, end.gradient)).max())
    bound = tuple(name for name, hit in zip(PARAMETERS, end.bound, strict=True) if hit)
    return EvidenceFit(found, risk(over, rows.dev), mean_entropy(over, rows.dev), bound, gap)


def bootstrap_evidence(
    rows: EvidenceSet, *, rng: np.random.Generator, resamples: int = 200, level: float = 0.95
) -> EvidenceBootstrap:
    """Return refits on `resamples` resamples of the prompts, each started from the optimum of all of them.

    The intervals are percentiles at `level`. An equally seeded rng draws the resamples of `fit.bootstrap`.
    """
    size, best = len(rows), fit_evidence(rows).map
    start = np.array([np.log(best.temperature), best.intercept, best.slope])
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    points = np.stack([_refit(rows, row / size, start) for row in counts])
    points[:, 0] = np.exp(points[:, 0])
    return EvidenceBootstrap(points, *(percentile_interval(column, level) for column in points.T))


def _refit(rows: EvidenceSet, weights: Floats, start: Floats) -> Floats:
    """Return the optimum for one resample; prompts that were not drawn cost nothing."""
    drawn = np.flatnonzero(weights)
    return _search(rows.take(drawn), [start], weights[drawn]).point


def held_out_evidence(rows: EvidenceSet, fold: Ints) -> tuple[Floats, tuple[EvidenceMap, ...]]:
    """Return out-of-fold risks (n,) in nats and the map fitted without each fold.

    fold: (n,) which fold holds each prompt out: `CrossValidation.fold` of the other maps, so that all are
    compared on the same folds. Raises ValueError where it does not fit the prompts.
    """
    if fold.shape != (len(rows),):
        raise ValueError("every prompt needs a fold")
    maps = tuple(fit_evidence(rows.take(fold != number)).map for number in range(int(fold.max()) + 1))
    found = np.empty(len(rows))
    for number, map_ in enumerate(maps):
        held = rows.take(fold == number)
        found[fold == number] = risks(map_.over(held.missing_mass), held.dev)
    return found, maps
