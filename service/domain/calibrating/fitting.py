"""The fit: both maps, their uncertainty, their cross-validated risk, and the parameters of every m'."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

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
    rivals = {} if active is None else {"active": map_of(active, material.num_samples)}
    found, risks = fits(dev, eps), held_out(dev, seed, eps, rivals)
    method = _chosen(asked, risks)
    table = _table(material, method, seed, eps, progress)
    return Fitted(dev, found, bootstraps(dev, seed, eps), risks, method, table)


class Stream(IntEnum):
    """Who draws random numbers in a study: each from a stream of its own, whatever else runs."""

    # Numbers are for ever: another one would change every figure drawn with it.
    BOOTSTRAP = 1
    FOLDS = 2
    DIFFERENCES = 3
    ALGORITHM1 = 4
    SUBSETS = 5
    CONSTANT = 6
    PROJECTION = 7
    CORRECTNESS = 8
    AUROC = 9


def rng(seed: int, stream: Stream) -> np.random.Generator:
    """Return the random numbers of one part of a study."""
    return np.random.default_rng([seed, stream])


def fits(dev: DevSet, eps: float) -> Mapping[Method, TemperatureFit | DepolarizedFit]:
    """Return both maps, fitted."""
    return {method: fit(dev, method, eps=eps) for method in METHODS}


def bootstraps(dev: DevSet, seed: int, eps: float) -> Mapping[Method, Bootstrap]:
    """Return the uncertainty of both fits over the prompts."""
    return {
        m: bootstrap(dev, m, rng=rng(seed, Stream.BOOTSTRAP), resamples=RESAMPLES, eps=eps) for m in METHODS
    }


def held_out(
    dev: DevSet, seed: int, eps: float, rivals: Mapping[str, CalibrationMap] | None = None
) -> CrossValidation:
    """Return out-of-fold risks and maps of "raw", both methods, and rivals (maps fitted elsewhere)."""
    candidates: dict[str, Method | CalibrationMap] = {"raw": Identity(eps), **{m: m for m in METHODS}}
    return cross_validated_risks(dev, {**candidates, **(rivals or {})}, rng=rng(seed, Stream.FOLDS), eps=eps)


def _chosen(asked: str, found: CrossValidation) -> Method:
    if asked != "both":
        return "temperature" if asked == "temperature" else "depolarized"
    return min(METHODS, key=lambda method: float(found.risks[method].mean()))


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
