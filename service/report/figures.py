"""Reliability diagrams before and after: naive, Algorithm 1, projection, correctness."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import NEEDED_OF_A_KIND
from service.calibration.fitting import Stream
from service.report.bench import (
    MAX_COSINES,
    NAIVE,
    STANDARD,
    Algorithm1Reading,
    AtSize,
    Bench,
    Setting,
    serve,
    sizes,
)
from service.report.model import (
    Band,
    Estimate,
    Experiment,
    NullPart,
    ServedRow,
    TableRow,
    Value,
    estimate,
    finite,
    not_run,
    ran,
    unless_empty,
)
from service.spectral.algorithm1 import Null, algorithm1, calibration_error, cluster_labels, cluster_prompts
from service.spectral.constant import best_temperature, constant_predictor
from service.spectral.correctness import (
    Auroc,
    accuracy_rejection,
    auroc,
    bootstrap_auroc,
    resampled_aurocs,
)
from service.spectral.correctness_model import log_losses
from service.spectral.dev_set import DevSet, mean_entropy, overlaps, risk
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import DepolarizedFit
from service.spectral.maps import CalibrationMap, DepolarizedMap, TemperatureMap
from service.spectral.reliability import ConsistencyBand, ReliabilityDiagram, projection_reliability
from service.spectral.resampling import (
    Difference,
    ResampleCounts,
    figure_difference,
    mean_difference,
    percentile_interval,
)
from service.spectral.subsets import lambda_max_by_size

NAIVE_TITLE = "Naive reliability diagram, before and after"
ALGORITHM1_TITLE = "Algorithm 1 reliability diagram, before and after"
NO_CLUSTERS = "No cluster has two members: too few test prompts, or too few whose answers are alike."


def naive(bench: Bench) -> Experiment:
    """Return the diagram with one cluster per bin."""
    return _algorithm1("naive_diagram", NAIVE_TITLE, bench, NAIVE)


def algorithm1_diagram(bench: Bench) -> Experiment:
    """Return the paper's diagram, B = 8 and C = 5, with both of its nulls."""
    return _algorithm1("algorithm1_diagram", ALGORITHM1_TITLE, bench, STANDARD)


def _algorithm1(name: str, title: str, bench: Bench, setting: Setting) -> Experiment:
    points: list[TableRow] = []
    headline: TableRow = {"bins": setting[0], "clusters": setting[1]}
    for map_name in bench.served:
        one = bench.algorithm1(map_name, setting)
        rows = diagram_rows(map_name, one.diagram, len(bench.test), one.nulls.drawn.band)
        points += [{**row, **more} for row, more in zip(rows, cluster_rows(one), strict=True)]
        headline |= reading_columns(map_name, one)
    return unless_empty(ran(name, title, headline, points), NO_CLUSTERS, "observed")


def projection(bench: Bench) -> Experiment:
    """Return the projection diagram (ours) with its residual null: bands, and a p-value of the ECE."""
    points: list[TableRow] = []
    headline: TableRow = {}
    for name, one in bench.projection.items():
        points += diagram_rows(name, one.diagram, len(bench.test), one.null.band)
        headline |= ece_columns(name, one.diagram.ece, one.null.band) | null_columns(name, one.null)
        headline[f"{name}_brier"] = one.brier
    title = "Projection reliability with its null"
    return ran("projection_reliability", title, headline, points)


def correctness(bench: Bench) -> Experiment:
    """Return lambda_max against the share of right answers."""
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(bench.test.labels.right.mean())}
    for name, one in bench.correctness.items():
        points += diagram_rows(name, one.diagram, len(bench.test), one.band)
        headline |= ece_columns(name, one.diagram.ece, one.band)
    return ran("correctness_diagram", "Correctness diagram, before and after", headline, points)


def diagram_rows(
    name: str, diagram: ReliabilityDiagram, size: int, band: ConsistencyBand | None
) -> list[TableRow]:
    """Return the bins of a diagram as rows, bins without a target included."""
    bins = range(diagram.mass.size)
    return [
        {
            "map": name,
            "lower": float(diagram.edges[b]),
            "upper": float(diagram.edges[b + 1]),
            "count": round(float(diagram.mass[b]) * size),
            "predicted": finite(diagram.mean_predicted[b]),
            "observed": finite(diagram.mean_target[b]),
            "band_low": finite(band.low[b]) if band else None,
            "band_high": finite(band.high[b]) if band else None,
        }
        for b in bins
    ]


def ece_columns(prefix: str, ece: float, band: ConsistencyBand) -> TableRow:
    """Return an ECE and its band under perfect calibration as columns."""
    return {
        f"{prefix}_ece": finite(ece),
        f"{prefix}_band_mean": finite(band.ece_mean),
        f"{prefix}_band_low": finite(band.ece_low),
        f"{prefix}_band_high": finite(band.ece_high),
    }


def null_columns(prefix: str, null: Null) -> TableRow:
    """Return the p-value and the number of draws of a null as columns; its band is in other columns."""
    return {f"{prefix}_p_value": finite(null.p_value), f"{prefix}_draws": null.band.num_draws}


def reading_columns(prefix: str, one: Algorithm1Reading) -> TableRow:
    """Return Algorithm 1 as columns: ECE, both nulls, clusters used and their sizes, prompts left alone.

    `_band_*`, `_p_value`: references drawn as eigenvectors. `_rescaled_*`: real references, rescaled.
    """
    drawn, rescaled, sizes = one.nulls.drawn, one.nulls.rescaled, one.clusters.cluster_sizes
    return {
        **ece_columns(prefix, one.diagram.ece, drawn.band),
        **null_columns(prefix, drawn),
        f"{prefix}_rescaled_mean": finite(rescaled.band.ece_mean),
        f"{prefix}_rescaled_low": finite(rescaled.band.ece_low),
        f"{prefix}_rescaled_high": finite(rescaled.band.ece_high),
        **null_columns(f"{prefix}_rescaled", rescaled),
        f"{prefix}_singletons": one.clusters.singletons,
        f"{prefix}_clusters": int(sizes.size),
        f"{prefix}_cluster_size_least": int(sizes.min()) if sizes.size else None,
        f"{prefix}_cluster_size_median": float(np.median(sizes)) if sizes.size else None,
        f"{prefix}_cluster_size_most": int(sizes.max()) if sizes.size else None,
    }


def cluster_rows(one: Algorithm1Reading) -> list[TableRow]:
    """Return the columns of each bin that diagram rows lack: the second null, cluster sizes, singletons."""
    band, clusters = one.nulls.rescaled.band, one.clusters
    in_bin = np.bincount(clusters.bins, minlength=clusters.mass.size)
    return [
        {
            "rescaled_low": finite(band.low[b]),
            "rescaled_high": finite(band.high[b]),
            "cluster_sizes": " ".join(str(members.size) for members in groups),
            "singletons": int(in_bin[b] - sum(members.size for members in groups)),
        }
        for b, groups in enumerate(clusters.clusters)
    ]


# Do scores tell right answers from wrong ones? AUROC and accuracy-rejection, before and after.

Floats = NDArray[np.float64]
AUROC_TITLE = "AUROC of λmax and entropy, before and after"
REJECTION_TITLE = "Accuracy of the answers kept when the least certain are rejected"
CURVE_POINTS = 41  # a plot shows no more, however many prompts
ONE_CLASS = "All answers of the test file are {}: there is nothing to tell apart."


def scores(bench: Bench) -> Iterator[tuple[str, str, Floats]]:
    """Yield (map, score, values), higher = more certain."""
    for name, served in bench.served.items():
        yield name, "lambda_max", served.lambda_max
        yield name, "entropy", -served.entropy


def one_class(bench: Bench) -> str:
    """Return why nothing can be told apart, or nothing."""
    right = bench.test.labels.right
    return "" if right.any() and not right.all() else ONE_CLASS.format("right" if right.all() else "wrong")


def interval_of_auroc(values: Floats, bench: Bench) -> Auroc:
    """Return the AUROC of one score (n,), higher = more certain; equal resamples for every score."""
    random, again = bench.rng(Stream.AUROC), bench.resamples.auroc
    return bootstrap_auroc(values, bench.test.labels.right, random, num_resamples=again)


def auroc_row(values: Floats, bench: Bench) -> TableRow:
    """Return AUROC with its interval and the rejection area of one score (n,), higher = more certain."""
    right = bench.test.labels.right
    found = interval_of_auroc(values, bench)
    return {
        "auroc": finite(found.value),
        "low": finite(found.low),
        "high": finite(found.high),
        "standard_error": finite(found.standard_error),
        "rejection_area": finite(accuracy_rejection(values, right).area),
    }


def auroc_experiment(bench: Bench) -> Experiment:
    """Return the AUROC of both scores of every map, with bootstrap intervals over prompts."""
    if reason := one_class(bench):
        return not_run("auroc", AUROC_TITLE, reason)
    points: list[TableRow] = [
        {"map": name, "score": kind, **auroc_row(values, bench)} for name, kind, values in scores(bench)
    ]
    headline = {f"{p['map']}_{p['score']}": p["auroc"] for p in points}
    return ran("auroc", AUROC_TITLE, headline, points)


def rejection(bench: Bench) -> Experiment:
    """Return accuracy-rejection curves of both scores of every map, and their areas."""
    right = bench.test.labels.right
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(right.mean())}
    for name, kind, values in scores(bench):
        curve = accuracy_rejection(values, right)
        # Of few prompts several points are one.
        kept = np.unique(np.linspace(0, curve.rejected.size - 1, CURVE_POINTS).astype(int))
        points += [
            {
                "map": name,
                "score": kind,
                "rejected": float(curve.rejected[i]),
                "accuracy": float(curve.accuracy[i]),
            }
            for i in kept
        ]
        headline[f"{name}_{kind}_area"] = curve.area
    return ran("accuracy_rejection", REJECTION_TITLE, headline, points)


# What an evaluation comes to: four sentences on top, and whether the paper's claim holds on these files.

LEVEL = 0.05
WORDS = {
    "raw": "raw scores",
    "temperature": "the paper's map",
    "depolarized": "the depolarised map",
    "evidence": "the evidence map",
}
FEWEST_TO_RANK = 0.5  # AUROC of a score that knows nothing


def verdict(experiments: Sequence[Experiment]) -> list[str]:
    """Return sentences: is it a gain, is what is served calibrated, does it tell right from wrong.

    The last says how many answers to ask for; it is absent from results without that experiment. Each says
    what cannot be told, where an experiment did not run. By risk and by nulls, never by a bare ECE.
    """
    found = {one["name"]: one for one in experiments if one["ran"]}
    enough = [str(found["answers"]["headline"]["recommendation"])] if "answers" in found else []
    return [_gain(found), _calibrated(found), _ranking(found), *enough]


def _gain(found: Mapping[str, Experiment]) -> str:
    if "comparison" not in found:
        return "Whether the depolarised map is the better one was not tested."
    gap = _one(found["comparison"]["points"], second="depolarized", first="temperature", figure="test_risk")
    raw = _one(found["comparison"]["points"], second="depolarized", first="raw", figure="projection_brier")
    return (
        f"On the test file the depolarised map's risk is {_against(gap)} that of the paper's map "
        f"({_interval(gap)} nats), and its projection Brier score {_against(raw)} that of raw scores "
        f"({_interval(raw)}).{_gain_of_evidence(found)}"
    )


def _gain_of_evidence(found: Mapping[str, Experiment]) -> str:
    if not found.get("evidence_map"):
        return ""
    gap = _one(found["comparison"]["points"], second="evidence", first="depolarized", figure="test_risk")
    return f" The evidence map's risk is {_against(gap)} the depolarised map's ({_interval(gap)} nats)."


def _against(gap: TableRow) -> str:
    if not gap["real"]:
        return "not told apart from"
    return "below" if _number(gap["difference"]) < 0 else "above"


def _interval(gap: TableRow) -> str:
    difference, low, high = (_number(gap[key]) for key in ("difference", "low", "high"))
    return f"difference {difference:+.3f}, 95 % {low:+.3f} to {high:+.3f}"


def _calibrated(found: Mapping[str, Experiment]) -> str:
    if "projection_reliability" not in found:
        return "Whether the scores are calibrated was not tested."
    headline = found["projection_reliability"]["headline"]
    told = [f"{words} {_projection(headline, n)}" for n, words in WORDS.items() if f"{n}_ece" in headline]
    return f"By their projection ECE, beside what calibrated scores read on these prompts: {'; '.join(told)}."


def _projection(headline: TableRow, name: str) -> str:
    ece, low, high, p_value = (
        _number(headline[f"{name}_{key}"]) for key in ("ece", "band_low", "band_high", "p_value")
    )
    if p_value <= LEVEL:
        word = "are not calibrated" if name == "raw" else "is not calibrated"
    else:
        word = "shows no miscalibration"
    return f"{word} ({ece:.3f} against {low:.3f} to {high:.3f}, p = {p_value:.2g})"


def _ranking(found: Mapping[str, Experiment]) -> str:
    if "auroc" not in found:
        return "Whether the scores tell right answers from wrong ones cannot be said: all are of one kind."
    row = _one(found["auroc"]["points"], map="depolarized", score="lambda_max")
    value, low, high = (row[key] for key in ("auroc", "low", "high"))
    if not isinstance(value, float) or not isinstance(low, float) or not isinstance(high, float):
        return "Whether the scores tell right answers from wrong ones cannot be said from so few."
    does = "tells" if low > FEWEST_TO_RANK else "is not shown to tell"
    return (
        f"The depolarised map's lambda_max {does} right answers from wrong ones (AUROC {value:.3f}, 95 % "
        f"{low:.3f} to {high:.3f})."
    )


def claim(risk_at: float | None, ece_at: float | None, cal_s_at: float | None) -> str:
    """Return whether the paper's claim holds: calibration error, risk and ECE lowest at one temperature.

    Arguments: the temperature of the grid where each is lowest on the test file, None where unknown.
    """
    if risk_at is None or ece_at is None or cal_s_at is None:
        return "The paper's claim cannot be tested here: a measure is not known at any temperature."
    others = (("eigenvalue ECE", ece_at), ("Cal_S", cal_s_at))
    off = [f"the {name} at {at:.2g}" for name, at in others if at != risk_at]
    if not off:
        return (
            f"The paper's claim holds on these files: all three are lowest at T = {risk_at:.2g} of the grid."
        )
    return (
        f"The paper's claim fails on these files: the risk is lowest at T = {risk_at:.2g}, "
        f"{' and '.join(off)}. The temperature of the lowest ECE is not the one of the lowest risk."
        if ece_at != risk_at
        else f"The paper's claim holds for the ECE only: the risk is lowest at T = {risk_at:.2g}, {off[0]}."
    )


def _one(rows: Sequence[TableRow], **where: Value) -> TableRow:
    return next(row for row in rows if all(row[key] == value for key, value in where.items()))


def _number(value: Value) -> float:
    return float(value) if isinstance(value, float | int) else float("nan")


# Risk against temperature (the paper's map) and depolarisation g (ours), and what else is lowest there.

RISK_NAME, RISK_TITLE = "risk_and_entropy", "Risk and mean entropy against temperature"
TEMPERATURES = np.geomspace(0.05, 50.0, 61)  # from bound to bound of the fit
MASS_NAME, MASS_TITLE = "depolarized_map", "Depolarised map: risk against the depolarisation g"
# Short of the ends: at g = 0 a reference outside the span has infinite risk, g = 1 is no map.
MASSES = np.linspace(0.02, 0.98, 49)
CLAIM_NAME, CLAIM_TITLE = "co_minimised", "Cal_S, risk and eigenvalue ECE against temperature"
# Few: each has clusters of its own to find, and Cal_S over all prompts.
CLAIM_TEMPERATURES = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MEASURES = ("cal_s", "risk", "eigenvalue_ece")


def temperature(bench: Bench) -> Experiment:
    """Return both curves over a log grid of T, and the fit with its bootstrap interval."""
    dev, test, found = bench.dev.dev, bench.test.dev, bench.fits["temperature"]
    spread = bench.bootstraps["temperature"].temperature
    on_dev = _over_temperatures(dev, bench.eps)
    # Of one file alone both are the same: half the work of a report.
    on_test = on_dev if test is dev else _over_temperatures(test, bench.eps)
    points = [
        {
            "temperature": float(t),
            "dev_risk": of_dev[0],
            "dev_entropy": of_dev[1],
            "test_risk": of_test[0],
            "test_entropy": of_test[1],
        }
        for t, of_dev, of_test in zip(TEMPERATURES, on_dev, on_test, strict=True)
    ]
    headline: TableRow = {
        "temperature": found.map.temperature,
        "low": spread.low,
        "high": spread.high,
        "eps": bench.eps,
        "dev_risk": found.risk,
        "dev_entropy": found.mean_entropy,
        "test_risk": risk(found.map, test),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(RISK_NAME, RISK_TITLE, headline, points)


def _over_temperatures(dev: DevSet, eps: float) -> list[tuple[float, float]]:
    """Return risk and mean entropy at each temperature of the grid."""
    maps = [TemperatureMap(float(t), eps) for t in TEMPERATURES]
    return [(risk(m, dev), mean_entropy(m, dev)) for m in maps]


def depolarized(bench: Bench) -> Experiment:
    """Return the risk on both files over g, at the fitted temperature, and the fit with its intervals."""
    found, spread = bench.fits["depolarized"], bench.bootstraps["depolarized"]
    assert isinstance(found, DepolarizedFit)
    assert spread.depolarization is not None
    fitted = found.map
    maps = [DepolarizedMap(fitted.temperature, float(g)) for g in MASSES]
    points = [
        {
            "depolarization": m.depolarization,
            "dev_risk": risk(m, bench.dev.dev),
            "test_risk": risk(m, bench.test.dev),
        }
        for m in maps
    ]
    headline: TableRow = {
        "temperature": fitted.temperature,
        "temperature_low": spread.temperature.low,
        "temperature_high": spread.temperature.high,
        "depolarization": fitted.depolarization,
        "depolarization_low": spread.depolarization.low,
        "depolarization_high": spread.depolarization.high,
        "dev_risk": found.risk,
        "test_risk": risk(fitted, bench.test.dev),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(MASS_NAME, MASS_TITLE, headline, points)


def cominimised(bench: Bench) -> Experiment:
    """Return the three figures of the paper's map on test over temperatures, raw and min-max scaled."""
    cosines = bench.cosines
    if cosines is None:
        reason = f"Needs all pairs of prompts at once: at most {MAX_COSINES} test prompts."
        return not_run(CLAIM_NAME, CLAIM_TITLE, reason)
    # Of the unscaled matrices, and so the same at every temperature.
    labels = cluster_labels(cosines, NUM_CLUSTERS)
    found = np.array([_figures(bench, labels, cosines, float(t)) for t in CLAIM_TEMPERATURES])
    scaled = [_scaled(column) for column in found.T]
    points: list[TableRow] = []
    for i, t in enumerate(CLAIM_TEMPERATURES):
        values = {name: finite(found[i, j]) for j, name in enumerate(MEASURES)}
        unit = {f"{name}_scaled": finite(scaled[j][i]) for j, name in enumerate(MEASURES)}
        points.append({"temperature": float(t), **values, **unit})
    lowest: TableRow = {f"{m}_lowest_at": _lowest_at(found[:, j]) for j, m in enumerate(MEASURES)}
    fitted = bench.fits["temperature"].map.temperature
    cal_s_at, risk_at, ece_at = (_lowest_at(column) for column in found.T)
    headline = {**lowest, "fitted_temperature": fitted, **_by_map(bench, labels)}
    made = ran(CLAIM_NAME, CLAIM_TITLE, {**headline, "claim": claim(risk_at, ece_at, cal_s_at)}, points)
    return unless_empty(made, NO_CLUSTERS, "cal_s", "eigenvalue_ece")


def _figures(
    bench: Bench, labels: NDArray[np.intp], cosines: Floats, temperature: float
) -> tuple[float, float, float]:
    test, map_ = bench.test, TemperatureMap(temperature, bench.eps)
    same = [map_] * len(test)
    clusters = cluster_prompts(test.stack, serve("", map_, test).lambda_max, cosines=cosines)
    ece = algorithm1(clusters, test.targets).ece
    return _cal_s(bench, labels, same), risk(map_, test.dev), ece


def _cal_s(bench: Bench, labels: NDArray[np.intp], maps: Sequence[CalibrationMap]) -> float:
    test = bench.test
    pairs = zip(maps, test.spectra, strict=True)
    fitted = [map_.fitted(one.eigenvalues, one.dimension) for map_, one in pairs]
    return calibration_error(labels, test.stack, test.spectra, fitted, test.targets)


def _by_map(bench: Bench, labels: NDArray[np.intp]) -> TableRow:
    return {f"{name}_cal_s": _cal_s(bench, labels, bench.maps_of(name)) for name in bench.names}


def _lowest_at(values: Floats) -> float | None:
    """Return the temperature of the least value; None where no value is known (clusters of one prompt)."""
    return float(CLAIM_TEMPERATURES[np.nanargmin(values)]) if np.isfinite(values).any() else None


def _scaled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    # Times the values: what is unknown stays NaN, in a flat column, too.
    return np.asarray((values - known.min()) / span if span > 0 else np.zeros_like(values) * values)


# Checks of what all else rests on: lambda_max settles as answers are added, the risk is lowest at T = 1.

CONVERGENCE_NAME, CONVERGENCE_TITLE = (
    "estimator_convergence",
    "Estimator convergence: λmax by number of answers",
)
# A mean over 500 prompts is known to a percent; thousands of them would take minutes.
MOST_PROMPTS = 500
CONSTANT_NAME, CONSTANT_TITLE = "constant_predictor", "Constant predictor: the check of the risk"
# Even about 1 on the log scale, and 1 is one of them: there the risk has to be lowest.
CONSTANT_TEMPERATURES = np.geomspace(0.2, 5.0, 41)


def convergence(bench: Bench) -> Experiment:
    """Return mean and deviation of the raw lambda_max over random subsets of the answers in the files."""
    deep = bench.deep
    parts = [overlaps(deep.answers[i]) for i in deep.full[:MOST_PROMPTS]]
    pairs = [p.cosines for p in parts], [p.index for p in parts]
    found = lambda_max_by_size(*pairs, bench.rng(Stream.SUBSETS), step=_step(deep.num_samples))
    columns = zip(found.sizes, found.mean, found.std, strict=True)
    points = [
        {"num_samples": int(m), "mean": float(mean), "deviation": float(std)} for m, mean, std in columns
    ]
    headline: TableRow = {
        "prompts": len(parts),
        "from_num_samples": int(found.sizes[0]),
        "to_num_samples": int(found.sizes[-1]),
        "mean_at_first": float(found.mean[0]),
        "mean_at_last": float(found.mean[-1]),
        "last_step": float(found.mean[-1] - found.mean[-2]) if found.sizes.size > 1 else None,
    }
    return ran(CONVERGENCE_NAME, CONVERGENCE_TITLE, headline, points)


def _step(num_samples: int) -> int:
    """Return by how many answers to go on: eight steps at most, in fives; each number below ten answers."""
    return 5 * -(-num_samples // 40) if num_samples >= 10 else 1


def constant(bench: Bench) -> Experiment:
    """Return risk and entropy of the mean reference over temperatures, and where the risk is lowest."""
    test = bench.test
    predictor = constant_predictor(test.targets, test.material.dimension)
    best, interval = best_temperature(
        predictor, bench.rng(Stream.CONSTANT), resamples=bench.resamples.bootstrap, eps=bench.eps
    )
    dev = predictor.dev_set()
    maps = [TemperatureMap(float(t), bench.eps) for t in CONSTANT_TEMPERATURES]
    points = [
        {"temperature": m.temperature, "risk": risk(m, dev), "entropy": mean_entropy(m, dev)} for m in maps
    ]
    headline: TableRow = {
        "best_temperature": best,
        "low": interval.low,
        "high": interval.high,
        "one_within": interval.low <= 1.0 <= interval.high,
        "rank": int(predictor.eigenvalues.size),
        "risk_at_one": risk(TemperatureMap(1.0, bench.eps), dev),
    }
    return ran(CONSTANT_NAME, CONSTANT_TITLE, headline, points)


# How many answers to ask for: the fewest within one standard error of the best (decisions/0025).

MEASURE = "log loss of P(correct)"


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way to serve: losses (n,) in nats by prompt with so many answers, and what they cost.

    map: "evidence" uses log-probabilities, others do not. tokens: per question, None where not known.
    """

    num_samples: int
    map: str
    losses: Floats
    tokens: float | None = None

    @property
    def loss(self) -> float:
        """The mean loss in nats; lower = better."""
        return float(self.losses.mean())

    @property
    def words(self) -> str:
        """Number and map in words."""
        how = {"evidence": " with evidence", "depolarized": " without evidence"}
        answers = "answer" if self.num_samples == 1 else "answers"
        return f"{self.num_samples} {answers}{how.get(self.map, f' by the {self.map} map')}"


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference in nats, paired by prompt, and its standard error."""

    value: float
    standard_error: float

    @property
    def within(self) -> bool:
        """Whether it is one standard error at most."""
        return self.value <= self.standard_error

    def __str__(self) -> str:
        return f"difference {self.value:+.4f}, standard error {self.standard_error:.4f}"


@dataclass(frozen=True, slots=True, eq=False)
class Recommendation:
    """A sentence, and what it names; None where nothing can be recommended. best: of the least mean loss."""

    sentence: str
    chosen: Candidate | None = None
    best: Candidate | None = None
    gap: Gap | None = None


def gap(losses: Floats, best: Floats) -> Gap:
    """Return the mean of losses - best (n,) with its standard error, of at least two prompts."""
    by_prompt = losses - best
    return Gap(float(by_prompt.mean()), float(by_prompt.std(ddof=1) / np.sqrt(by_prompt.size)))


def recommend(candidates: Sequence[Candidate], base: Floats | None = None) -> Recommendation:
    """Return the fewest answers whose mean loss is within one standard error of the least, paired by prompt.

    Losses: of P(correct). Among candidates with equally few answers, the one of the lower loss. base: losses
    (n,) of what needs no answers at all; where they are within one standard error, too, these prompts cannot
    tell numbers of answers apart, and nothing is recommended.
    """
    if len({one.num_samples for one in candidates}) < 2:
        return nothing("there are not two numbers of answers to compare")
    best = min(candidates, key=lambda one: (one.loss, one.num_samples))
    if base is not None and (to_base := gap(base, best.losses)).within:
        return nothing(
            f"the {MEASURE} of the best, {best.words} ({best.loss:.3f}), is within one "
            f"standard error of what the mere share of right answers gives ({to_base})",
            best,
        )
    close = [one for one in candidates if gap(one.losses, best.losses).within]
    chosen = min(close, key=lambda one: (one.num_samples, one.loss))
    found = gap(chosen.losses, best.losses)
    return Recommendation(_sentence(candidates, chosen, best), chosen, best, found)


def nothing(reason: str, best: Candidate | None = None) -> Recommendation:
    """Return that no number of answers is recommended, and why: a clause without a full stop."""
    return Recommendation(f"No number of answers can be recommended: {reason}.", best=best)


def _sentence(candidates: Sequence[Candidate], chosen: Candidate, best: Candidate) -> str:
    one = chosen.num_samples == 1
    full = max(candidates, key=lambda one: (one.num_samples, -one.loss))
    if chosen.num_samples < best.num_samples:
        told = (
            f"{chosen.words} {'is' if one else 'are'} within one standard error of the best, {best.words}: "
            f"{MEASURE} {chosen.loss:.3f} against {best.loss:.3f} "
            f"({gap(chosen.losses, best.losses)})"
        )
    else:
        told = (
            f"{best.words} {'has' if one else 'have'} the lowest {MEASURE}, {best.loss:.3f}"
            f"{_no_fewer(candidates, best)}{_more(full, best)}"
        )
    return f"{told}{_tokens(chosen, full)}."


def _no_fewer(candidates: Sequence[Candidate], best: Candidate) -> str:
    fewer = [one for one in candidates if one.num_samples < best.num_samples]
    if not fewer:
        return ""
    closest = min(fewer, key=lambda one: one.loss)
    told = gap(closest.losses, best.losses)
    return f", and no fewer are within one standard error of it (nearest: {closest.words}, {told})"


def _more(full: Candidate, best: Candidate) -> str:
    if full.num_samples == best.num_samples:
        return ""
    return f"; {full.words}: {full.loss:.3f} ({gap(full.losses, best.losses)})"


def _tokens(chosen: Candidate, full: Candidate) -> str:
    if chosen.tokens is None or full.tokens is None:
        return "; tokens per question are not known"
    if chosen.num_samples == full.num_samples:
        return f"; {chosen.tokens:.0f} tokens per question"
    return f"; {chosen.tokens:.0f} tokens per question instead of {full.tokens:.0f}"


# What an answer more is worth: every map, and P(correct), by number of answers; and how many to ask for.

ANSWERS_NAME, ANSWERS_TITLE = "answers", "What an answer more is worth"
SIZE_FIGURES = ("loss", "brier", "auroc")
CORRECT, SERVED = "probability_correct", "lambda_max"
NEEDED = (
    f"They are compared by P(correct), and for that a file should have at least {NEEDED_OF_A_KIND} right "
    f"answers and {NEEDED_OF_A_KIND} wrong ones"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """One score with so many answers: what its means are of, (n,) each, and how it orders the prompts."""

    score: str
    map: str
    losses: Floats
    squares: Floats
    values: Floats
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Figure:
    """A figure, and its value in each resample (B,)."""

    value: float
    drawn: Floats

    def __sub__(self, other: "_Figure") -> "_Figure":
        # On the same resamples: that is what pairs them.
        return _Figure(self.value - other.value, self.drawn - other.drawn)


_UNKNOWN = _Figure(np.nan, np.empty(0))


def answers(bench: Bench) -> Experiment:
    """Return a row per number of answers and score, and the fewest answers that are enough.

    Scores: lambda_max of every map (loss: matrix log risk; Brier: the projection's), and P(correct) with
    evidence and without (log loss and Brier of the verdicts). Each figure has its 95 % interval, and its gap
    to the same score with all m answers, on the same resamples of the prompts: fits stay as they are.
    """
    found = [bench.first_answers(m) for m in sizes(bench.test.material.num_samples)]
    resamples = ResampleCounts.of(len(bench.test), bench.rng(Stream.ANSWERS), bench.resamples.answers)
    full = {(one.score, one.map): _size_figures(one, resamples) for one in _scored(found[-1])}
    points = [
        _named(at, one)
        | _size_columns(
            _size_figures(one, resamples), full.get((one.score, one.map)) if at is not found[-1] else None
        )
        for at in found
        for one in _scored(at)
    ]
    return ran(ANSWERS_NAME, ANSWERS_TITLE, _headline(found), points)


def _named(at: AtSize, one: _Scored) -> TableRow:
    return {"num_samples": at.num_samples, "score": one.score, "map": one.map, "tokens": at.tokens}


def _scored(at: AtSize) -> Iterator[_Scored]:
    for name, p in at.correct.items():
        # Base rates of folds order by the lack of right answers in each: below 0.5, and nobody's score.
        values = np.zeros_like(p) if p is at.base else p
        yield _Scored(CORRECT, name, log_losses(p, at.right), np.square(p - at.right), values, at.right)
    for name, one in at.served.items():
        yield _Scored(SERVED, name, one.risks, np.square(one.gaps), one.lambda_max, at.right)


def _size_figures(one: _Scored, resamples: ResampleCounts) -> dict[str, _Figure]:
    losses, squares = one.losses, one.squares
    return {
        "loss": _Figure(float(losses.mean()), resamples.means(losses)),
        "brier": _Figure(float(squares.mean()), resamples.means(squares)),
        "auroc": _Figure(auroc(one.values, one.right), resampled_aurocs(resamples, one.values, one.right)),
    }


def _size_columns(found: Mapping[str, _Figure], full: Mapping[str, _Figure] | None) -> TableRow:
    row: TableRow = {}
    for name in SIZE_FIGURES:
        gap = _UNKNOWN if full is None else found[name] - full[name]
        row |= _with_interval(name, found[name]) | _with_interval(f"{name}_gap", gap)
    return row


def _with_interval(name: str, found: _Figure) -> TableRow:
    spread = percentile_interval(found.drawn)
    return {name: finite(found.value), f"{name}_low": finite(spread.low), f"{name}_high": finite(spread.high)}


def _headline(found: Sequence[AtSize]) -> TableRow:
    told = recommended(found)
    chosen, best, gap = told.chosen, told.best, told.gap
    return {
        "recommended": chosen.num_samples if chosen else None,
        "recommended_map": chosen.map if chosen else None,
        # Without P(correct) the risk is drawn, by which nothing is recommended.
        "recommended_by": SERVED if _lacking(found) else CORRECT,
        "recommended_loss": chosen.loss if chosen else None,
        "best": best.num_samples if best else None,
        "best_map": best.map if best else None,
        "best_loss": best.loss if best else None,
        "difference": gap.value if gap else None,
        "standard_error": gap.standard_error if gap else None,
        "tokens": chosen.tokens if chosen else None,
        "tokens_of_all": found[-1].tokens,
        "recommendation": told.sentence,
    }


def _lacking(found: Sequence[AtSize]) -> str:
    """Return which verdicts P(correct) lacks at some number of answers; "" for none."""
    return next((one.why_none for one in found if one.why_none), "")


def recommended(found: Sequence[AtSize]) -> Recommendation:
    """Return how many answers to ask for, by the log loss of P(correct); where there is none, why not.

    Never by risk, which falls with every answer (they span more of what a reference may be): that would name
    all of them, whatever they are worth.
    """
    if why := _lacking(found):
        return nothing(f"{why}. {NEEDED}")
    candidates = [
        Candidate(at.num_samples, name, log_losses(p, at.right), at.tokens)
        for at in found
        for name, p in at.correct.items()
    ]
    return recommend(candidates, log_losses(found[-1].base, found[-1].right))


# All figures of a map in a row: the maps of a study side by side, and those of several embedding models.

EMBEDDERS_NAME, EMBEDDERS_TITLE = "embedders", "Embedding models side by side"


def side_by_side(bench: Bench) -> list[ServedRow]:
    """Return a row per map, raw first: every figure with its null or its interval."""
    return [_row(bench, name) for name in bench.served]


def _row(bench: Bench, name: str) -> ServedRow:
    served, projection, paper = bench.served[name], bench.projection[name], bench.algorithm1(name)
    return {
        "map": name,
        "risk": float(served.risks.mean()),
        "projection_ece": projection.diagram.ece,
        "projection_brier": projection.brier,
        "algorithm1_ece": finite(paper.diagram.ece),
        "algorithm1_band": _band(paper.nulls.drawn.band),
        "auroc_lambda_max": _auroc(served.lambda_max, bench),
        "auroc_entropy": _auroc(-served.entropy, bench),
        "rejection_area": finite(accuracy_rejection(served.lambda_max, bench.test.labels.right).area),
        "mean_lambda_max": float(served.lambda_max.mean()),
        "mean_entropy": float(served.entropy.mean()),
        "projection_null": _null(projection.null),
        "algorithm1_drawn": _null(paper.nulls.drawn),
        "algorithm1_rescaled": _null(paper.nulls.rescaled),
        "cluster_sizes": paper.clusters.cluster_sizes.tolist(),
        "singletons": paper.clusters.singletons,
    }


def embedders(benches: Mapping[str, Bench]) -> Experiment:
    """Return the main figures by embedder and map; not run for one embedder alone."""
    if len(benches) < 2:
        return not_run(EMBEDDERS_NAME, EMBEDDERS_TITLE, "Only one embedder was given; give --embedder twice.")
    points: list[TableRow] = [
        {"embedder": name, "map": row["map"], **_parameters(bench, row["map"]), **_columns(row)}
        for name, bench in benches.items()
        for row in side_by_side(bench)
    ]
    headline = {f"{p['embedder']}: {p['map']} projection ECE": p["projection_ece"] for p in points}
    return ran(EMBEDDERS_NAME, EMBEDDERS_TITLE, headline, points)


def _parameters(bench: Bench, name: str) -> TableRow:
    map_ = bench.evidence.fit.map if name == "evidence" and bench.evidence else bench.maps[name]
    with_temperature = DepolarizedMap | TemperatureMap | EvidenceMap
    return {
        "temperature": map_.temperature if isinstance(map_, with_temperature) else None,
        "depolarization": map_.depolarization if isinstance(map_, DepolarizedMap) else None,
        "intercept": map_.intercept if isinstance(map_, EvidenceMap) else None,
        "slope": map_.slope if isinstance(map_, EvidenceMap) else None,
    }


def _columns(row: ServedRow) -> TableRow:
    projection, drawn, rescaled = (
        row["projection_null"],
        row["algorithm1_drawn"],
        row["algorithm1_rescaled"],
    )
    auroc = row["auroc_lambda_max"]
    return {
        "test_risk": row["risk"],
        "projection_ece": row["projection_ece"],
        "projection_band_low": projection["low"],
        "projection_band_high": projection["high"],
        "projection_p_value": projection["p_value"],
        "projection_brier": row["projection_brier"],
        "algorithm1_ece": row["algorithm1_ece"],
        "algorithm1_band_low": drawn["low"],
        "algorithm1_band_high": drawn["high"],
        "algorithm1_rescaled_low": rescaled["low"],
        "algorithm1_rescaled_high": rescaled["high"],
        "mean_lambda_max": row["mean_lambda_max"],
        "auroc": auroc["value"],
        "auroc_low": auroc["low"],
        "auroc_high": auroc["high"],
    }


def _auroc(scores: Floats, bench: Bench) -> Estimate:
    found = interval_of_auroc(scores, bench)
    return estimate(found.value, found.low, found.high)


def _band(band: ConsistencyBand) -> Band:
    return {"mean": finite(band.ece_mean), "low": finite(band.ece_low), "high": finite(band.ece_high)}


def _null(null: Null) -> NullPart:
    return {**_band(null.band), "p_value": finite(null.p_value), "draws": null.band.num_draws}


# Is the gain real? Differences between maps on the same prompts, by a paired bootstrap.

Ints = NDArray[np.intp]
COMPARISON_NAME, COMPARISON_TITLE = "comparison", "Differences between maps, paired by prompt"


def comparison(bench: Bench) -> Experiment:
    """Return each pair's difference (second minus first) in every figure, with 95 % intervals."""
    points: list[TableRow] = []
    figures = [name for name in COMPARED_FIGURES if not (name == "auroc_lambda_max" and one_class(bench))]
    for first, second in combinations(bench.served, 2):
        for figure in figures:
            found = difference(bench, figure, second, first)
            points.append({"second": second, "first": first, "figure": figure, **_compared_columns(found)})
    headline = {
        f"{p['second']}_minus_{p['first']}_{p['figure']}": p["difference"]
        for p in points
        if p["figure"] == "cv_risk"
    }
    return ran(COMPARISON_NAME, COMPARISON_TITLE, headline, points)


def difference(bench: Bench, figure: str, second: str, first: str) -> Difference:
    """Return a figure (a key of FIGURES) of the second map minus that of the first."""
    return COMPARED_FIGURES[figure](bench, second, first)


def _of_means(values: Callable[[Bench, str], Floats]) -> Callable[[Bench, str, str], Difference]:
    """Return the difference of two means; values: (n,) of a map, one per prompt."""

    def found(bench: Bench, second: str, first: str) -> Difference:
        # The stream begins anew for each pair: all differences are over the same resamples.
        pair, again = (values(bench, second), values(bench, first)), bench.resamples.difference
        return mean_difference(*pair, bench.rng(Stream.DIFFERENCES), resamples=again)

    return found


def _of_figures(value: Callable[[Bench, str, Ints], float]) -> Callable[[Bench, str, str], Difference]:
    """Return the difference of two figures that are no means; value: of a map on the prompts picked."""

    def found(bench: Bench, second: str, first: str) -> Difference:
        def both(pick: Ints) -> tuple[float, float]:
            return value(bench, second, pick), value(bench, first, pick)

        random, again = bench.rng(Stream.DIFFERENCES), bench.resamples.figure_difference
        return figure_difference(both, len(bench.test), random, resamples=again)

    return found


def _brier(bench: Bench, name: str) -> Floats:
    """Return (lambda_max - u_1^T Y u_1)^2 (n,), whose mean is the projection Brier score."""
    return np.square(bench.served[name].lambda_max - bench.test.c1)


def _ece(bench: Bench, name: str, pick: Ints) -> float:
    return projection_reliability(bench.served[name].lambda_max[pick], bench.test.c1[pick]).ece


def _compared_auroc(bench: Bench, name: str, pick: Ints) -> float:
    return auroc(bench.served[name].lambda_max[pick], bench.test.labels.right[pick])


COMPARED_FIGURES: dict[str, Callable[[Bench, str, str], Difference]] = {
    "cv_risk": _of_means(lambda bench, name: bench.held_out.risks[name]),
    "test_risk": _of_means(lambda bench, name: bench.served[name].risks),
    "projection_brier": _of_means(_brier),
    "projection_ece": _of_figures(_ece),
    "auroc_lambda_max": _of_figures(_compared_auroc),
}


def _compared_columns(found: Difference) -> TableRow:
    return {
        "difference": finite(found.value),
        "low": finite(found.low),
        "high": finite(found.high),
        "real": found.real,
    }
