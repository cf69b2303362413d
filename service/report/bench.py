"""A file as arrays, prepared once for all experiments: spectra, targets, who is right, what a map serves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.calibration import fitting
from service.calibration.calibration import WITHOUT_EVIDENCE, Calibration
from service.calibration.fitting import EvidenceFound, Fitted, Stream, find_evidence, missing_masses
from service.calibration.labels import FullRows, Judged, Labels, label
from service.calibration.material import Material
from service.report.model import SplitPart
from service.spectral.algorithm1 import (
    Clustering,
    DensityStack,
    Null,
    Nulls,
    algorithm1,
    cluster_prompts,
    frobenius_cosines,
    nulls,
    projection_null,
)
from service.spectral.correctness_model import (
    Columns,
    CorrectnessFit,
    fit_correctness,
    held_out_predictions,
    stratified_folds,
)
from service.spectral.dev_set import Answers, DevSet, dev_set, risks, served_lambda_max
from service.spectral.evidence import EvidenceMap, EvidenceSet, fit_evidence
from service.spectral.fit import (
    Bootstrap,
    CrossValidation,
    DepolarizedFit,
    TemperatureFit,
    fit_depolarized,
    fit_temperature,
)
from service.spectral.fit import Method as PlainMethod
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, Identity, ServedSpectrum
from service.spectral.reliability import (
    ConsistencyBand,
    ReliabilityDiagram,
    label_band,
    projection_brier,
    projection_reliability,
    reliability_diagram,
)
from service.spectral.resampling import DEFAULT, Resamples
from service.spectral.spectrum import Spectrum, spectrum

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """n prompts that have all m answers.

    answers, counts, texts, spectra: one per prompt; stack: their density matrices; targets: those of the
    references; dev: spectra and alignments for risks; c1: (n,) u_1^T Y u_1; labels: right or wrong;
    missing_mass: (n,) u of the answers, None unless every prompt has log-probabilities.
    """

    material: Material
    answers: Sequence[Answers]
    counts: Sequence[NDArray[np.int_]]
    texts: Sequence[Sequence[str]]
    spectra: Sequence[Spectrum]
    stack: DensityStack
    targets: DensityStack
    dev: DevSet
    c1: Floats
    labels: Labels
    missing_mass: Floats | None

    def __len__(self) -> int:
        return len(self.answers)


def make_split(material: Material, dev: DevSet | None = None) -> Split:
    """Return the split of the full rows. dev: of them, where it is known. Blocking: seconds for thousands."""
    chosen = [material.answers[i] for i in material.full]
    counts = [np.bincount(a.index, minlength=len(a.vectors)) for a in chosen]
    dev = dev or dev_set(chosen, material.dimension)
    pairs = zip(chosen, counts, strict=True)
    return Split(
        material,
        chosen,
        counts,
        [material.texts[i] for i in material.full],
        [spectrum(a.vectors, c, dimension=material.dimension) for a, c in pairs],
        DensityStack.of([a.vectors for a in chosen], counts),
        DensityStack.of([a.references for a in chosen]),
        dev,
        np.clip(dev.alignment[:, 0], 0.0, 1.0),  # above 1 by rounding only, which a diagram refuses
        label(material),
        missing_masses(material),
    )


def describe(split: Split, num_rows: int, answers_in_file: int) -> SplitPart:
    """Return what an evaluation says of the file; answers_in_file: per prompt, before they were cut to m."""
    return {
        "rows": num_rows,
        "used": len(split),
        "answers_in_file": answers_in_file,
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.labels.source,
        "accuracy": float(split.labels.right.mean()),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The n prompts of a split as a map serves them. lambda_max, entropy (nats), risks (nats): (n,)."""

    name: str
    spectra: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats
    risks: Floats


def served(name: str, spectra: Sequence[ServedSpectrum], risks: Floats) -> Served:
    """Return what is served, and what it costs on the references."""
    # Above 1 by rounding only, which a diagram refuses.
    largest = np.clip([one.lambda_max for one in spectra], 0.0, 1.0)
    return Served(name, spectra, largest, np.array([one.entropy for one in spectra]), risks)


# Every reliability diagram beside what it reads under calibration, as numbers.

Setting = tuple[int, int]

# The paper's bins and clusters; one cluster per bin is its naive diagram.
STANDARD: Setting = (8, 5)
NAIVE: Setting = (8, 1)
# Around the paper's own: how much hangs on that choice?
GRID: tuple[Setting, ...] = tuple((b, c) for b in (6, 8, 10) for c in (3, 5, 7))


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionReading:
    """lambda_max against u_1^T Y u_1: the diagram, its residual null, and the Brier score."""

    diagram: ReliabilityDiagram
    null: Null
    brier: float


@dataclass(frozen=True, slots=True, eq=False)
class CorrectnessReading:
    """lambda_max against right (1) and wrong (0), and where it would lie as the chance of being right."""

    diagram: ReliabilityDiagram
    band: ConsistencyBand


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm1Reading:
    """One setting (bins, clusters): the diagram, both of its nulls, and the clusters behind it."""

    clusters: Clustering
    diagram: ReliabilityDiagram
    nulls: Nulls


def read_projection(served: Served, split: Split, rng: np.random.Generator, worlds: int) -> ProjectionReading:
    """Return the projection diagram of what is served."""
    pair = served.lambda_max, split.c1
    return ProjectionReading(
        projection_reliability(*pair), projection_null(*pair, rng, num_draws=worlds), projection_brier(*pair)
    )


def read_correctness(
    served: Served, split: Split, rng: np.random.Generator, worlds: int
) -> CorrectnessReading:
    """Return the correctness diagram of what is served."""
    diagram = reliability_diagram(served.lambda_max, split.labels.right)
    return CorrectnessReading(diagram, label_band(served.lambda_max, rng, num_draws=worlds))


def read_algorithm1(
    served: Served,
    split: Split,
    settings: Iterable[Setting],
    rng: np.random.Generator,
    *,
    worlds: int,
    cosines: Floats | None = None,
) -> Mapping[Setting, Algorithm1Reading]:
    """Return Algorithm 1 in these settings, which share the worlds of the nulls.

    cosines: (n, n) of all pairs of prompts; None: they are computed bin by bin, once per setting.
    """
    clusters = {
        (bins, wanted): cluster_prompts(
            split.stack, served.lambda_max, num_bins=bins, num_clusters=wanted, cosines=cosines
        )
        for bins, wanted in dict.fromkeys(settings)
    }
    found = nulls(
        list(clusters.values()),
        split.stack,
        split.spectra,
        served.spectra,
        split.targets,
        rng,
        num_draws=worlds,
    )
    return {
        setting: Algorithm1Reading(one, algorithm1(one, split.targets), null)
        for (setting, one), null in zip(clusters.items(), found, strict=True)
    }


# What the first m' answers of each prompt are worth: maps and P(correct) fitted for m', and judged.
#
# The first m', not random ones: they are what a request for m' answers would have drawn, and cost. They judge
# one text of a prompt, however few they are: its `answer`, or the dominant one of all answers (`FullRows`).

Ints = NDArray[np.int_]
AnyMap = CalibrationMap | EvidenceMap
# Begins the same random numbers anew: each fit is judged on the same folds, whatever others there are.
Fresh = Callable[[], np.random.Generator]

SIZES = (1, 2, 3, 5, 8, 10, 20, 40, 80, 160)
# The map whose p(y) and entropy are features of P(correct), with the log-probabilities and without.
CORRECT_BY = ("evidence", "depolarized")


@dataclass(frozen=True, slots=True, eq=False)
class MapAt:
    """What a map serves with so many answers, (n,) each: risks in nats, lambda_max, and its gap to c_1."""

    risks: Floats
    lambda_max: Floats
    gaps: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AtSize:
    """n prompts judged by so many of their answers.

    right: (n,) verdicts on the text judged. served: by map, none but evidence for one answer. correct:
    P(correct) (n,) by `CORRECT_BY`, the base rate where no model beats it; base: (n,) the base rate of the
    verdicts fitted on. why_none: why there is no P(correct) at all, else "". tokens: completion tokens per
    question, None where a draw does not tell.
    """

    num_samples: int
    right: NDArray[np.bool_]
    served: Mapping[str, MapAt]
    correct: Mapping[str, Floats]
    base: Floats
    why_none: str
    tokens: float | None


def sizes(num_samples: int) -> list[int]:
    """Return the numbers of answers that are compared, up to m, which is always the last.

    >>> sizes(12)
    [1, 2, 3, 5, 8, 10, 12]
    """
    return [*(m for m in SIZES if m < num_samples), num_samples]


def mean_tokens(material: Material, num_samples: int) -> float | None:
    """Return the mean number of tokens of the first answers of a full row; None where one is not known."""
    drawn = [draw.num_tokens for i in material.full for draw in material.rows[int(i)].draws[:num_samples]]
    known = [count for count in drawn if count is not None]
    return sum(known) / material.full.size if len(known) == len(drawn) else None


def judge(
    dev: Judged, test: Judged, num_samples: int, tokens: float | None, eps: float, rng: Fresh
) -> AtSize:
    """Return what is fitted on `dev` with so many answers, as judged on `test`."""
    maps = _maps(dev, num_samples, eps)
    found = {
        name: fit_correctness(_columns(dev, maps[name], name), dev.right, rng=rng())
        for name in CORRECT_BY
        if name in maps
    }
    base = np.full(len(test), dev.right.mean())
    correct = {
        name: one.model.predict(_columns(test, maps[name], name)) if one.model else base
        for name, one in found.items()
        if one.candidates
    }
    served = {name: _served(map_, test) for name, map_ in maps.items()}
    why = _why_none(found, "answers of the dev file")
    return AtSize(num_samples, test.right, served, correct, base, why, tokens)


def judge_held_out(
    rows: Judged,
    fold: Ints,
    num_samples: int,
    tokens: float | None,
    eps: float,
    rng: Fresh,
) -> AtSize:
    """Return the same for one set of rows, each judged by fits without its fold (n,)."""
    folds = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
    parts = [(held, _maps(rows.take(fold != k), num_samples, eps)) for k, held in enumerate(folds)]
    order = np.argsort(np.concatenate(folds))
    names = list(parts[0][1])
    served = {
        name: _joined([_served(maps[name], rows.take(held)) for held, maps in parts], order) for name in names
    }
    columns = {
        name: _stacked([_columns(rows.take(held), maps[name], name) for held, maps in parts], order)
        for name in CORRECT_BY
        if name in names
    }
    found = {name: fit_correctness(one, rows.right, rng=rng()) for name, one in columns.items()}
    base = _base_rates(rows.right, rng)
    correct = {
        name: base if one.model is None or one.held_out is None else one.held_out
        for name, one in found.items()
        if one.candidates
    }
    return AtSize(num_samples, rows.right, served, correct, base, _why_none(found, "answers"), tokens)


def _maps(rows: Judged, num_samples: int, eps: float) -> dict[str, AnyMap]:
    """Return every map fitted on the rows; one answer has a spectrum of 1, which only evidence can map."""
    found: dict[str, AnyMap] = {}
    if num_samples > 1:
        found["raw"] = Identity(eps)
        found["temperature"] = fit_temperature(rows.rows, eps=eps).map
        found["depolarized"] = fit_depolarized(rows.rows).map
    if rows.missing_mass is not None:
        found["evidence"] = fit_evidence(EvidenceSet(rows.rows, rows.missing_mass)).map
    return found


def _served(map_: AnyMap, rows: Judged) -> MapAt:
    over = rows.over(map_)
    largest = served_lambda_max(over, rows.rows)
    return MapAt(risks(over, rows.rows), largest, largest - np.clip(rows.rows.alignment[:, 0], 0.0, 1.0))


def _columns(rows: Judged, map_: AnyMap, name: str) -> Columns:
    found = rows.columns(map_)
    # Without evidence means what a server without log-probabilities would leave.
    return found if name == "evidence" else {k: v for k, v in found.items() if k in WITHOUT_EVIDENCE}


def _joined(parts: list[MapAt], order: Ints) -> MapAt:
    columns = ([part.risks, part.lambda_max, part.gaps] for part in parts)
    return MapAt(*(np.concatenate(column)[order] for column in zip(*columns, strict=True)))


def _stacked(parts: list[Columns], order: Ints) -> dict[str, ArrayLike]:
    return {name: np.concatenate([np.asarray(one[name]) for one in parts])[order] for name in parts[0]}


def _base_rates(right: NDArray[np.bool_], rng: Fresh) -> Floats:
    """Return for each row (n,) the share right among the rows of the other folds."""
    fold = stratified_folds(right, 5, rng())
    return held_out_predictions({}, right, (), fold)


def _why_none(found: Mapping[str, CorrectnessFit], what: str) -> str:
    """Return why there is no P(correct) with so many answers; "" where there is one, or nothing to fit."""
    for one in found.values():
        if one.why_none == "one_kind":
            return f"all {one.num_right + one.num_wrong} {what} are {'right' if one.num_right else 'wrong'}"
        if one.why_none == "too_few_verdicts":
            kind, count = min(("right", one.num_right), ("wrong", one.num_wrong), key=lambda pair: pair[1])
            return f"only {count} of {one.num_right + one.num_wrong} {what} are {kind}"
    return ""


# What the experiments of a study share: prompts, the maps fitted for them, and what those serve.

# Beyond this many prompts the table of all Frobenius cosines (8 bytes a pair) is not kept.
MAX_COSINES = 4000


def serve(name: str, map_: CalibrationMap, split: Split) -> Served:
    """Return what a map serves on a split."""
    spectra = [map_.serve(one.eigenvalues, one.dimension) for one in split.spectra]
    return served(name, spectra, risks(map_, split.dev))


class Bench:
    """Maps fitted on `dev` and judged on `test`; what is derived from the two is made once, when asked for.

    deep: the material whose answers show how the estimator converges; may be one with more answers.
    """

    def __init__(
        self,
        dev: Split,
        test: Split,
        *,
        seed: int = 0,
        eps: float = DEFAULT_EPS,
        resamples: Resamples = DEFAULT,
    ) -> None:
        self.dev, self.test, self.seed, self.eps, self.resamples = dev, test, seed, eps, resamples
        self.deep: Material = test.material
        # By map: the null worlds of a map are drawn from what it serves.
        self._algorithm1: dict[tuple[str, Setting], Algorithm1Reading] = {}

    def rng(self, stream: Stream) -> np.random.Generator:
        """Return the random numbers of one experiment, the same whichever others run."""
        return fitting.rng(self.seed, stream)

    @cached_property
    def fits(self) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
        """Both maps, fitted on dev."""
        return fitting.fits(self.dev.dev, self.eps)

    @cached_property
    def bootstraps(self) -> Mapping[PlainMethod, Bootstrap]:
        """Their uncertainty over the prompts of dev."""
        return fitting.bootstraps(self.dev.dev, self.seed, self.eps, self.resamples.bootstrap)

    @cached_property
    def evidence(self) -> EvidenceFound | None:
        """The evidence map, fitted on dev; None unless every prompt of both has log-probabilities."""
        if self.test.missing_mass is None:
            return None
        dev, fold = self.dev, self._plain.fold
        found = self.rng(Stream.BOOTSTRAP)
        return find_evidence(dev.material, dev.dev, fold, None, found, self.resamples.bootstrap)

    @cached_property
    def _plain(self) -> CrossValidation:
        return fitting.held_out(self.dev.dev, self.seed, self.eps)

    @cached_property
    def held_out(self) -> CrossValidation:
        """Out-of-fold risks on dev of every map, and those maps that need no log-probabilities."""
        return fitting.with_evidence(self._plain, self.evidence)

    @cached_property
    def maps(self) -> Mapping[str, CalibrationMap]:
        """Every map of all test prompts at once, by name, raw first; that of evidence has a g for each."""
        found: dict[str, CalibrationMap] = {"raw": Identity(self.eps)}
        found |= {method: one.map for method, one in self.fits.items()}
        if self.evidence is not None and self.test.missing_mass is not None:
            found["evidence"] = self.evidence.fit.map.over(self.test.missing_mass)
        return found

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each of the n test prompts, one for each."""
        if name == "evidence" and self.evidence is not None and self.test.missing_mass is not None:
            return [self.evidence.fit.map.at(u) for u in self.test.missing_mass]
        return [self.maps[name]] * len(self.test)

    def risks_of(self, name: str) -> Floats:
        """Return what a map's fitted operators cost on the references of test, (n,) in nats."""
        return risks(self.maps[name], self.test.dev)

    @property
    def names(self) -> Sequence[str]:
        """The maps that are judged, raw first."""
        return tuple(self.maps)

    @cached_property
    def served(self) -> Mapping[str, Served]:
        """What each map serves on test."""
        return {name: self._served(name) for name in self.names}

    def _served(self, name: str) -> Served:
        pairs = zip(self.maps_of(name), self.test.spectra, strict=True)
        spectra = [map_.serve(one.eigenvalues, one.dimension) for map_, one in pairs]
        return served(name, spectra, self.risks_of(name))

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what is fitted on dev with the first answers of each prompt, as judged on test."""
        tokens = mean_tokens(self.test.material, num_samples)
        dev, test = (one.at(num_samples) for one in self._rows)
        return judge(dev, test, num_samples, tokens, self.eps, partial(self.rng, Stream.ANSWERS))

    @cached_property
    def _rows(self) -> tuple[FullRows, FullRows]:
        dev, test = (FullRows(one.material, one_text=True) for one in (self.dev, self.test))
        return dev, test

    @cached_property
    def cosines(self) -> Floats | None:
        """Frobenius cosines (n, n) of the test prompts; None where there are too many to keep."""
        return frobenius_cosines(self.test.stack) if len(self.test) <= MAX_COSINES else None

    @cached_property
    def projection(self) -> Mapping[str, ProjectionReading]:
        """The projection diagram of each map, with its null."""
        return {
            name: read_projection(one, self.test, self.rng(Stream.PROJECTION), self.resamples.band)
            for name, one in self.served.items()
        }

    @cached_property
    def correctness(self) -> Mapping[str, CorrectnessReading]:
        """The correctness diagram of each map, with its band."""
        return {
            name: read_correctness(one, self.test, self.rng(Stream.CORRECTNESS), self.resamples.band)
            for name, one in self.served.items()
        }

    def algorithm1(self, name: str, setting: Setting = STANDARD) -> Algorithm1Reading:
        """Return Algorithm 1 of a map.

        Only the standard setting is read alone: the first other one brings all, which share null worlds.
        """
        if (name, setting) not in self._algorithm1:
            self._read(name, (STANDARD,) if setting == STANDARD else (NAIVE, STANDARD, *GRID))
        return self._algorithm1[name, setting]

    def _read(self, name: str, settings: Sequence[Setting]) -> None:
        # One setting needs the pairs within its bins only: the table of all would be more work, and memory.
        cosines = None if len(settings) == 1 else self.cosines
        found = read_algorithm1(
            self.served[name],
            self.test,
            settings,
            self.rng(Stream.ALGORITHM1),
            worlds=self.resamples.nulls,
            cosines=cosines,
        )
        self._algorithm1.update({(name, setting): one for setting, one in found.items()})


class HeldOut(Bench):
    """One file alone: each of its prompts is judged as served by the map of the fold that held it out.

    fitted: on the full rows of the file. Its maps are those that `Fitted.held_out` has risks of: "evidence"
    where the rows have log-probabilities, and "active".
    """

    def __init__(
        self,
        rows: Split,
        fitted: Fitted,
        *,
        seed: int = 0,
        eps: float = DEFAULT_EPS,
        resamples: Resamples = DEFAULT,
    ) -> None:
        super().__init__(rows, rows, seed=seed, eps=eps, resamples=resamples)
        self._fitted = fitted
        self._first_answers: dict[int, AtSize] = {}

    @cached_property
    def fits(self) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
        """Both maps, as fitted."""
        return self._fitted.fits

    @cached_property
    def bootstraps(self) -> Mapping[PlainMethod, Bootstrap]:
        """Their uncertainty, as found with the fit."""
        return self._fitted.bootstraps

    @cached_property
    def held_out(self) -> CrossValidation:
        """Out-of-fold risks and maps, those of the active calibration included."""
        return self._fitted.held_out

    @cached_property
    def evidence(self) -> EvidenceFound | None:
        """The evidence map, as fitted."""
        return self._fitted.evidence

    @property
    def names(self) -> Sequence[str]:
        """The maps that have out-of-fold risks, "active" last."""
        return tuple(self.held_out.risks)

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each prompt, fitted without its fold."""
        return self._fitted.maps_of(name)

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what the first answers of each prompt are worth, each judged by fits without its fold."""
        if num_samples not in self._first_answers:
            tokens, fold = mean_tokens(self.test.material, num_samples), self.held_out.fold
            rows, rng = self._full.at(num_samples), partial(self.rng, Stream.ANSWERS)
            self._first_answers[num_samples] = judge_held_out(rows, fold, num_samples, tokens, self.eps, rng)
        return self._first_answers[num_samples]

    def correct_by(self, calibration: Calibration) -> Floats | None:
        """Return P(correct) (n,) by the model of a calibration fitted elsewhere, of the texts judged here.

        By as many of the first answers as it serves. None where it has no model of them, or one that takes
        log-probabilities which these rows lack.
        """
        size = min(self.test.material.num_samples, calibration.num_samples)
        decider, rows = calibration.deciders.get(size), self._full.at(size)
        if decider is None or (isinstance(decider.map, EvidenceMap) and rows.missing_mass is None):
            return None
        columns = rows.columns(decider.map)
        return decider.model.predict(columns) if columns.keys() >= set(decider.model.features) else None

    @cached_property
    def _full(self) -> FullRows:
        return FullRows(self.test.material, one_text=True)

    def risks_of(self, name: str) -> Floats:
        """Return the out-of-fold risks of a map, (n,) in nats."""
        return self.held_out.risks[name]
