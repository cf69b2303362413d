"""The fit: the maps, their uncertainty, their cross-validated risk, and the parameters of every m'."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from service.domain.calibrating.deciders import Decided, fit_deciders
from service.domain.calibrating.evidence import (
    EvidenceFound,
    evidence_table,
    find_evidence,
    why_no_evidence,
)
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration, Method, Parameters
from service.domain.errors import InvalidDevData
from service.domain.jobs.model import MIN_USABLE_ROWS
from service.spectral.batch import dev_set
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import (
    Bootstrap,
    CrossValidation,
    DepolarizedFit,
    TemperatureFit,
    bootstrap,
    cross_validated_risks,
    fit,
)
from service.spectral.fit import Method as PlainMethod
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, DepolarizedMap, Identity, TemperatureMap
from service.spectral.risk import DevSet
from service.spectral.subsets import OnDone, fit_by_num_samples

METHODS: tuple[PlainMethod, ...] = ("temperature", "depolarized")
RESAMPLES = 200
WHOLE = 1000  # of the progress of a fit


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a fit found.

    dev: the full rows. fits, bootstraps: by method. held_out: out-of-fold risks of "raw", both methods,
    "evidence" where it was fitted, "active" where there is one; and the maps of those that need no
    log-probabilities. method: the one chosen; parameters: of every m' for it, those of "depolarized" for
    "evidence", whose own are in evidence_table. evidence: None where rows lack log-probabilities. decided:
    what the rows' verdicts allow.
    """

    dev: DevSet
    fits: Mapping[PlainMethod, TemperatureFit | DepolarizedFit]
    bootstraps: Mapping[PlainMethod, Bootstrap]
    held_out: CrossValidation
    method: Method
    parameters: Mapping[int, Parameters]
    decided: Decided
    evidence: EvidenceFound | None = None
    evidence_table: Mapping[int, EvidenceMap] = field(default_factory=dict)

    def maps_of(self, name: str) -> list[CalibrationMap]:
        """Return the map that serves each of the n prompts, fitted without its fold."""
        fold = self.held_out.fold
        if self.evidence is None or name not in self.evidence.maps:
            return [self.held_out.maps[name][k] for k in fold]
        maps = self.evidence.maps[name]
        return [maps[k].at(u) for k, u in zip(fold, self.evidence.missing_mass, strict=True)]


def map_of(calibration: Calibration, num_samples: int) -> CalibrationMap:
    """Return what serves so many answers without log-probabilities; the headline for more than it knows."""
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
    """Fit the maps on the full rows, and the tables of the chosen one on all.

    asked: a method; "both": the better of the two that need no log-probabilities; "auto": the best of all.
    Blocking: seconds to minutes of linear algebra. Equal seeds give equal results. Raises InvalidDevData
    where "evidence" is asked for and rows lack log-probabilities.
    """
    if asked == "evidence" and (why := why_no_evidence(material)):
        raise InvalidDevData(why)
    dev = dev_set([material.answers[i] for i in material.full], material.dimension)
    rivals = {} if active is None else {"active": map_of(active, material.num_samples)}
    found, risks = fits(dev, eps), held_out(dev, seed, eps, rivals)
    evidence = find_evidence(material, dev, risks.fold, active, rng(seed, Stream.BOOTSTRAP), RESAMPLES)
    risks = with_evidence(risks, evidence)
    method = _chosen(asked, risks)
    tables = _tables(material, method, seed, eps, _part(progress, 0, 2))
    last = _part(progress, 1, 2)
    decided = fit_deciders(material, method, rng=rng(seed, Stream.DECIDERS), eps=eps, progress=last)
    spread = bootstraps(dev, seed, eps)
    return Fitted(dev, found, spread, risks, method, tables[0], decided, evidence, tables[1])


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
    DECIDERS = 10
    REFERENCE = 11
    COPIES = 12
    ANSWERS = 20


def rng(seed: int, stream: Stream) -> np.random.Generator:
    """Return the random numbers of one part of a study."""
    return np.random.default_rng([seed, stream])


def fits(dev: DevSet, eps: float) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
    """Return both maps, fitted."""
    return {method: fit(dev, method, eps=eps) for method in METHODS}


def bootstraps(dev: DevSet, seed: int, eps: float) -> Mapping[PlainMethod, Bootstrap]:
    """Return the uncertainty of both fits over the prompts."""
    return {
        m: bootstrap(dev, m, rng=rng(seed, Stream.BOOTSTRAP), resamples=RESAMPLES, eps=eps) for m in METHODS
    }


def held_out(
    dev: DevSet, seed: int, eps: float, rivals: Mapping[str, CalibrationMap] | None = None
) -> CrossValidation:
    """Return out-of-fold risks and maps of "raw", both methods, and rivals (maps fitted elsewhere)."""
    candidates: dict[str, PlainMethod | CalibrationMap] = {"raw": Identity(eps), **{m: m for m in METHODS}}
    return cross_validated_risks(dev, {**candidates, **(rivals or {})}, rng=rng(seed, Stream.FOLDS), eps=eps)


def with_evidence(found: CrossValidation, evidence: EvidenceFound | None) -> CrossValidation:
    """Return the risks with those by evidence among them, "active" last."""
    if evidence is None:
        return found
    merged = {**found.risks, **evidence.risks}
    last = {"active": merged.pop("active")} if "active" in merged else {}
    return replace(found, risks={**merged, **last})


def _chosen(asked: str, found: CrossValidation) -> Method:
    every: tuple[Method, ...] = (*METHODS, "evidence")
    candidates = {"both": METHODS, "auto": every}.get(asked)
    if candidates is None:
        return next(method for method in every if method == asked)
    known = [method for method in candidates if method in found.risks]
    return min(known, key=lambda method: float(found.risks[method].mean()))


def _tables(
    material: Material, method: Method, seed: int, eps: float, progress: OnDone | None
) -> tuple[dict[int, Parameters], dict[int, EvidenceMap]]:
    """Return the parameters of every m' without log-probabilities, and with them for "evidence"."""
    plain: PlainMethod = "temperature" if method == "temperature" else "depolarized"
    if method != "evidence":
        return _table(material, plain, seed, eps, progress), {}
    first = _table(material, plain, seed, eps, _part(progress, 0, 2))
    return first, evidence_table(material, seed, _part(progress, 1, 2))


def _part(progress: OnDone | None, part: int, parts: int) -> OnDone | None:
    """Return the progress of one of several equal parts of a whole, in thousandths of the whole.

    How many maps are fitted is not known before one is chosen, so their number cannot be announced.
    """
    return progress and (lambda done, total: progress((WHOLE * part + WHOLE * done // total) // parts, WHOLE))


def _table(
    material: Material, method: PlainMethod, seed: int, eps: float, progress: OnDone | None
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
