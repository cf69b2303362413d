"""The fit: both maps, their uncertainty, their cross-validated risk, and the parameters of every m'."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration, Method, Parameters
from service.domain.jobs.model import MIN_USABLE_ROWS
from service.spectral.batch import dev_set
from service.spectral.fit import (
    Bootstrap,
    CrossValidation,
    DepolarizedFit,
    TemperatureFit,
    bootstrap,
    cross_validated_risks,
    fit,
)
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, DepolarizedMap, Identity, TemperatureMap
from service.spectral.risk import DevSet
from service.spectral.subsets import OnDone, fit_by_num_samples

METHODS: tuple[Method, ...] = ("temperature", "depolarized")
RESAMPLES = 200


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a fit found.

    dev: the full rows. fits, bootstraps: by method. held_out: out-of-fold risks and maps of "raw", both
    methods, and "active" where there is one. method: the one chosen; parameters: of every m' for it.
    """

    dev: DevSet
    fits: Mapping[Method, TemperatureFit | DepolarizedFit]
    bootstraps: Mapping[Method, Bootstrap]
    held_out: CrossValidation
    method: Method
    parameters: Mapping[int, Parameters]


def map_of(calibration: Calibration, num_samples: int) -> CalibrationMap:
    """Return what a calibration would serve so many answers with; its headline for more than it knows."""
    return calibration.map_for(min(num_samples, calibration.num_samples))


def fit_all(
    material: Material,
    asked: str,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    eps: float = DEFAULT_EPS,
    progress: OnDone | None = None,
) -> Fitted:
    """Fit both maps on the full rows, and the table of the chosen one on all. `asked`: a method or "both".

    Blocking: seconds to minutes of linear algebra. Equal seeds give equal results.
    """
    dev = dev_set([material.answers[i] for i in material.full], material.dimension)
    fits = {method: fit(dev, method, eps=eps) for method in METHODS}
    held_out = _held_out(dev, material, active, seed, eps)
    method = _chosen(asked, held_out)
    return Fitted(
        dev,
        fits,
        {m: _bootstrap(dev, m, seed, eps) for m in METHODS},
        held_out,
        method,
        _table(material, method, seed, eps, progress),
    )


def _bootstrap(dev: DevSet, method: Method, seed: int, eps: float) -> Bootstrap:
    return bootstrap(dev, method, rng=np.random.default_rng([seed, 1]), resamples=RESAMPLES, eps=eps)


def _held_out(
    dev: DevSet, material: Material, active: Calibration | None, seed: int, eps: float
) -> CrossValidation:
    candidates: dict[str, Method | CalibrationMap] = {"raw": Identity(eps), **{m: m for m in METHODS}}
    if active is not None:
        candidates["active"] = map_of(active, material.num_samples)
    return cross_validated_risks(dev, candidates, rng=np.random.default_rng([seed, 2]), eps=eps)


def _chosen(asked: str, held_out: CrossValidation) -> Method:
    if asked != "both":
        return "temperature" if asked == "temperature" else "depolarized"
    return min(METHODS, key=lambda method: float(held_out.risks[method].mean()))


def _table(
    material: Material, method: Method, seed: int, eps: float, progress: OnDone | None
) -> dict[int, Parameters]:
    found = fit_by_num_samples(
        material.answers,
        method,
        dimension=material.dimension,
        eps=eps,
        seed=seed,
        min_prompts=MIN_USABLE_ROWS,
        progress=progress,
    )
    return {m: _parameters(map_) for m, map_ in found.items() if m <= material.num_samples}


def _parameters(map_: TemperatureMap | DepolarizedMap) -> Parameters:
    if isinstance(map_, TemperatureMap):
        return Parameters(map_.temperature)
    return Parameters(map_.temperature, map_.depolarization)
