"""Fitting a calibration on labelled rows: maps, evidence, P(correct) and thresholds (method, section 8)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, JudgedTexts, Method, Selector, answer_columns
from service.calibration.labels import FullRows, Judged, JudgedClaims
from service.calibration.material import Material
from service.calibration.rows import MIN_USABLE_ROWS
from service.embedding.port import log_probabilities
from service.errors import InvalidDevData
from service.spectral.correctness_model import (
    CorrectnessFit,
    CorrectnessModel,
    fit_correctness,
    stratified_folds,
)
from service.spectral.dev_set import Answers, AnyMap, DevSet
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import (
    AnyFit,
    Bootstrap,
    PriorSource,
    bootstrap,
    cross_validated_risks,
    fit,
    no_prior,
)
from service.spectral.resampling import DEFAULT, Resamples, one_of_each
from service.spectral.selective import selective_counts
from service.spectral.spectrum import CalibrationMap, DepolarizedMap, Identity
from service.spectral.subsets import FittedMap, OnDone, fit_by_num_samples, fitted_sizes

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
METHODS: tuple[Method, ...] = ("temperature", "depolarized")  # that need no log-probabilities
WHOLE = 1000  # of the progress of a fit
FOLDS = 5  # of the rows, where each is predicted by a map and a model of the others


class Stream(IntEnum):
    """Who draws random numbers in a study: each from a stream of its own, whatever else runs."""

    # Numbers are for ever: another one would change every figure drawn with it.
    BOOTSTRAP = 1
    FOLDS = 2
    DIFFERENCES = 3
    ALGORITHM1 = 4
    PROJECTION = 7
    CORRECTNESS = 8
    AUROC = 9
    SELECTORS = 10
    REFERENCE = 11
    COPIES = 12
    NEAR_COPIES = 13
    ANSWERS = 20


def rng(seed: int, stream: Stream) -> np.random.Generator:
    """Return the random numbers of one part of a study."""
    return np.random.default_rng([seed, stream])


@dataclass(frozen=True, slots=True, eq=False)
class FittedMaps:
    """Every map, fitted on n prompts.

    fits, bootstraps: by method, "evidence" last; missing_mass: (n,) of the prompts, None where there
    is no map by evidence. fold: (n,) which fold held each prompt out. risks, maps: out of fold, (n,) in nats
    and one map a fold, of "raw", both plain methods, "evidence" where it was fitted, "active", last, where
    there is one.
    """

    fits: Mapping[str, AnyFit]
    bootstraps: Mapping[str, Bootstrap]
    missing_mass: Floats | None
    fold: NDArray[np.int_]
    risks: Mapping[str, Floats]
    maps: Mapping[str, Sequence[AnyMap]]

    def maps_of(self, name: str) -> list[CalibrationMap]:
        """Return the map that serves each of the n prompts, fitted without its fold."""
        masses = np.zeros(self.fold.size) if self.missing_mass is None else self.missing_mass
        pairs = [(self.maps[name][k], float(u)) for k, u in zip(self.fold, masses, strict=True)]
        return [one.at(u) if isinstance(one, EvidenceMap) else one for one, u in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class DecidedAt:
    """What the verdicts allow with one number of answers.

    fit: of P(correct); right: (n,) verdicts of the full rows. selector: None where there is no model; `fit`
    says why. groups: (n,), as `Material.full_groups`.
    """

    fit: CorrectnessFit
    right: Bools
    selector: Selector | None
    groups: NDArray[np.int_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a fit found.

    rows: the full ones; maps: fitted on them. method: the one chosen; parameters: of every m' for it, those
    of "depolarized" for "evidence", whose own are in evidence_table. decided: what the verdicts allow, by
    number of answers. priors: what the maps were drawn to.
    """

    rows: FullRows
    maps: FittedMaps
    method: Method
    parameters: Mapping[int, DepolarizedMap]
    decided: Mapping[int, DecidedAt]
    evidence_table: Mapping[int, EvidenceMap] = field(default_factory=dict)
    priors: PriorSource = no_prior

    def selectors(self) -> dict[int, Selector]:
        """Return the selectors that there are, by number of answers."""
        return {m: one.selector for m, one in self.decided.items() if one.selector is not None}


def fit_all(
    material: Material,
    asked: str,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    resamples: Resamples = DEFAULT,
    priors: PriorSource = no_prior,
    progress: OnDone | None = None,
) -> Fitted:
    """Fit the maps on the full rows, and the tables of the chosen one on all.

    asked: a method; "both": the better of the two that need no log-probabilities; "auto": the best of all.
    Blocking: seconds to minutes of linear algebra. Equal seeds give equal results. Raises InvalidDevData
    where "evidence" is asked for and rows lack log-probabilities.
    """
    rows = FullRows(material)
    if asked == "evidence" and (why := rows.why_no_evidence()):
        raise InvalidDevData(why)
    maps = fit_maps(
        rows.dev,
        material.num_samples,
        groups=rows.groups,
        active=active,
        seed=seed,
        resamples=resamples.bootstrap,
        priors=priors,
    )
    method = _chosen(asked, maps.risks)
    by_evidence = method == "evidence"
    parts = 3 if by_evidence else 2
    parameters = _parameters(material, method, seed, priors, _part(progress, 0, parts))
    table = _evidence_table(material, seed, priors, _part(progress, 1, parts)) if by_evidence else {}
    decided = fit_selectors(
        rows,
        method,
        rng=rng(seed, Stream.SELECTORS),
        priors=priors,
        progress=_part(progress, parts - 1, parts),
    )
    return Fitted(rows, maps, method, parameters, decided, table, priors)


def _chosen(asked: str, risks: Mapping[str, Floats]) -> Method:
    every: tuple[Method, ...] = (*METHODS, "evidence")
    candidates = {"both": METHODS, "auto": every}.get(asked, [one for one in every if one == asked])
    return min((one for one in candidates if one in risks), key=lambda one: float(risks[one].mean()))


def _part(progress: OnDone | None, part: int, parts: int) -> OnDone | None:
    """Return the progress of one of several equal parts of a whole, in thousandths of the whole.

    How many maps are fitted is not known before one is chosen, so their number cannot be announced.
    """
    return progress and (lambda done, total: progress((WHOLE * part + WHOLE * done // total) // parts, WHOLE))


def _parameters(
    material: Material,
    method: Method,
    seed: int,
    priors: PriorSource,
    progress: OnDone | None,
) -> dict[int, DepolarizedMap]:
    """Return the parameters of every number of answers from 2 to m, without log-probabilities."""
    plain: Method = "temperature" if method == "temperature" else "depolarized"
    maps = _table(material, plain, material.answers, None, seed, priors, progress)
    return {
        m: map_ if isinstance(map_, DepolarizedMap) else DepolarizedMap(map_.temperature, 0.0)
        for m, map_ in maps.items()
    }


def _evidence_table(
    material: Material, seed: int, priors: PriorSource, progress: OnDone | None
) -> dict[int, EvidenceMap]:
    """Return the map of every number of answers from 1 to m, fitted on the rows with log-probabilities."""
    pairs = zip(material.answers, (log_probabilities(one.draws) for one in material.rows), strict=True)
    known = [(answers, totals) for answers, totals in pairs if totals is not None]
    totals = [one for _, one in known]
    maps = _table(material, "evidence", [one for one, _ in known], totals, seed, priors, progress)
    return {m: map_ for m, map_ in maps.items() if isinstance(map_, EvidenceMap)}


def _table(
    material: Material,
    method: Method,
    answers: Iterable[Answers],
    totals: Iterable[Floats] | None,
    seed: int,
    priors: PriorSource,
    progress: OnDone | None,
) -> dict[int, FittedMap]:
    maps = fit_by_num_samples(
        answers,
        method,
        log_probabilities=totals,
        dimension=material.dimension,
        seed=seed,
        min_prompts=MIN_USABLE_ROWS,
        priors=partial(priors, method),
        progress=progress,
    )
    return {m: map_ for m, map_ in maps.items() if m <= material.num_samples}


def fit_maps(
    dev: DevSet,
    num_samples: int,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    resamples: int = DEFAULT.bootstrap,
    priors: PriorSource = no_prior,
    groups: NDArray[np.int_] | None = None,
) -> FittedMaps:
    """Return every map fitted on n prompts of so many answers each, and what serves those held out.

    That by evidence where dev has missing masses. active: the calibration to compare with. groups: (n,), as
    `Material.full_groups`. All maps have the same folds and resamples of the prompts. Blocking: seconds.
    """
    by_evidence = dev.missing_mass is not None
    methods: tuple[Method, ...] = (*METHODS, "evidence") if by_evidence else METHODS
    prior = {method: priors(method, num_samples) for method in methods}
    candidates: dict[str, Method | AnyMap] = {"raw": Identity(), **{m: m for m in methods}}
    if active is not None:
        # Its headline for more answers than it knows.
        known = min(num_samples, active.num_samples)
        own = by_evidence and active.evidence
        candidates["active"] = active.evidence[known] if own else active.map_for(known)
    found = cross_validated_risks(dev, candidates, rng=rng(seed, Stream.FOLDS), priors=prior, groups=groups)
    fits: dict[str, AnyFit] = {m: fit(dev, m, prior=prior[m]) for m in methods}
    spreads: dict[str, Bootstrap] = {
        m: bootstrap(
            dev, m, rng=rng(seed, Stream.BOOTSTRAP), resamples=resamples, prior=prior[m], groups=groups
        )
        for m in methods
    }
    return FittedMaps(fits, spreads, dev.missing_mass, found.fold, found.risks, found.maps)


def fit_selectors(
    rows: FullRows,
    method: Method,
    *,
    rng: np.random.Generator,
    priors: PriorSource = no_prior,
    progress: OnDone | None = None,
) -> dict[int, DecidedAt]:
    """Return what the verdicts on the full rows allow, by how many of their first answers are taken.

    The rows are folded once, by their verdicts with all answers. method: the kind of map, which all rows have
    chosen (by risk, not by verdicts: decision 0023); "depolarized" in place of "temperature", by which
    answers that are all alike are certain to be right. From 1 answer for "evidence", else from 2; of more
    than 64, those that maps are fitted for. And for 0, where the judged texts have log-probabilities of their
    own. Blocking: seconds.
    """
    kind: Method = "depolarized" if method == "temperature" else method
    most = rows.material.num_samples
    full = rows.at(most)
    fold = stratified_folds(full.right, FOLDS, rng, full.groups)
    counted = None if full.groups is None else one_of_each(full.groups, rng)
    sizes = [*([1] if method == "evidence" else []), *fitted_sizes(most)]
    alone, decided = rows.alone(), dict[int, DecidedAt]()
    tokens = None
    if alone is not None and isinstance(alone.texts, JudgedClaims) and alone.known.all():
        tokens = alone.texts.tokens
    for done, size in enumerate(sizes, start=1):
        seen = full if size == most else rows.at(size)
        fit_map = partial(fit, method=kind, prior=priors(kind, size))
        found = _decided(seen, fold, rows.judged, fit_map, counted)
        if tokens is not None:
            more = _decided(replace(seen, tokens=tokens), fold, rows.judged, fit_map, counted)
            found = _with_tokens(found, more)
        decided[size] = found
        if progress is not None:
            progress(done, len(sizes))
    if alone is not None:
        texts, own_fold = alone.texts, fold[alone.known]
        picked = None if texts.groups is None else one_of_each(texts.groups, rng)
        if isinstance(texts, JudgedClaims):
            model = fit_correctness(texts.tokens, texts.right, own_fold, groups=texts.groups)
            of_none = _decided_by(texts, model, None, alone.judged, own_fold, picked)
        else:
            fit_map = partial(fit, method="evidence", prior=priors("evidence", 1))
            of_none = _decided(texts, own_fold, alone.judged, fit_map, picked)
        decided = {0: of_none, **decided}
    return decided


def _decided(
    rows: Judged,
    fold: NDArray[np.int_],
    judged: JudgedTexts,
    fit_map: Callable[[DevSet], AnyFit],
    counted: NDArray[np.int_] | None,
) -> DecidedAt:
    """Return what the verdicts allow; counted: of rows that go together one each, which bounds rest on."""
    map_ = fit_map(rows.rows).map
    columns = rows.columns(map_)
    # What predicts a row has seen nothing of it, in map and model: the promise rests on that.
    by_fold = [rows.columns(fit_map(rows.rows.take(fold != k)).map) for k in range(FOLDS)]
    fit = fit_correctness(columns, rows.right, fold, by_fold=by_fold, groups=rows.groups)
    return _decided_by(rows, fit, map_, judged, fold, counted)


def _decided_by(
    rows: Judged | JudgedClaims,
    fit: CorrectnessFit,
    map_: FittedMap | None,
    judged: JudgedTexts,
    fold: NDArray[np.int_],
    counted: NDArray[np.int_] | None,
) -> DecidedAt:
    """Return what a fit of P(correct) allows. map_: None for claims to which no answer is drawn."""
    selector = None
    if fit.model is not None and fit.held_out is not None:
        counted = np.arange(len(rows)) if counted is None else counted
        # What a score never lets through must not count as let through, or the promise is about other texts.
        counts = selective_counts(fit.held_out[counted], rows.right[counted], rows.supported[counted])
        whole = None if rows.groups is None else _all_correct(fit.held_out, rows.right, fold, rows.groups)
        selector = Selector(map_, fit.model, counts, judged, whole)
    return DecidedAt(fit, rows.right, selector, rows.groups)


def _with_tokens(found: DecidedAt, more: DecidedAt) -> DecidedAt:
    """Return what was found, with what tells more, by the log loss of rows held out."""
    if found.selector is None or more.selector is None or found.fit.scores is None or more.fit.scores is None:
        return found
    if more.fit.scores.log_loss >= found.fit.scores.log_loss:
        return found
    return replace(found, selector=replace(found.selector, with_tokens=more.selector))


def _all_correct(
    held_out: Floats, right: Bools, fold: NDArray[np.int_], groups: NDArray[np.int_]
) -> CorrectnessModel | None:
    """Return what tells from P(correct) (n,) of claims whether all of an answer are right, if anything."""
    first, of_claim = np.unique(groups, return_index=True, return_inverse=True)[1:]
    columns = answer_columns(held_out, of_claim)
    whole = np.bincount(of_claim, weights=~right) == 0
    return fit_correctness(columns, whole, fold[first]).model
