"""Fitting calibration maps by mean matrix log risk (method, section 3): fit and cross-validation.

The risks have analytic gradients and Hessians in unconstrained parameters. A damped Newton method in a box
finds their minimum. Notation: l_i = log lambda_i, a = 1/T, x = log T, z = logit g, c_i and c_out as in
`dev_set.risks`, sum c + c_out = 1. Averages are over prompts. The eigenvalues of all prompts are concatenated
in one vector (E,): ranks differ widely, so a padded matrix would be mostly padding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.spectral.dev_set import AnyMap, DevSpectra, mean_entropy, risk, risks
from service.spectral.evidence import INTERCEPT_BOUNDS, SLOPE_BOUNDS, EvidenceMap, logit_missing_mass
from service.spectral.spectrum import (
    DEFAULT_EPS,
    DEPOLARIZATION_BOUNDS,
    LOGIT_BOUND,
    DepolarizedMap,
    TemperatureMap,
    log_null_count,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]
Objective = Callable[[Floats], tuple[float, Floats, Floats]]  # value, gradient (p,), Hessian (p, p)
Method = Literal["temperature", "depolarized", "evidence"]
FittedMap = TypeVar("FittedMap", TemperatureMap, DepolarizedMap, EvidenceMap)

# An optimum on a bound is reported (`at_bound`): the data do not determine it.
TEMPERATURE_BOUNDS = (0.05, 50.0)
PARAMETERS: Mapping[Method, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "depolarized": ("temperature", "depolarization"),
    "evidence": ("temperature", "intercept", "slope"),
}
# Bounds of the search variables: log T, logit g, a, b.
_BOUNDS = {
    "temperature": tuple(np.log(TEMPERATURE_BOUNDS)),
    "depolarization": (-LOGIT_BOUND, LOGIT_BOUND),
    "intercept": INTERCEPT_BOUNDS,
    "slope": SLOPE_BOUNDS,
}
SLOPE_START = 0.4  # close to the fits on recorded answers; the other start is b = 0, the depolarized optimum
# (log T, logit g): the risk is not jointly convex, so the search starts at the best of these.
_GRID = [np.array(start) for start in product(np.log([0.3, 0.7, 1.5, 4.0]), (-3.0, -0.5, 1.5))]

MAX_STEP = 1.5  # in any parameter: a full Newton step overshoots where the objective is nearly flat
MAX_STEPS = 100
MAX_HALVINGS = 40  # 2^-40 of the longest step is 1e-12, below `tol`
ROUNDING = 1e-13  # a smaller relative increase of the value is rounding

# Priors for fits on little data: parameters fitted on other rows (**ours**, method, section 9).


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A quadratic penalty on p parameters: (weight / 2) (x - center)^T hessian (x - center) nats.

    center: (p,), the optimum on other rows. hessian: (p, p), positive semidefinite, of the mean risk at the
    center. weight: >= 0, the number of labelled rows that the prior counts for. Source: Laplace's
    approximation of the posterior on the other rows, tempered to `weight` rows.
    """

    center: Floats
    hessian: Floats
    weight: float

    def penalty(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return the value, gradient (p,) and Hessian (p, p) at a point (p,), in nats summed over rows.

        >>> Prior(np.zeros(1), np.eye(1), 30.0).penalty(np.ones(1))[0]
        15.0
        """
        curved = self.weight * self.hessian
        slope = curved @ (point - self.center)
        return float(slope @ (point - self.center)) / 2, slope, curved


PriorSource = Callable[[str, int], Prior | None]  # from method and number of answers


def no_prior(method: str, num_samples: int) -> None:
    """Return None: the `PriorSource` without priors."""


def per_row(prior: Prior | None, rows: int) -> Prior | None:
    """Return the prior scaled for a mean over `rows` rows; None for None."""
    return None if prior is None else replace(prior, weight=prior.weight / rows)


def drawn_to(objective: Objective, prior: Prior | None) -> Objective:
    """Return the objective plus the prior's penalty; the objective unchanged for None."""
    if prior is None:
        return objective

    def penalized(point: Floats) -> tuple[float, Floats, Floats]:
        value, gradient, hessian = objective(point)
        more, slope, curved = prior.penalty(point)
        return value + more, gradient + slope, hessian + curved

    return penalized


# The risks, and their minimum.


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Terms of a dev set that both objectives use.

    logs: (E,), l, descending within a prompt. alignment: (E,), c times the prompt's weight. first: (n,), the
    index of each prompt's first eigenvalue. prompt: (E,), the prompt of each eigenvalue. outside: (n,), c_out
    times the weight. weights: (n,).
    """

    logs: Floats
    alignment: Floats
    first: Ints
    prompt: Ints
    outside: Floats
    weights: Floats
    dev: DevSpectra

    def sums(self, values: Floats) -> Floats:
        """Return the sum over each prompt's eigenvalues, (n,), of values (E,)."""
        # reduceat mishandles empty segments, but every prompt has at least one eigenvalue.
        return np.asarray(np.add.reduceat(values, self.first))


def terms(dev: DevSpectra) -> Terms:
    """Return the terms of a dev set."""
    share = np.full(len(dev), 1.0 / len(dev))
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
        # Relative to the largest eigenvalue. The null eigenvalues are many and may outweigh it.
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
        # Rounding may put this difference of squares below 0.
        curvature = float(parts.weights @ np.maximum(square - mean**2, 0.0))
        # By the chain rule for a = exp(-x): R_x = -a R_a and R_xx = a^2 R_aa + a R_a.
        return value, np.array([-a * slope]), np.array([[a * a * curvature + a * slope]])


class DepolarizedRisk:
    """R(x, b) of maps that depolarize each prompt by its own g: logit g_n = z_n = b . d_n.

    design: d (p, n); None: one row of ones, the same g for all, as in `DepolarizedMap`. With s =
    softmax(a l), delta_i = l_i - E_s[l], V = Var_s[l] and rho_i = (1 - g) s_i / p_i, the part of p_i that is
    not noise: R_a = -sum c rho delta, R_z = g - c_out - sum c (1 - rho),
    R_aa = V sum c rho - sum c rho (1 - rho) delta^2, R_az = sum c rho (1 - rho) delta,
    R_zz = g (1 - g) - sum c rho (1 - rho). The derivatives of a clipped z_n are 0.
    """

    def __init__(self, parts: Terms, design: Floats | None = None) -> None:
        self._parts = parts
        self._design = np.ones((1, len(parts.dev))) if design is None else design
        self._design_of = self._design[:, parts.prompt]  # per eigenvalue, for fast products
        # Relative to the largest eigenvalue, so that the exponentials never overflow.
        self._below = parts.logs - parts.logs[parts.first][parts.prompt]
        self._dimension = np.maximum(parts.dev.dimension, parts.dev.rank).astype(np.float64)
        self._mass = parts.sums(parts.alignment) + parts.outside
        self._spread = float(self._mass @ np.log(self._dimension))

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return R (nats), its gradient (1 + p,) and Hessian (1 + p, 1 + p) at (log T, b)."""
        a, parts, logits = float(np.exp(-point[0])), self._parts, point[1:] @ self._design
        z = np.clip(logits, -LOGIT_BOUND, LOGIT_BOUND)
        e = np.exp(a * self._below)
        total = parts.sums(e)
        # log p = log(g/d) + log(1 + ratio), where ratio = rho / (1 - rho) is signal to noise.
        ratio = e * (self._dimension * np.exp(-z) / total)[parts.prompt]
        value = float(self._mass @ np.logaddexp(0, -z)) - float(parts.alignment @ np.log1p(ratio))
        delta = self._below - (parts.sums(e * self._below) / total)[parts.prompt]
        variance = parts.sums(e * delta * delta) / total
        design, of = self._design, self._design_of
        if not (inside := z == logits).all():
            design, of = design * inside, of * inside[parts.prompt]
        return self._spread + value, *self._derivatives(a, z, (design, of), delta, variance, ratio)

    def _derivatives(
        self,
        a: float,
        z: Floats,
        designs: tuple[Floats, Floats],
        delta: Floats,
        variance: Floats,
        ratio: Floats,
    ) -> tuple[Floats, Floats]:
        g, noise, (design, of) = 1 / (1 + np.exp(-z)), 1 / (1 + ratio), designs
        signal = self._parts.alignment * (ratio * noise)
        mixed = signal * noise
        tilted, signals = mixed * delta, self._parts.sums(signal)
        r_a = -float(signal @ delta)
        r_aa = float(variance @ signals) - float(tilted @ delta)
        hessian = np.empty((1 + len(design), 1 + len(design)))
        # By the chain rule for a = exp(-x), as above.
        hessian[0, 0] = a * a * r_aa + a * r_a
        hessian[0, 1:] = hessian[1:, 0] = -a * (of @ tilted)
        hessian[1:, 1:] = (design * (g * (1 - g) * self._mass)) @ design.T - (of * mixed) @ of.T
        return np.append(-a * r_a, design @ (signals - (1 - g) * self._mass)), hessian


def objective(dev: DevSpectra, method: Method, *, eps: float = DEFAULT_EPS) -> Objective:
    """Return the objective of a method: the mean risk of its maps in nats, before any prior.

    It is a function of (log T,), (log T, logit g) or (log T, a, b). Raises ValueError for "evidence"
    without missing masses.
    """
    parts = terms(dev)
    if method == "temperature":
        return TemperatureRisk(parts, eps)
    if method == "depolarized":
        return DepolarizedRisk(parts)
    logits = logit_missing_mass(_masses(dev))
    return DepolarizedRisk(parts, np.stack([np.ones_like(logits), logits]))


def point_of(map_: TemperatureMap | DepolarizedMap | EvidenceMap) -> Floats:
    """Return the parameters of a map as the argument of its `objective`."""
    x = np.log(map_.temperature)
    if isinstance(map_, EvidenceMap):
        return np.array([x, map_.intercept, map_.slope])
    if isinstance(map_, TemperatureMap):
        return np.array([x])
    return np.array([x, np.log(map_.depolarization) - np.log1p(-map_.depolarization)])


def _masses(dev: DevSpectra) -> Floats:
    if dev.missing_mass is None:
        raise ValueError("a fit by evidence needs the missing mass of every prompt")
    return dev.missing_mass


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """The end of a search: point (p,), value, gradient (p,), and a mask (p,) of coordinates on a bound."""

    point: Floats
    value: float
    gradient: Floats
    bound: NDArray[np.bool_]

    @property
    def slope(self) -> float:
        """The largest |gradient| over the coordinates not on a bound; about 0 after convergence."""
        return float(np.abs(np.where(self.bound, 0.0, self.gradient)).max())


def _pressed(point: Floats, gradient: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Return a mask of the coordinates on a bound that the descent would push out of the box."""
    return np.asarray(((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0)))


def _direction(gradient: Floats, hessian: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return the Newton step on the free coordinates; negative curvature is replaced by its magnitude."""
    step = np.zeros_like(gradient)
    values, columns = np.linalg.eigh(hessian[np.ix_(free, free)])
    curvature = np.maximum(np.abs(values), 1e-8)  # a flat direction has curvature 0
    step[free] = -columns @ ((columns.T @ gradient[free]) / curvature)
    return step / max(1.0, float(np.abs(step).max()) / MAX_STEP)


def minimize(
    objective: Objective, start: Floats, low: Floats, high: Floats, *, tol: float = 1e-10
) -> Minimum:
    """Return a local minimum of `objective` (value, gradient, Hessian) in the box [low, high], from `start`.

    tol: the search stops once no coordinate moves by this much.
    """
    point = np.clip(start, low, high)
    value, gradient, hessian = objective(point)
    for _ in range(MAX_STEPS):
        free = ~_pressed(point, gradient, low, high)
        if not free.any():
            break
        step = _direction(gradient, hessian, free)
        for _ in range(MAX_HALVINGS):
            trial = np.clip(point + step, low, high)
            here = objective(trial)
            if here[0] <= value + ROUNDING * abs(value):
                break
            step = step / 2
        else:
            break
        moved = float(np.abs(trial - point).max())
        point, (value, gradient, hessian) = trial, here
        if moved < tol:
            break
    return Minimum(point, value, gradient, _pressed(point, gradient, low, high))


@dataclass(frozen=True)
class Fit(Generic[FittedMap]):
    """A fitted map. `risk` and `mean_entropy` (full space) in nats.

    at_bound: names of the parameters with the optimum on a bound.
    stationarity_gap: 0 at an inner optimum; checks convergence, not calibration. For "temperature" without a
    prior it is |mean entropy - risk|. Otherwise it is the largest |derivative| of the objective by log T,
    logit g, a or b, over the parameters not on a bound.
    """

    map: FittedMap
    risk: float
    mean_entropy: float
    at_bound: tuple[str, ...]
    stationarity_gap: float


TemperatureFit = Fit[TemperatureMap]
DepolarizedFit = Fit[DepolarizedMap]
EvidenceFit = Fit[EvidenceMap]
AnyFit = TemperatureFit | DepolarizedFit | EvidenceFit


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidation:
    """Out-of-fold results by candidate name.

    risks: name -> (n,) in nats. maps: name -> one map per fold; for a fixed map, the same one for all folds.
    """

    risks: Mapping[str, Floats]
    maps: Mapping[str, tuple[AnyMap, ...]]


def _search(
    dev: DevSpectra,
    method: Method,
    starts: list[Floats],
    prior: Prior | None,
    *,
    eps: float = DEFAULT_EPS,
) -> Minimum:
    """Return the best minimum from several starts: the risk is convex only for a temperature alone."""
    sides = np.array([_BOUNDS[name] for name in PARAMETERS[method]])
    if method == "evidence" and dev.rank.max() == 1:
        sides[0] = 0.0  # spectra of rank 1 do not depend on T: it is fixed at 1
    penalized = drawn_to(objective(dev, method, eps=eps), prior)
    return min((minimize(penalized, start, *sides.T) for start in starts), key=lambda end: end.value)


def _starts(dev: DevSpectra) -> list[Floats]:
    """Return the two best points of a coarse grid, by the risk on about a hundred prompts."""
    of_some = objective(dev.take(np.arange(0, len(dev), max(len(dev) // 100, 1))), "depolarized")
    return sorted(_GRID, key=lambda start: of_some(start)[0])[:2]


def _evidence_starts(dev: DevSpectra) -> list[Floats]:
    """Return two starts: the depolarized optimum, and the same with a slope around the mean evidence.

    Because of the first start, the fit is at least as good as the depolarized one.
    """
    x, z = point_of(fit_depolarized(dev).map)
    turned = z - SLOPE_START * logit_missing_mass(_masses(dev)).mean()
    return [np.array([x, z, 0.0]), np.array([x, turned, SLOPE_START])]


def _temperature(point: Floats) -> float:
    return float(np.clip(np.exp(point[0]), *TEMPERATURE_BOUNDS))  # exp(log T) may exceed a bound by rounding


def _depolarization(point: Floats) -> float:
    return float(np.clip(1 / (1 + np.exp(-point[1])), *DEPOLARIZATION_BOUNDS))


def _fit(map_: FittedMap, method: Method, dev: DevSpectra, end: Minimum) -> Fit[FittedMap]:
    on_bound = tuple(name for name, hit in zip(PARAMETERS[method], end.bound, strict=True) if hit)
    return Fit(map_, risk(map_, dev), mean_entropy(map_, dev), on_bound, end.slope)


def fit_temperature(
    dev: DevSpectra, *, eps: float = DEFAULT_EPS, prior: Prior | None = None
) -> TemperatureFit:
    """Return the temperature of lowest mean risk over the dev set (method, section 3).

    The risk is convex in 1/T, so there is one optimum. prior: of log T. Raises ValueError for a bad eps.
    """
    TemperatureMap(1.0, eps)  # raises ValueError for a bad eps
    # Starts at T = 1; any start leads to the same optimum.
    end = _search(dev, "temperature", [np.zeros(1)], per_row(prior, len(dev)), eps=eps)
    fitted = _fit(TemperatureMap(_temperature(end.point), eps), "temperature", dev, end)
    gap = fitted.stationarity_gap if prior is not None else abs(fitted.mean_entropy - fitted.risk)
    return replace(fitted, stationarity_gap=gap)


def fit_depolarized(dev: DevSpectra, *, prior: Prior | None = None) -> DepolarizedFit:
    """Return the temperature and depolarization of lowest mean risk over the dev set (method, section 3).

    prior: of (log T, logit g).
    """
    starts = _starts(dev) + ([] if prior is None else [prior.center])
    end = _search(dev, "depolarized", starts, per_row(prior, len(dev)))
    return _fit(DepolarizedMap(_temperature(end.point), _depolarization(end.point)), "depolarized", dev, end)


def fit_evidence(dev: DevSpectra, *, prior: Prior | None = None) -> EvidenceFit:
    """Return T, a and b of lowest mean risk over the dev set (method, section 6).

    prior: of (log T, a, b). Without a prior, the risk is at most the risk of the depolarized fit, which is
    the case b = 0 (up to 1e-5 nats if its g is below 6e-6 or above 1 - 6e-6, outside the bounds of a). A
    slope on its bound 0 means that the evidence did not improve the fit. With one answer per prompt, the
    temperature is not fitted and never listed in at_bound. Raises ValueError for a dev set without missing
    masses.
    """
    starts = _evidence_starts(dev) + ([] if prior is None else [prior.center])
    end = _search(dev, "evidence", starts, per_row(prior, len(dev)))
    _, a, b = end.point
    return _fit(EvidenceMap(_temperature(end.point), float(a), float(b)), "evidence", dev, end)


def fit(dev: DevSpectra, method: Method, *, eps: float = DEFAULT_EPS, prior: Prior | None = None) -> AnyFit:
    """Return the fit of the named method. eps: used by "temperature" only.

    Raises ValueError for an unknown method.
    """
    if method == "temperature":
        return fit_temperature(dev, eps=eps, prior=prior)
    if method == "depolarized":
        return fit_depolarized(dev, prior=prior)
    if method == "evidence":
        return fit_evidence(dev, prior=prior)
    raise ValueError(f"unknown method: {method!r}")


def cross_validated_risks(
    dev: DevSpectra,
    candidates: Mapping[str, Method | AnyMap],
    fold: NDArray[np.int_],
    *,
    eps: float = DEFAULT_EPS,
    priors: Mapping[Method, Prior | None] | None = None,
) -> CrossValidation:
    """Return out-of-fold risks of each candidate, all on the same folds.

    A candidate is a method, fitted on the other folds with its prior, or a fixed map. fold: (n,), the
    fold number of each prompt, from 0.
    """
    maps = {
        name: _fold_maps(dev, fold, candidate, eps, priors or {}) for name, candidate in candidates.items()
    }
    out_of_fold = {name: np.empty(len(dev)) for name in candidates}
    for name, per_fold in maps.items():
        for number, map_ in enumerate(per_fold):
            out_of_fold[name][fold == number] = risks(map_, dev.take(fold == number))
    return CrossValidation(out_of_fold, maps)


def _fold_maps(
    dev: DevSpectra,
    fold: NDArray[np.int_],
    candidate: Method | AnyMap,
    eps: float,
    priors: Mapping[Method, Prior | None],
) -> tuple[AnyMap, ...]:
    numbers = range(int(fold.max()) + 1)
    if isinstance(candidate, str):
        prior = priors.get(candidate)
        return tuple(fit(dev.take(fold != number), candidate, eps=eps, prior=prior).map for number in numbers)
    return tuple(candidate for _ in numbers)
