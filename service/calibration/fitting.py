"""Fitting a calibration on labelled rows: maps, evidence, P(correct) and thresholds (method, section 8)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, JudgedTexts, Method, Parameters, Selector
from service.calibration.labels import FullRows, Judged, JudgedAlone
from service.calibration.material import Material
from service.calibration.rows import MIN_USABLE_ROWS
from service.embedding.outcomes import log_probabilities
from service.errors import InvalidDevData
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    ModelPrior,
    ModelPriorSource,
    fit_correctness,
    no_model_prior,
    stratified_folds,
)
from service.spectral.dev_set import DevSet, dev_set, risks
from service.spectral.evidence import (
    EvidenceBootstrap,
    EvidenceFit,
    EvidenceMap,
    EvidenceSet,
    bootstrap_evidence,
    fit_evidence,
    held_out_evidence,
    missing_mass,
)
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
from service.spectral.prior import Prior, PriorSource, no_prior
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.selective import selective_counts
from service.spectral.subsets import OnDone, fit_by_num_samples, fit_evidence_by_num_samples, fitted_sizes

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
METHODS: tuple[PlainMethod, ...] = ("temperature", "depolarized")
FittedMap = DepolarizedMap | TemperatureMap | EvidenceMap
PlainPriors = Mapping[PlainMethod, Prior | None]
NO_PRIORS: PlainPriors = dict.fromkeys(METHODS)
WHOLE = 1000  # of the progress of a fit
FOLDS = 5  # of the rows, where each is predicted by a map and a model of the others


class Stream(IntEnum):
    """Who draws random numbers in a study: each from a stream of its own, whatever else runs."""

    # Numbers are for ever: another one would change every figure drawn with it.
    BOOTSTRAP = 1
    FOLDS = 2
    DIFFERENCES = 3
    ALGORITHM1 = 4
    SUBSETS = 5
    PROJECTION = 7
    CORRECTNESS = 8
    AUROC = 9
    SELECTORS = 10
    REFERENCE = 11
    COPIES = 12
    ANSWERS = 20


def rng(seed: int, stream: Stream) -> np.random.Generator:
    """Return the random numbers of one part of a study."""
    return np.random.default_rng([seed, stream])


@dataclass(frozen=True, slots=True, eq=False)
class FittedEvidence:
    """The fit on the full rows (n), its bootstrap, and what cross-validation says of it.

    missing_mass: (n,). risks, maps: out of fold, (n,) in nats and one map a fold, of "evidence", and of
    "active" where the active calibration is one by evidence.
    """

    missing_mass: Floats
    fit: EvidenceFit
    bootstrap: EvidenceBootstrap
    risks: Mapping[str, Floats]
    maps: Mapping[str, tuple[EvidenceMap, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class DecidedAt:
    """What the verdicts allow with one number of answers.

    fit: of P(correct); right: (n,) verdicts of the full rows. selector: None where there is no model; `fit`
    says why.
    """

    fit: CorrectnessFit
    right: Bools
    selector: Selector | None


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What the verdicts allow, by number of answers."""

    at: Mapping[int, DecidedAt]

    def selectors(self) -> dict[int, Selector]:
        """Return the selectors that there are, by number of answers."""
        return {m: one.selector for m, one in self.at.items() if one.selector is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a fit found.

    dev: the full rows. fits, bootstraps: by method. held_out: out-of-fold risks of "raw", both methods,
    "evidence" where it was fitted, "active" where there is one; and the maps of those that need no
    log-probabilities. method: the one chosen; parameters: of every m' for it, those of "depolarized" for
    "evidence", whose own are in evidence_table. evidence: None where rows lack log-probabilities. decided:
    what the rows' verdicts allow. priors, model_priors: what all of it was drawn to.
    """

    dev: DevSet
    fits: Mapping[PlainMethod, TemperatureFit | DepolarizedFit]
    bootstraps: Mapping[PlainMethod, Bootstrap]
    held_out: CrossValidation
    method: Method
    parameters: Mapping[int, Parameters]
    decided: Decided
    evidence: FittedEvidence | None = None
    evidence_table: Mapping[int, EvidenceMap] = field(default_factory=dict)
    priors: PriorSource = no_prior
    model_priors: ModelPriorSource = no_model_prior

    def maps_of(self, name: str) -> list[CalibrationMap]:
        """Return the map that serves each of the n prompts, fitted without its fold."""
        fold = self.held_out.fold
        if self.evidence is None or name not in self.evidence.maps:
            return [self.held_out.maps[name][k] for k in fold]
        maps = self.evidence.maps[name]
        return [maps[k].at(u) for k, u in zip(fold, self.evidence.missing_mass, strict=True)]


def fit_all(
    material: Material,
    asked: str,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    eps: float = DEFAULT_EPS,
    resamples: Resamples = DEFAULT,
    priors: PriorSource = no_prior,
    model_priors: ModelPriorSource = no_model_prior,
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
    rivals: dict[str, CalibrationMap] = {}
    if active is not None:
        # Its headline for more answers than it knows.
        rivals["active"] = active.map_for(min(material.num_samples, active.num_samples))
    risks = held_out(dev, seed, eps, rivals, plain_priors(priors, material.num_samples))
    again = resamples.bootstrap
    random = rng(seed, Stream.BOOTSTRAP)
    evidence = find_evidence(material, dev, risks.fold, active, random, again, priors)
    risks = with_evidence(risks, evidence)
    method = _chosen(asked, risks)
    by_evidence = method == "evidence"
    parts = 3 if by_evidence else 2
    parameters = _parameters(material, method, seed, eps, priors, _part(progress, 0, parts))
    maps = _evidence_table(material, seed, priors, _part(progress, 1, parts)) if by_evidence else {}
    last = _part(progress, parts - 1, parts)
    decided = fit_selectors(
        material,
        method,
        rng=rng(seed, Stream.SELECTORS),
        eps=eps,
        priors=priors,
        model_priors=model_priors,
        progress=last,
    )
    plain = plain_priors(priors, material.num_samples)
    spread = bootstraps(dev, seed, eps, again, plain)
    return Fitted(
        dev,
        fits(dev, eps, plain),
        spread,
        risks,
        method,
        parameters,
        decided,
        evidence,
        maps,
        priors,
        model_priors,
    )


def plain_priors(priors: PriorSource, num_samples: int) -> dict[PlainMethod, Prior | None]:
    """Return what the maps that need no log-probabilities are drawn to, by method."""
    return {method: priors(method, num_samples) for method in METHODS}


def _chosen(asked: str, held_out: CrossValidation) -> Method:
    every: tuple[Method, ...] = (*METHODS, "evidence")
    candidates = {"both": METHODS, "auto": every}.get(asked, [one for one in every if one == asked])
    known = [method for method in candidates if method in held_out.risks]
    return min(known, key=lambda method: float(held_out.risks[method].mean()))


def _part(progress: OnDone | None, part: int, parts: int) -> OnDone | None:
    """Return the progress of one of several equal parts of a whole, in thousandths of the whole.

    How many maps are fitted is not known before one is chosen, so their number cannot be announced.
    """
    return progress and (lambda done, total: progress((WHOLE * part + WHOLE * done // total) // parts, WHOLE))


def _parameters(
    material: Material,
    method: Method,
    seed: int,
    eps: float,
    priors: PriorSource,
    progress: OnDone | None,
) -> dict[int, Parameters]:
    """Return the parameters of every number of answers from 2 to m, without log-probabilities."""
    plain: PlainMethod = "temperature" if method == "temperature" else "depolarized"
    maps = fit_by_num_samples(
        material.answers,
        plain,
        dimension=material.dimension,
        eps=eps,
        seed=seed,
        min_prompts=MIN_USABLE_ROWS,
        priors=partial(priors, plain),
        progress=progress,
    )
    return {
        m: Parameters(map_.temperature, 0.0 if isinstance(map_, TemperatureMap) else map_.depolarization)
        for m, map_ in maps.items()
        if m <= material.num_samples
    }


def fits(
    dev: DevSet, eps: float, priors: PlainPriors = NO_PRIORS
) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
    """Return both maps, fitted."""
    return {method: fit(dev, method, eps=eps, prior=priors[method]) for method in METHODS}


def bootstraps(
    dev: DevSet, seed: int, eps: float, resamples: int, priors: PlainPriors = NO_PRIORS
) -> Mapping[PlainMethod, Bootstrap]:
    """Return the uncertainty of both fits over the prompts."""
    return {
        m: bootstrap(dev, m, rng=rng(seed, Stream.BOOTSTRAP), resamples=resamples, eps=eps, prior=priors[m])
        for m in METHODS
    }


def held_out(
    dev: DevSet,
    seed: int,
    eps: float,
    rivals: Mapping[str, CalibrationMap] | None = None,
    priors: PlainPriors = NO_PRIORS,
) -> CrossValidation:
    """Return out-of-fold risks and maps of "raw", both methods, and rivals (maps fitted elsewhere)."""
    candidates: dict[str, PlainMethod | CalibrationMap] = {"raw": Identity(eps), **{m: m for m in METHODS}}
    return cross_validated_risks(
        dev, {**candidates, **(rivals or {})}, rng=rng(seed, Stream.FOLDS), eps=eps, priors=priors
    )


def with_evidence(plain: CrossValidation, evidence: FittedEvidence | None) -> CrossValidation:
    """Return the risks with those by evidence among them, "active" last."""
    if evidence is None:
        return plain
    merged = {**plain.risks, **evidence.risks}
    last = {"active": merged.pop("active")} if "active" in merged else {}
    return replace(plain, risks={**merged, **last})


def why_no_evidence(material: Material) -> str | None:
    """Return why no evidence map can be fitted, as a sentence; None where it can."""
    lacking, full = sum(totals is None for totals in _totals(material)), material.full.size
    if not lacking:
        return None
    return (
        f"{lacking} of {full} prompts have an answer without a log-probability of the whole of it: the "
        "evidence map needs one with every answer."
    )


def find_evidence(
    material: Material,
    dev: DevSet,
    fold: NDArray[np.int_],
    active: Calibration | None,
    rng: np.random.Generator,
    resamples: int,
    priors: PriorSource = no_prior,
) -> FittedEvidence | None:
    """Return the evidence map fitted on `dev`, the full rows; None where one lacks a log-probability.

    fold: (n,) which fold holds each prompt out, as for the other maps. An equally seeded rng draws the
    resamples of their bootstraps. Blocking: seconds.
    """
    missing = missing_masses(material)
    if missing is None:
        return None
    rows = EvidenceSet(dev, missing)
    prior = priors("evidence", material.num_samples)
    out_of_fold, maps = held_out_evidence(rows, fold, prior)
    risks_by, maps_by = {"evidence": out_of_fold}, {"evidence": maps}
    if active is not None and active.evidence:
        # Its headline for more answers than it knows.
        rival = active.evidence[min(material.num_samples, active.num_samples)]
        risks_by["active"] = risks(rival.over(rows.missing_mass), dev)
        maps_by["active"] = (rival,) * len(maps)
    spread = bootstrap_evidence(rows, rng=rng, resamples=resamples, prior=prior)
    return FittedEvidence(rows.missing_mass, fit_evidence(rows, prior), spread, risks_by, maps_by)


def missing_masses(material: Material) -> Floats | None:
    """Return u (n,) of the full rows; None where one of them lacks a log-probability."""
    masses = []
    for i, totals in zip(material.full, _totals(material), strict=True):
        if totals is None:
            return None
        masses.append(missing_mass(totals, material.answers[i].index))
    return np.array(masses)


def _totals(material: Material) -> list[Floats | None]:
    """Return the log-probability of each answer of the full rows in nats; None where one has none."""
    return [log_probabilities(material.rows[i].draws) for i in material.full]


def _evidence_table(
    material: Material, seed: int, priors: PriorSource, progress: OnDone | None
) -> dict[int, EvidenceMap]:
    """Return the map of every number of answers from 1 to m, fitted on the rows with log-probabilities."""
    pairs = zip(material.answers, (log_probabilities(one.draws) for one in material.rows), strict=True)
    known = [(answers, totals) for answers, totals in pairs if totals is not None]
    maps = fit_evidence_by_num_samples(
        (answers for answers, _ in known),
        (totals for _, totals in known),
        dimension=material.dimension,
        seed=seed,
        min_prompts=MIN_USABLE_ROWS,
        priors=partial(priors, "evidence"),
        progress=progress,
    )
    return {m: map_ for m, map_ in maps.items() if m <= material.num_samples}


def fit_selectors(
    material: Material,
    method: Method,
    *,
    rng: np.random.Generator,
    eps: float,
    priors: PriorSource = no_prior,
    model_priors: ModelPriorSource = no_model_prior,
    progress: OnDone | None = None,
) -> Decided:
    """Return what the verdicts on the full rows allow, for their first answers of every number.

    The rows are folded once, by their verdicts with all answers. method: the kind of map, which all rows have
    chosen (by risk, not by verdicts: decision 0023). From 1 answer for "evidence", else from 2; of more than
    64, those that maps are fitted for. And for 0, where the judged texts have log-probabilities of their own.
    Blocking: seconds.
    """
    rows = FullRows(material)
    full = rows.at(material.num_samples)
    fold = stratified_folds(full.right, FOLDS, rng)
    sizes = [*([1] if method == "evidence" else []), *fitted_sizes(material.num_samples)]
    decided = {}
    for done, size in enumerate(sizes, start=1):
        seen = full if size == material.num_samples else rows.at(size)
        fit_map = partial(_map, method=method, eps=eps, prior=priors(method, size))
        decided[size] = _decided(seen, fold, rows.judged, fit_map, partial(model_priors, method, size))
        if progress is not None:
            progress(done, len(sizes))
    alone = rows.alone()
    if alone is not None:
        decided = {0: _decided_alone(alone, fold, model_priors(method, 0, alone.columns)), **decided}
    return Decided(decided)


def _decided(
    rows: Judged,
    fold: NDArray[np.int_],
    judged: JudgedTexts,
    fit_map: Callable[[Judged], FittedMap],
    model_prior: Callable[[Columns], ModelPrior | None],
) -> DecidedAt:
    map_ = fit_map(rows)
    columns = rows.columns(map_)
    # What predicts a row has seen nothing of it, in map and model: the promise rests on that.
    by_fold = [rows.columns(fit_map(rows.take(fold != number))) for number in range(FOLDS)]
    fit = fit_correctness(columns, rows.right, fold, prior=model_prior(columns), by_fold=by_fold)
    selector = None
    if fit.model is not None and fit.held_out is not None:
        # What a score never lets through must not count as let through, or the promise is about other texts.
        counts = selective_counts(fit.held_out, rows.right, rows.supported)
        selector = Selector(map_, fit.model, counts, judged)
    return DecidedAt(fit, rows.right, selector)


def _decided_alone(rows: JudgedAlone, fold: NDArray[np.int_], prior: ModelPrior | None) -> DecidedAt:
    """Return what verdicts allow without any answer drawn; fold: (N,) of the full rows."""
    fit = fit_correctness(rows.columns, rows.right, fold[rows.known], prior=prior)
    selector = None
    if fit.model is not None and fit.held_out is not None:
        selector = Selector(None, fit.model, selective_counts(fit.held_out, rows.right), rows.judged)
    return DecidedAt(fit, rows.right, selector)


def _map(rows: Judged, method: Method, eps: float, prior: Prior | None) -> FittedMap:
    if method != "evidence":
        return fit(rows.rows, method, eps=eps, prior=prior).map
    assert rows.missing_mass is not None, "chosen only where all rows have log-probabilities"
    return fit_evidence(EvidenceSet(rows.rows, rows.missing_mass), prior).map
