"""Fitting a calibration on labelled rows: maps, evidence, P(correct) and thresholds (method, section 8)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration.calibration import Calibration, Curvature, JudgedRows, Method, Origin, Selector
from service.calibration.labels import Judged, LabelledRows, fitted_sizes
from service.calibration.rows import FEW_ROWS
from service.errors import InvalidDevData
from service.spectral.correctness_model import (
    CorrectnessFit,
    CorrectnessModel,
    fit_correctness,
    fit_model,
    stratified_folds,
)
from service.spectral.dev_set import AnyMap, DevSpectra
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import (
    AnyFit,
    PriorSource,
    cross_validated_risks,
    fit,
    fit_depolarized,
    fit_temperature,
    no_prior,
    objective,
    point_of,
)
from service.spectral.resampling import one_of_each
from service.spectral.selective import selective_counts
from service.spectral.spectrum import DepolarizedMap, TemperatureMap

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Map = TypeVar("Map", DepolarizedMap, EvidenceMap)
OnDone = Callable[[int, int], None]  # number done, total number
METHODS: tuple[Method, ...] = ("temperature", "depolarized")  # methods without log-probabilities
WHOLE = 1000  # units of the progress of a fit
NONE_KNOWN: Mapping[int, CorrectnessModel] = MappingProxyType({})
FOLDS = 5  # folds of the rows; a map and a model of the other folds predict each row


class Stream(IntEnum):
    """The streams of random numbers in a study. Each is independent of the others."""

    # Never change a number: every figure drawn with it would change. `lab.resampling` has 4 to 6.
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

    fits: by method, "evidence" last. fold: (n,), the fold that held each prompt out. risks, maps: out of
    fold, (n,) in nats and one map per fold, by "raw", both plain methods, "evidence" if fitted and, last,
    "active" if there is one.
    """

    fits: Mapping[Method, AnyFit]
    fold: NDArray[np.int_]
    risks: Mapping[str, Floats]
    maps: Mapping[str, Sequence[AnyMap]]


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoint:
    """The fits for one number of answers: maps, P(correct) and the selector.

    right: (n,) verdicts on the full rows. selector: None without a model; `fit` has the reason. map: fitted
    on the rows; None for claims without drawn answers. plain: for answers without log-probabilities; None for
    fewer than two answers. groups: (n,), as `DevSet.full_groups`. judged: the rows, for later fits.
    counts_both: True if the promises also count rows of the bundled questions.
    """

    fit: CorrectnessFit
    right: Bools
    selector: Selector | None
    map: AnyMap | None
    judged: JudgedRows
    plain: DepolarizedMap | None = None
    groups: NDArray[np.int_] | None = None
    counts_both: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BundledPrior:
    """The bundled selector and its rows, the prior of a fit on few rows.

    Its map gives the features of own and bundled rows, so that P(correct) has one scale.
    """

    selector: Selector
    rows: JudgedRows


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The result of a fit.

    rows: the full rows; maps: fitted on them. method: the chosen method. decided: the fits by number of
    answers. priors: the priors of the maps. models: bundled models of P(correct), used as priors. origin:
    as in `Calibration`. kept: the bundled selector for 0 answers, a fallback.
    """

    rows: LabelledRows
    maps: FittedMaps
    method: Method
    decided: Mapping[int, OperatingPoint]
    priors: PriorSource = no_prior
    models: Mapping[int, CorrectnessModel] = field(default_factory=dict)
    origin: Origin = "own"
    kept: Mapping[int, Selector] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[int, DepolarizedMap]:
        """The map for each number of answers from 2, without log-probabilities."""
        return interpolated({m: point.plain for m, point in self.decided.items() if point.plain is not None})

    @property
    def evidence_table(self) -> dict[int, EvidenceMap]:
        """The map for each number of answers from 1, with log-probabilities; empty for other methods."""
        if self.method != "evidence":
            return {}
        maps = {m: point.map for m, point in self.decided.items() if m}
        return interpolated({m: map_ for m, map_ in maps.items() if isinstance(map_, EvidenceMap)})

    def selectors(self) -> dict[int, Selector]:
        """Return the selectors by number of answers, without numbers that have none."""
        own = {m: fitted.selector for m, fitted in self.decided.items() if fitted.selector is not None}
        return {**self.kept, **own}


NONE_BUNDLED: Mapping[int, BundledPrior] = MappingProxyType({})


def fit_all(
    rows: LabelledRows,
    option: str,
    *,
    active: Calibration | None = None,
    seed: int = 0,
    known: Calibration | None = None,
    progress: OnDone | None = None,
) -> Fitted:
    """Fit all maps on the full rows, and the chosen map for each number of their first answers.

    option: a method; "both": the better of the two without log-probabilities; "auto": the best of all.
    Blocks for seconds to minutes of linear algebra. Equal seeds give equal results. Raises InvalidDevData if
    "evidence" is asked for and rows lack log-probabilities. known: the same LLM's calibration on the bundled
    questions, whose fits are the priors.
    """
    priors = no_prior if known is None else known.prior
    if option == "evidence" and (reason := rows.why_no_evidence()):
        raise InvalidDevData(reason)
    fold = folds(rows, seed)
    maps = fit_maps(rows.dev, rows.material.num_samples, fold, active=active, priors=priors)
    method = _chosen(option, maps.risks)
    is_few = rows.num_rows < FEW_ROWS
    if known is not None and is_few and option == "auto" and known.method in maps.risks:
        method = known.method  # few rows cannot tell which is better
    models: dict[int, CorrectnessModel] = {}
    bundled: dict[int, BundledPrior] = {}
    if (
        known is not None
        and (known.method == "evidence") == (method == "evidence")
        and known.fingerprint.self_check == rows.checked_by
    ):
        models = {m: selector.model for m, selector in known.selectors.items()}
        if is_few:
            bundled = {
                m: BundledPrior(known.selectors[m], rows_) for m, rows_ in known.judged.items() if m in models
            }
    decided = fit_points(
        rows,
        method,
        fold,
        rng=rng(seed, Stream.SELECTORS),
        priors=priors,
        models=models,
        bundled=bundled,
        progress=progress,
    )
    kept = {0: replace(known.selectors[0], is_bundled=True)} if known is not None and 0 in models else {}
    return Fitted(rows, maps, method, decided, priors, models, "both" if bundled else "own", kept)


def _chosen(option: str, risks: Mapping[str, Floats]) -> Method:
    methods: tuple[Method, ...] = (*METHODS, "evidence")
    candidates = {"both": METHODS, "auto": methods}.get(option, [m for m in methods if m == option])
    return min((m for m in candidates if m in risks), key=lambda m: float(risks[m].mean()))


def folds(rows: LabelledRows, seed: int) -> NDArray[np.int_]:
    """Return the fold number (n,) of each full row. Fits that predict a row exclude its fold."""
    return stratified_folds(rows.right, FOLDS, rng(seed, Stream.FOLDS), rows.groups)


def fit_maps(
    dev: DevSpectra,
    num_samples: int,
    fold: NDArray[np.int_],
    *,
    active: Calibration | None = None,
    priors: PriorSource = no_prior,
) -> FittedMaps:
    """Fit all maps on n prompts with `num_samples` answers each, and again without each fold (n,).

    The evidence map is fitted if dev has missing masses. active: the calibration to compare with. Blocks for
    seconds.
    """
    by_evidence = dev.missing_mass is not None
    methods: tuple[Method, ...] = (*METHODS, "evidence") if by_evidence else METHODS
    prior = {method: priors(method, num_samples) for method in methods}
    candidates: dict[str, Method | AnyMap] = {"raw": TemperatureMap(1.0), **{m: m for m in methods}}
    if active is not None:
        # Its headline map for more answers than it has maps for.
        size = min(num_samples, active.num_samples)
        has_evidence = by_evidence and active.evidence
        candidates["active"] = active.evidence[size] if has_evidence else active.map_for(size)
    held_out = cross_validated_risks(dev, candidates, fold, priors=prior)
    fits: dict[Method, AnyFit] = {m: fit(dev, m, prior=prior[m]) for m in methods}
    return FittedMaps(fits, fold, held_out.risks, held_out.maps)


def fit_points(
    rows: LabelledRows,
    method: Method,
    fold: NDArray[np.int_],
    *,
    rng: np.random.Generator,
    priors: PriorSource = no_prior,
    models: Mapping[int, CorrectnessModel] = NONE_KNOWN,
    bundled: Mapping[int, BundledPrior] = NONE_BUNDLED,
    progress: OnDone | None = None,
) -> dict[int, OperatingPoint]:
    """Fit the maps, P(correct) and the selectors on the full rows, by number of first answers.

    fold: (n,), as in `folds`. rng: picks the row that represents each group in promises. method: the kind of
    map, chosen by risk on all rows. P(correct) uses "depolarized" instead of "temperature", which makes
    identical answers certain to be right. The numbers start at 1 for "evidence", else at 2;
    above 64 they are on a grid (`fitted_sizes`). 0 is included if the judged texts have log-probabilities of
    their own. bundled: for few rows, the bundled selectors and rows. Blocks for seconds.
    """
    kind: Method = "depolarized" if method == "temperature" else method
    num_samples = rows.material.num_samples
    full = rows.at(num_samples)
    one_per_group = None if full.groups is None else one_of_each(full.groups, rng)
    sizes = [size for size in fitted_sizes(num_samples) if size > 1 or method == "evidence"]
    own, decided = rows.at(0) if rows.serves_none else None, dict[int, OperatingPoint]()
    for done, size in enumerate(sizes, start=1):
        judged = full if size == num_samples else rows.at(size)
        fit_map = partial(fit, method=kind, prior=priors(kind, size))
        fitted = _decided(judged, fold, fit_map, one_per_group, models.get(size), bundled.get(size))
        decided[size] = replace(fitted, plain=_plain(method, judged.rows, fitted.map, size, priors))
        if progress is not None:
            progress(done, len(sizes))
    if own is not None:
        fit_map = partial(fit, method="evidence", prior=priors("evidence", 1))
        one_per_group = None if own.groups is None else one_of_each(own.groups, rng)
        without = _decided(own, fold[own.places], fit_map, one_per_group, models.get(0), bundled.get(0))
        decided = {0: without, **decided}
    return decided


def _plain(
    method: Method, rows: DevSpectra, map_: AnyMap | None, size: int, priors: PriorSource
) -> DepolarizedMap | None:
    """Return the map for answers without log-probabilities, g = 0 for "temperature"; None for one answer."""
    if isinstance(map_, DepolarizedMap) and method == "depolarized":
        return map_
    if size < 2:
        return None
    if method == "temperature":
        return DepolarizedMap(fit_temperature(rows, prior=priors(method, size)).map.temperature, 0.0)
    return fit_depolarized(rows, prior=priors("depolarized", size)).map


def curvatures(rows: LabelledRows) -> dict[str, dict[int, Curvature]]:
    """Return the optimum of each map by method and number of answers, for priors. Blocks for seconds."""
    found: dict[str, dict[int, Curvature]] = {}
    for size in fitted_sizes(rows.material.num_samples):
        dev = rows.at(size).rows
        methods: list[Method] = [*METHODS] if size > 1 else []
        methods += ["evidence"] if dev.missing_mass is not None else []
        for method in methods:
            optimum = point_of(fit(dev, method).map)
            hessian = objective(dev, method)(optimum)[2]
            row = Curvature(tuple(optimum.tolist()), tuple(map(tuple, hessian.tolist())))
            found.setdefault(method, {})[size] = row
    return found


def interpolated(maps: Mapping[int, Map]) -> dict[int, Map]:
    """Add maps for the missing numbers of answers, by interpolation linear in log m (T as log T)."""
    sizes = sorted(maps)
    # The parameters of each map, temperature first.
    numbers = np.array([astuple(maps[m]) for m in sizes])
    numbers[:, 0] = np.log(numbers[:, 0])
    between = [m for m in range(sizes[0], sizes[-1] + 1) if m not in maps]
    columns = [np.interp(np.log(between), np.log(sizes), column) for column in numbers.T]
    kind = type(maps[sizes[0]])
    made = {
        m: kind(float(np.exp(log_t)), *map(float, rest))
        for m, log_t, *rest in zip(between, *columns, strict=True)
    }
    return dict(sorted({**maps, **made}.items()))


def _decided(
    rows: Judged,
    fold: NDArray[np.int_],
    fit_map: Callable[[DevSpectra], AnyFit],
    one_per_group: NDArray[np.int_] | None,
    known: CorrectnessModel | None,
    bundled: BundledPrior | None,
) -> OperatingPoint:
    """Fit P(correct) and the selector.

    one_per_group: one row of each group, for the bounds; None: all rows. known: the prior of the model.
    """
    map_ = None if rows.tokens else fit_map(rows.rows).map
    of_features = map_ if bundled is None else bundled.selector.map
    columns, by_fold = rows.columns(of_features), None
    if map_ is not None and bundled is None:
        # Neither the map nor the model that predicts a row has seen it. The promise depends on that.
        by_fold = [rows.columns(fit_map(rows.rows.take(fold != k)).map) for k in range(FOLDS)]
    fit = fit_correctness(columns, rows.right, fold, by_fold=by_fold, groups=rows.groups, known=known)
    held_out = by_fold or [columns] * FOLDS
    judged = JudgedRows(
        {name: tuple(np.choose(fold, [of[name] for of in held_out]).round(4).tolist()) for name in columns},
        tuple(rows.right.tolist()),
        tuple(rows.supported.tolist()),
        tuple(fold.tolist()),
    )
    selector = None
    counts_both = bundled is not None and fit.model is not None
    if fit.model is not None and fit.held_out is not None:
        counted = np.arange(len(rows)) if one_per_group is None else one_per_group
        # Texts that a score never lets through must not count here, or the promise is about other texts.
        parts = [(fit.held_out[counted], rows.right[counted], rows.supported[counted])]
        if bundled is not None:
            others = bundled.rows
            predicted = without_fold(others, fit.model.features, columns, rows.right)
            parts.append((predicted, np.array(others.right), np.array(others.supported)))
        counts = selective_counts(*map(np.concatenate, zip(*parts, strict=True)))
        selector = Selector(of_features, fit.model, counts, rows.source)
    return OperatingPoint(
        fit, rows.right, selector, map_, judged, groups=rows.groups, counts_both=counts_both
    )


def without_fold(
    known: JudgedRows, features: Sequence[str], columns: Mapping[str, ArrayLike], right: Bools
) -> Floats:
    """Return held-out P(correct) (n,) of the bundled rows; each row's prior is fitted without its fold.

    columns, right: features and verdicts of the own rows, which the model is fitted on.
    """
    table = {name: np.array(known.columns[name]) for name in features}
    verdicts, fold, predicted = np.array(known.right), np.array(known.fold), np.empty(len(known.fold))
    for number in np.unique(fold):
        held = fold == number
        seen = {name: column[~held] for name, column in table.items()}
        prior = fit_model(seen, verdicts[~held], features)
        model = fit_model(columns, right, features, prior)
        predicted[held] = model.predict({name: column[held] for name, column in table.items()})
    return predicted
