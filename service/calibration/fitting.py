"""Fitting a calibration on labelled rows: maps, evidence, P(correct) and thresholds (method, section 8)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, Method, Selector, answer_columns
from service.calibration.labels import Judged, LabelledRows
from service.calibration.material import DevSet
from service.calibration.rows import MIN_USABLE_ROWS
from service.embedding.port import log_probabilities
from service.errors import InvalidDevData
from service.spectral.correctness_model import (
    CorrectnessFit,
    CorrectnessModel,
    fit_correctness,
    stratified_folds,
)
from service.spectral.dev_set import Answers, AnyMap, DevSpectra
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
METHODS: tuple[Method, ...] = ("temperature", "depolarized")  # methods without log-probabilities
WHOLE = 1000  # units of the progress of a fit
FOLDS = 5  # folds of the rows; a map and a model of the other folds predict each row


class Stream(IntEnum):
    """The streams of random numbers in a study. Each is independent of the others."""

    # Never change a number: every figure drawn with it would change. `lab.resampling` has 4 to 6.
    BOOTSTRAP = 1
    FOLDS = 2
    DIFFERENCES = 3
    PROJECTION = 7
    CORRECTNESS = 8
    AUROC = 9
    SELECTORS = 10
    REFERENCE = 11
    COPIES = 12
    NEAR_COPIES = 13
    ANSWERS = 20


def rng(seed: int, stream: int) -> np.random.Generator:
    """Return the random generator for one part of a study."""
    return np.random.default_rng([seed, stream])


@dataclass(frozen=True, slots=True, eq=False)
class FittedMaps:
    """All maps, fitted on n prompts.

    fits, bootstraps: by method, "evidence" last; missing_mass: (n,) of the prompts, None without an evidence
    map. fold: (n,), the fold that held each prompt out. risks, maps: out of fold, (n,) in nats and one map
    per fold, by "raw", both plain methods, "evidence" if fitted and, last, "active" if there is one.
    """

    fits: Mapping[str, AnyFit]
    bootstraps: Mapping[str, Bootstrap]
    missing_mass: Floats | None
    fold: NDArray[np.int_]
    risks: Mapping[str, Floats]
    maps: Mapping[str, Sequence[AnyMap]]

    def maps_of(self, name: str) -> list[CalibrationMap]:
        """Return the map for each of the n prompts, fitted without its fold."""
        masses = np.zeros(self.fold.size) if self.missing_mass is None else self.missing_mass
        pairs = [(self.maps[name][k], float(u)) for k, u in zip(self.fold, masses, strict=True)]
        return [map_.at(u) if isinstance(map_, EvidenceMap) else map_ for map_, u in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoint:
    """The fit of P(correct) and the selector for one number of answers.

    right: (n,) verdicts on the full rows. selector: None without a model; `fit` has the reason. groups: (n,),
    as `DevSet.full_groups`.
    """

    fit: CorrectnessFit
    right: Bools
    selector: Selector | None
    groups: NDArray[np.int_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The result of a fit.

    rows: the full rows; maps: fitted on them. method: the chosen method; parameters: of its map for each
    number of answers; for "evidence", those of "depolarized", with its own in evidence_table. decided:
    P(correct) and selectors, by number of answers. priors: the priors of the maps.
    """

    rows: LabelledRows
    maps: FittedMaps
    method: Method
    parameters: Mapping[int, DepolarizedMap]
    decided: Mapping[int, OperatingPoint]
    evidence_table: Mapping[int, EvidenceMap] = field(default_factory=dict)
    priors: PriorSource = no_prior

    def selectors(self) -> dict[int, Selector]:
        """Return the selectors by number of answers, without numbers that have none."""
        return {m: fitted.selector for m, fitted in self.decided.items() if fitted.selector is not None}


def fit_all(
    material: DevSet,
    option: str,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    resamples: Resamples = DEFAULT,
    priors: PriorSource = no_prior,
    progress: OnDone | None = None,
) -> Fitted:
    """Fit all maps on the full rows, and the chosen map for each number of answers on all rows.

    option: a method; "both": the better of the two without log-probabilities; "auto": the best of all.
    Blocks for seconds to minutes of linear algebra. Equal seeds give equal results. Raises InvalidDevData if
    "evidence" is asked for and rows lack log-probabilities.
    """
    rows = LabelledRows(material)
    if option == "evidence" and (reason := rows.why_no_evidence()):
        raise InvalidDevData(reason)
    maps = fit_maps(
        rows.dev,
        material.num_samples,
        groups=rows.groups,
        active=active,
        seed=seed,
        resamples=resamples.bootstrap,
        priors=priors,
    )
    method = _chosen(option, maps.risks)
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


def _chosen(option: str, risks: Mapping[str, Floats]) -> Method:
    methods: tuple[Method, ...] = (*METHODS, "evidence")
    candidates = {"both": METHODS, "auto": methods}.get(option, [m for m in methods if m == option])
    return min((m for m in candidates if m in risks), key=lambda m: float(risks[m].mean()))


def _part(progress: OnDone | None, part: int, parts: int) -> OnDone | None:
    """Return the progress of one of several equal parts, in thousandths of the whole.

    The number of maps to fit is unknown before one is chosen, so it cannot be the total.
    """
    return progress and (lambda done, total: progress((WHOLE * part + WHOLE * done // total) // parts, WHOLE))


def _parameters(
    material: DevSet,
    method: Method,
    seed: int,
    priors: PriorSource,
    progress: OnDone | None,
) -> dict[int, DepolarizedMap]:
    """Return the parameters for each number of answers from 2 to m, without log-probabilities."""
    plain: Method = "temperature" if method == "temperature" else "depolarized"
    maps = _table(material, plain, material.answers, None, seed, priors, progress)
    return {
        m: map_ if isinstance(map_, DepolarizedMap) else DepolarizedMap(map_.temperature, 0.0)
        for m, map_ in maps.items()
    }


def _evidence_table(
    material: DevSet, seed: int, priors: PriorSource, progress: OnDone | None
) -> dict[int, EvidenceMap]:
    """Return the map for each number of answers from 1 to m, fitted on the rows with log-probabilities."""
    pairs = zip(material.answers, (log_probabilities(row.draws) for row in material.rows), strict=True)
    rows = [(answers, totals) for answers, totals in pairs if totals is not None]
    totals = [row_totals for _, row_totals in rows]
    maps = _table(material, "evidence", [answers for answers, _ in rows], totals, seed, priors, progress)
    return {m: map_ for m, map_ in maps.items() if isinstance(map_, EvidenceMap)}


def _table(
    material: DevSet,
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
    dev: DevSpectra,
    num_samples: int,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    resamples: int = DEFAULT.bootstrap,
    priors: PriorSource = no_prior,
    groups: NDArray[np.int_] | None = None,
) -> FittedMaps:
    """Fit all maps on n prompts with `num_samples` answers each, and again without each fold.

    The evidence map is fitted if dev has missing masses. active: the calibration to compare with. groups:
    (n,), as `DevSet.full_groups`. All maps have the same folds and resamples. Blocks for seconds.
    """
    by_evidence = dev.missing_mass is not None
    methods: tuple[Method, ...] = (*METHODS, "evidence") if by_evidence else METHODS
    prior = {method: priors(method, num_samples) for method in methods}
    candidates: dict[str, Method | AnyMap] = {"raw": Identity(), **{m: m for m in methods}}
    if active is not None:
        # Its headline map for more answers than it has maps for.
        size = min(num_samples, active.num_samples)
        has_evidence = by_evidence and active.evidence
        candidates["active"] = active.evidence[size] if has_evidence else active.map_for(size)
    held_out = cross_validated_risks(
        dev, candidates, rng=rng(seed, Stream.FOLDS), priors=prior, groups=groups
    )
    fits: dict[str, AnyFit] = {m: fit(dev, m, prior=prior[m]) for m in methods}
    spreads: dict[str, Bootstrap] = {
        m: bootstrap(
            dev, m, rng=rng(seed, Stream.BOOTSTRAP), resamples=resamples, prior=prior[m], groups=groups
        )
        for m in methods
    }
    return FittedMaps(fits, spreads, dev.missing_mass, held_out.fold, held_out.risks, held_out.maps)


def fit_selectors(
    rows: LabelledRows,
    method: Method,
    *,
    rng: np.random.Generator,
    priors: PriorSource = no_prior,
    progress: OnDone | None = None,
) -> dict[int, OperatingPoint]:
    """Fit P(correct) and the selectors on the full rows, by number of first answers.

    The rows are folded once, by their verdicts with all answers. method: the kind of map, chosen on all rows
    (by risk, not by verdicts). "depolarized" replaces "temperature", under which identical
    answers are certain to be right. The numbers start at 1 for "evidence", else at 2; above 64 they are the
    numbers that maps are fitted for. 0 is included if the judged texts have log-probabilities of their own.
    Blocks for seconds.
    """
    kind: Method = "depolarized" if method == "temperature" else method
    num_samples = rows.material.num_samples
    full = rows.at(num_samples)
    fold = stratified_folds(full.right, FOLDS, rng, full.groups)
    one_per_group = None if full.groups is None else one_of_each(full.groups, rng)
    sizes = [*([1] if method == "evidence" else []), *fitted_sizes(num_samples)]
    own, decided = rows.at(0) if rows.serves_none else None, dict[int, OperatingPoint]()
    tokens = own.tokens if own is not None and len(own) == len(rows) else {}
    counting = rows.counting_answer()
    for done, size in enumerate(sizes, start=1):
        judged = full if size == num_samples else rows.at(size)
        fit_map = partial(fit, method=kind, prior=priors(kind, size))
        fitted = _decided(judged, fold, fit_map, one_per_group)
        if tokens:
            with_logprobs = _decided(replace(judged, tokens=tokens), fold, fit_map, one_per_group)
            fitted = _with_logprobs(fitted, with_logprobs)
        if counting is not None:
            fit_map = partial(fit, method=kind, prior=priors(kind, size + 1))
            # Refusals are counted among the drawn answers only, as in a score.
            more = replace(counting.at(size + 1), refused=judged.refused)
            fitted = _with_logprobs(fitted, _decided(more, fold, fit_map, None))
        decided[size] = fitted
        if progress is not None:
            progress(done, len(sizes))
    if own is not None:
        fit_map = partial(fit, method="evidence", prior=priors("evidence", 1))
        one_per_group = None if own.groups is None else one_of_each(own.groups, rng)
        decided = {0: _decided(own, fold[own.places], fit_map, one_per_group), **decided}
    return decided


def _decided(
    rows: Judged,
    fold: NDArray[np.int_],
    fit_map: Callable[[DevSpectra], AnyFit],
    counted: NDArray[np.int_] | None,
) -> OperatingPoint:
    """Fit P(correct) and the selector. counted: one row of each group, for the bounds; None: all rows."""
    map_ = None if rows.by_tokens else fit_map(rows.rows).map
    columns, by_fold = rows.columns(map_), None
    if map_ is not None:
        # Neither the map nor the model that predicts a row has seen it. The promise depends on that.
        by_fold = [rows.columns(fit_map(rows.rows.take(fold != k)).map) for k in range(FOLDS)]
    fit = fit_correctness(columns, rows.right, fold, by_fold=by_fold, groups=rows.groups)
    selector = None
    if fit.model is not None and fit.held_out is not None:
        counted = np.arange(len(rows)) if counted is None else counted
        # Texts that a score never lets through must not count here, or the promise is about other texts.
        counts = selective_counts(fit.held_out[counted], rows.right[counted], rows.supported[counted])
        whole = None if rows.groups is None else _all_correct(fit.held_out, rows.right, fold, rows.groups)
        selector = Selector(map_, fit.model, counts, rows.source, whole)
    return OperatingPoint(fit, rows.right, selector, rows.groups)


def _with_logprobs(plain: OperatingPoint, better: OperatingPoint) -> OperatingPoint:
    """Return the fit with the selector by log-probabilities, if its log loss on held-out rows is lower."""
    if (
        plain.selector is None
        or better.selector is None
        or plain.fit.scores is None
        or better.fit.scores is None
    ):
        return plain
    if better.fit.scores.log_loss >= plain.fit.scores.log_loss:
        return plain
    return replace(plain, selector=replace(plain.selector, with_logprobs=better.selector))


def _all_correct(
    held_out: Floats, right: Bools, fold: NDArray[np.int_], groups: NDArray[np.int_]
) -> CorrectnessModel | None:
    """Return the model that all claims of an answer are right, from their P(correct) (n,); None if none."""
    first, of_claim = np.unique(groups, return_index=True, return_inverse=True)[1:]
    columns = answer_columns(held_out, of_claim)
    whole = np.bincount(of_claim, weights=~right) == 0
    return fit_correctness(columns, whole, fold[first]).model
