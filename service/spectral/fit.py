"""Fitting calibration maps by their matrix log risk (method, section 3): fit, bootstrap, cross-validation."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.spectral.maps import DEFAULT_EPS, CalibrationMap, DepolarizedMap, TemperatureMap
from service.spectral.newton import Minimum, minimize
from service.spectral.objectives import DepolarizedRisk, TemperatureRisk, Terms, terms
from service.spectral.risk import DevSet, mean_entropy, risk, risks

Floats = NDArray[np.float64]
Method = Literal["temperature", "depolarized"]

# An optimum on a bound is told (`at_bound`): the data do not pin it down.
TEMPERATURE_BOUNDS = (0.05, 50.0)
# g = 0 would give a reference outside the span an infinite risk, so the fit stops just short of it.
DEPOLARIZATION_BOUNDS = (1e-6, 1 - 1e-6)
# (log T, logit g): the risk is not convex in both, so the search begins at the best of these.
_GRID = [np.array(start) for start in product(np.log([0.3, 0.7, 1.5, 4.0]), (-3.0, -0.5, 1.5))]


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """A fitted temperature. `risk` and `mean_entropy` (full space) in nats.

    at_bound: ("temperature",) when the optimum sits on a bound, else empty.
    stationarity_gap: |mean entropy - risk|, 0 at an inner optimum: checks convergence, not calibration.
    """

    map: TemperatureMap
    risk: float
    mean_entropy: float
    at_bound: tuple[str, ...]
    stationarity_gap: float


@dataclass(frozen=True, slots=True)
class DepolarizedFit:
    """A fitted temperature and depolarization. `risk` and `mean_entropy` in nats.

    at_bound: which of "temperature", "depolarization" sit on a bound.
    stationarity_gap: largest |dR| by log T or logit g, over the parameters that are not on a bound.
    """

    map: DepolarizedMap
    risk: float
    mean_entropy: float
    at_bound: tuple[str, ...]
    stationarity_gap: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, low <= high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Bootstrap:
    """Refits on resampled prompts: temperatures (B,), depolarizations (B,) or None, and their intervals."""

    temperatures: Floats
    depolarizations: Floats | None
    temperature: Interval
    depolarization: Interval | None


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidation:
    """Out-of-fold results by candidate name.

    fold: (n,) which fold held each prompt out; risks: name -> (n,) in nats; maps: name -> one map per fold
    (the same one every time for a candidate that is a fixed map).
    """

    fold: NDArray[np.int_]
    risks: Mapping[str, Floats]
    maps: Mapping[str, tuple[CalibrationMap, ...]]


def _logit(g: float) -> float:
    return float(np.log(g) - np.log1p(-g))


def _log_bounds(bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    if not 0 < bounds[0] < bounds[1] < np.inf:
        raise ValueError("temperature bounds must be positive and ordered")
    return np.log(bounds[:1]), np.log(bounds[1:])


def _search_temperature(parts: Terms, eps: float, start: Floats, bounds: tuple[float, float]) -> Minimum:
    return minimize(TemperatureRisk(parts, eps), start, *_log_bounds(bounds))


def _box(bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    sides = zip(_log_bounds(bounds), DEPOLARIZATION_BOUNDS, strict=True)
    low, high = (np.append(side, _logit(g)) for side, g in sides)
    return low, high


def _search_depolarized(parts: Terms, starts: list[Floats], bounds: tuple[float, float]) -> Minimum:
    """Return the best end of the starts: the risk is not convex in both parameters."""
    objective = DepolarizedRisk(parts)
    return min((minimize(objective, s, *_box(bounds)) for s in starts), key=lambda end: end.value)


def _starts(dev: DevSet, bounds: tuple[float, float]) -> list[Floats]:
    """Return the two best points of a coarse grid, by the risk of about a hundred of the prompts."""
    objective = DepolarizedRisk(terms(dev.take(np.arange(0, len(dev), max(len(dev) // 100, 1)))))
    return sorted(_GRID, key=lambda start: objective(np.clip(start, *_box(bounds)))[0])[:2]


def _temperature(point: Floats, bounds: tuple[float, float]) -> float:
    return float(np.clip(np.exp(point[0]), *bounds))  # exp(log T) may leave them by a last bit


def _depolarization(point: Floats) -> float:
    return float(np.clip(1 / (1 + np.exp(-point[1])), *DEPOLARIZATION_BOUNDS))


def _on_bound(end: Minimum) -> tuple[str, ...]:
    # A temperature alone has one coordinate, where zip stops.
    return tuple(
        name for name, bound in zip(("temperature", "depolarization"), end.bound, strict=False) if bound
    )


def fit_temperature(
    dev: DevSet, *, eps: float = DEFAULT_EPS, bounds: tuple[float, float] = TEMPERATURE_BOUNDS
) -> TemperatureFit:
    """Return the temperature of least mean risk over the dev set (method, section 3).

    The risk is convex in 1/T, so there is one optimum. Raises ValueError for bad bounds or eps.
    """
    map_ = TemperatureMap(1.0, eps)
    end = _search_temperature(terms(dev), eps, np.zeros(1), bounds)  # from T = 1; any start leads there
    map_ = TemperatureMap(_temperature(end.point, bounds), eps)
    value, entropy = risk(map_, dev), mean_entropy(map_, dev)
    return TemperatureFit(map_, value, entropy, _on_bound(end), abs(entropy - value))


def fit_depolarized(dev: DevSet, *, bounds: tuple[float, float] = TEMPERATURE_BOUNDS) -> DepolarizedFit:
    """Return the temperature and depolarization of least mean risk over the dev set (method, section 3)."""
    end = _search_depolarized(terms(dev), _starts(dev, bounds), bounds)
    map_ = DepolarizedMap(_temperature(end.point, bounds), _depolarization(end.point))
    gap = float(np.abs(np.where(end.bound, 0.0, end.gradient)).max())
    return DepolarizedFit(map_, risk(map_, dev), mean_entropy(map_, dev), _on_bound(end), gap)


def fit(dev: DevSet, method: Method, *, eps: float = DEFAULT_EPS) -> TemperatureFit | DepolarizedFit:
    """Return the fit of the named method; `eps` matters to "temperature" only.

    Raises ValueError for another name.
    """
    if method == "temperature":
        return fit_temperature(dev, eps=eps)
    if method == "depolarized":
        return fit_depolarized(dev)
    raise ValueError(f"unknown method: {method!r}")


def percentile_interval(values: Floats, level: float) -> Interval:
    """Return the interval that holds the middle `level` (0..1) of bootstrapped values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def bootstrap(
    dev: DevSet,
    method: Method,
    *,
    rng: np.random.Generator,
    resamples: int = 200,
    eps: float = DEFAULT_EPS,
    level: float = 0.95,
) -> Bootstrap:
    """Return refits on `resamples` resamples of the prompts, each started from the optimum of all of them.

    The intervals are percentiles at `level`: uncertainty from the choice of prompts, not from
    sampling answers.
    """
    best = fit(dev, method, eps=eps).map
    start = np.array([np.log(best.temperature)])
    if isinstance(best, DepolarizedMap):
        start = np.append(start, _logit(best.depolarization))
    # A resample as counts, which are weights: no rows are copied.
    counts = rng.multinomial(len(dev), np.full(len(dev), 1 / len(dev)), size=resamples)
    points = np.stack([_refit(dev, row / len(dev), method, eps, start) for row in counts])
    temperatures = np.exp(points[:, 0])
    if method == "temperature":
        return Bootstrap(temperatures, None, percentile_interval(temperatures, level), None)
    g = 1 / (1 + np.exp(-points[:, 1]))
    return Bootstrap(temperatures, g, percentile_interval(temperatures, level), percentile_interval(g, level))


def _refit(dev: DevSet, weights: Floats, method: Method, eps: float, start: Floats) -> Floats:
    """Return the optimum for one resample; prompts that were not drawn cost nothing."""
    drawn = np.flatnonzero(weights)
    parts = terms(dev.take(drawn), weights[drawn])
    if method == "temperature":
        return _search_temperature(parts, eps, start, TEMPERATURE_BOUNDS).point
    return _search_depolarized(parts, [start], TEMPERATURE_BOUNDS).point


def assign_folds(size: int, folds: int, rng: np.random.Generator) -> NDArray[np.int_]:
    """Return a random fold for each of `size` prompts, folds as equal as can be (fewer when prompts are few).

    Raises ValueError for fewer than two prompts or folds.
    """
    if size < 2 or folds < 2:
        raise ValueError("cross-validation needs at least two prompts and two folds")
    return rng.permutation(np.arange(size) % min(folds, size))


def cross_validated_risks(
    dev: DevSet,
    candidates: Mapping[str, Method | CalibrationMap],
    *,
    rng: np.random.Generator,
    folds: int = 5,
    eps: float = DEFAULT_EPS,
) -> CrossValidation:
    """Return out-of-fold risks of each candidate, all on the same folds.

    A candidate is a method, fitted on the other folds, or a fixed map, taken as it is.
    """
    # One assignment for all candidates: their risks are compared prompt by prompt.
    fold = assign_folds(len(dev), folds, rng)
    maps = {name: _fold_maps(dev, fold, candidate, eps) for name, candidate in candidates.items()}
    found = {name: np.empty(len(dev)) for name in candidates}
    for name, per_fold in maps.items():
        for number, map_ in enumerate(per_fold):
            found[name][fold == number] = risks(map_, dev.take(fold == number))
    return CrossValidation(fold, found, maps)


def _fold_maps(
    dev: DevSet, fold: NDArray[np.int_], candidate: Method | CalibrationMap, eps: float
) -> tuple[CalibrationMap, ...]:
    numbers = range(int(fold.max()) + 1)
    if isinstance(candidate, str):
        return tuple(fit(dev.take(fold != number), candidate, eps=eps).map for number in numbers)
    return tuple(candidate for _ in numbers)
