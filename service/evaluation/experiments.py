"""The paper's experiments, and ours, on a dev and a test file: each in the shape of the results.

Every experiment takes a context: maps fitted on dev and judged on test.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from service.calibration.fitting import Stream, why_no_evidence
from service.evaluation.baselines import (
    auroc_row,
    one_class,
    scores,
)
from service.evaluation.results import (
    Experiment,
    TableRow,
    not_run,
    ran,
    unless_empty,
)
from service.report.diagnostics import (
    GRID,
    MAX_COSINES,
    NAIVE,
    STANDARD,
    Algorithm1Diagnostic,
    EvaluationContext,
    Setting,
    brier_difference,
    mean_differences,
    risk_difference,
    served,
)
from service.report.first_answers import answers_part, recommended, sizes
from service.report.model import finite
from service.report.report import TEMPERATURES, over_temperatures, rejection, samples, served_rows
from service.spectral.algorithm1 import algorithm1, cluster_labels, cluster_prompts
from service.spectral.constant import best_temperature, constant_predictor
from service.spectral.correctness import accuracy_rejection, auroc
from service.spectral.density import calibration_error
from service.spectral.dev_set import mean_entropy, risk
from service.spectral.maps import CalibrationMap, DepolarizedMap, TemperatureMap
from service.spectral.reliability import ConsistencyBand, Null, ReliabilityDiagram, projection_reliability
from service.spectral.resampling import Difference, Interval, ResampleCounts, figure_difference

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

NO_CLUSTERS = "No cluster has two members: too few test prompts, or too few whose answers are alike."
# Short of the ends: at g = 0 a reference outside the span has infinite risk, g = 1 is no map.
MASSES = np.linspace(0.02, 0.98, 49)
# Few: each has clusters of its own to find, and Cal_S over all prompts.
CLAIM_TEMPERATURES = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MEASURES = ("cal_s", "risk", "eigenvalue_ece")
# Even about 1 on the log scale, and 1 is one of them: there the risk has to be lowest.
CONSTANT_TEMPERATURES = np.geomspace(0.2, 5.0, 41)
MASS_BINS = 8  # of missing mass, of equal size, as the reliability diagrams have


def convergence(context: EvaluationContext) -> Experiment:
    """Return mean and deviation of the raw lambda_max over random subsets of the answers in the files."""
    points = samples(context)
    first, last = points[0], points[-1]
    headline: TableRow = {
        "from_num_samples": first["num_samples"],
        "to_num_samples": last["num_samples"],
        "mean_at_first": first["mean"],
        "mean_at_last": last["mean"],
    }
    title = "Estimator convergence: λmax by number of answers"
    return ran("estimator_convergence", title, headline, points)


def constant(context: EvaluationContext) -> Experiment:
    """Return risk and entropy of the mean reference over temperatures, and where the risk is lowest."""
    test, again = context.test, context.resamples.bootstrap
    predictor = constant_predictor(test.targets, test.material.dimension)
    random = context.rng(Stream.CONSTANT)
    best, interval = best_temperature(predictor, random, resamples=again, eps=context.eps)
    dev = predictor.dev_set()
    maps = [TemperatureMap(float(t), context.eps) for t in CONSTANT_TEMPERATURES]
    points = [
        {"temperature": m.temperature, "risk": risk(m, dev), "entropy": mean_entropy(m, dev)} for m in maps
    ]
    headline: TableRow = {
        "best_temperature": best,
        "low": interval.low,
        "high": interval.high,
        "one_within": interval.low <= 1.0 <= interval.high,
        "risk_at_one": risk(TemperatureMap(1.0, context.eps), dev),
    }
    return ran("constant_predictor", "Constant predictor: the check of the risk", headline, points)


def temperature(context: EvaluationContext) -> Experiment:
    """Return risk and entropy over a log grid of T on both files, and the fit with its bootstrap interval."""
    fit, spread = context.fits["temperature"], context.bootstraps["temperature"].temperature
    both = [over_temperatures(split.dev, context.eps) for split in (context.dev, context.test)]
    points = [
        {
            "temperature": float(t),
            "dev_risk": of_dev[0],
            "dev_entropy": of_dev[1],
            "test_risk": of_test[0],
            "test_entropy": of_test[1],
        }
        for t, of_dev, of_test in zip(TEMPERATURES, *both, strict=True)
    ]
    headline: TableRow = {
        "temperature": fit.map.temperature,
        "low": spread.low,
        "high": spread.high,
        "eps": context.eps,
        "dev_risk": fit.risk,
        "dev_entropy": fit.mean_entropy,
        "test_risk": risk(fit.map, context.test.dev),
        "at_bound": ", ".join(fit.at_bound),
    }
    return ran("risk_and_entropy", "Risk and mean entropy against temperature", headline, points)


def _estimate(name: str, value: float, spread: Interval) -> TableRow:
    return {name: value, f"{name}_low": spread.low, f"{name}_high": spread.high}


def depolarized(context: EvaluationContext) -> Experiment:
    """Return the risk on both files over g, at the fitted temperature, and the fit with its intervals."""
    fit, spread = context.fits["depolarized"], context.bootstraps["depolarized"]
    assert isinstance(fit.map, DepolarizedMap)
    assert spread.depolarization is not None
    dev, test = context.dev.dev, context.test.dev
    maps = [DepolarizedMap(fit.map.temperature, float(g)) for g in MASSES]
    points = [
        {"depolarization": m.depolarization, "dev_risk": risk(m, dev), "test_risk": risk(m, test)}
        for m in maps
    ]
    headline = {
        **_estimate("temperature", fit.map.temperature, spread.temperature),
        **_estimate("depolarization", fit.map.depolarization, spread.depolarization),
        "dev_risk": fit.risk,
        "test_risk": risk(fit.map, test),
        "at_bound": ", ".join(fit.at_bound),
    }
    title = "Depolarized map: risk against the depolarization g"
    return ran("depolarized_map", title, headline, points)


def evidence_map(context: EvaluationContext) -> Experiment:
    """Return T, a and b with their intervals, and the test risk with and without evidence by missing mass.

    Not run, with the reason, where a prompt of either file lacks log-probabilities.
    """
    name, title = "evidence_map", "Evidence map: risk by missing mass"
    evidence, missing = context.evidence, context.test.missing_mass
    if evidence is None or missing is None:
        files = (("dev", context.dev), ("test", context.test))
        reasons = [(split, why_no_evidence(one.material)) for split, one in files]
        return not_run(name, title, " ".join(f"Of the {split} file, {why}" for split, why in reasons if why))
    with_it, without = context.served["evidence"].risks, context.served["depolarized"].risks
    map_, spread = evidence.fit.map, evidence.bootstrap
    g = map_.depolarizations(missing)
    points: list[TableRow] = [
        {
            "missing_mass": float(missing[rows].mean()),
            "count": int(rows.size),
            "depolarization": float(g[rows].mean()),
            "test_risk_evidence": float(with_it[rows].mean()),
            "test_risk_depolarized": float(without[rows].mean()),
        }
        # Stable: prompts of one missing mass (it is clipped) keep their order on every machine.
        for rows in np.array_split(np.argsort(missing, kind="stable"), min(MASS_BINS, missing.size))
    ]
    headline = {
        **_estimate("temperature", map_.temperature, spread.temperature),
        **_estimate("intercept", map_.intercept, spread.intercept),
        **_estimate("slope", map_.slope, spread.slope),
        "dev_risk": evidence.fit.risk,
        "cv_risk": float(evidence.risks["evidence"].mean()),
        "cv_risk_depolarized": float(context.held_out.risks["depolarized"].mean()),
        "test_risk": float(with_it.mean()),
        "at_bound": ", ".join(evidence.fit.at_bound),
    }
    return ran(name, title, headline, points)


def projection(context: EvaluationContext) -> Experiment:
    """Return the projection diagram (ours) with its residual null: bands, and a p-value of the ECE."""
    points: list[TableRow] = []
    headline: TableRow = {}
    for name, one in context.projection.items():
        points += _diagram_rows(name, one.diagram, len(context.test), one.null.band)
        headline |= _ece_columns(name, one.diagram.ece, one.null.band) | _null_columns(name, one.null)
        headline[f"{name}_brier"] = one.brier
    return ran("projection_reliability", "Projection reliability with its null", headline, points)


def naive(context: EvaluationContext) -> Experiment:
    """Return Algorithm 1 with one cluster per bin."""
    return _algorithm1("naive_diagram", "Naive reliability diagram, before and after", context, NAIVE)


def algorithm1_diagram(context: EvaluationContext) -> Experiment:
    """Return the paper's diagram, B = 8 and C = 5, with both of its nulls."""
    title = "Algorithm 1 reliability diagram, before and after"
    return _algorithm1("algorithm1_diagram", title, context, STANDARD)


def _algorithm1(name: str, title: str, context: EvaluationContext, setting: Setting) -> Experiment:
    points: list[TableRow] = []
    headline: TableRow = {"bins": setting[0], "clusters": setting[1]}
    for map_name in context.served:
        one = context.algorithm1(map_name, setting)
        rows = _diagram_rows(map_name, one.diagram, len(context.test), one.nulls.drawn.band)
        points += [{**row, **more} for row, more in zip(rows, _cluster_rows(one), strict=True)]
        headline |= _algorithm1_columns(map_name, one)
    return unless_empty(ran(name, title, headline, points), NO_CLUSTERS, "observed")


def correctness(context: EvaluationContext) -> Experiment:
    """Return lambda_max against the share of right answers."""
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(context.test.labels.right.mean())}
    for name, one in context.correctness.items():
        points += _diagram_rows(name, one.diagram, len(context.test), one.band)
        headline |= _ece_columns(name, one.diagram.ece, one.band)
    return ran("correctness_diagram", "Correctness diagram, before and after", headline, points)


def _diagram_rows(name: str, diagram: ReliabilityDiagram, size: int, band: ConsistencyBand) -> list[TableRow]:
    """Return the bins of a diagram as rows, bins without a target included."""
    return [
        {
            "map": name,
            "lower": float(diagram.edges[b]),
            "upper": float(diagram.edges[b + 1]),
            "count": round(float(diagram.mass[b]) * size),
            "predicted": finite(diagram.mean_predicted[b]),
            "observed": finite(diagram.mean_target[b]),
            "band_low": finite(band.low[b]),
            "band_high": finite(band.high[b]),
        }
        for b in range(diagram.mass.size)
    ]


def _ece_columns(prefix: str, ece: float, band: ConsistencyBand) -> TableRow:
    """Return an ECE and its band under perfect calibration as columns."""
    return {
        f"{prefix}_ece": finite(ece),
        f"{prefix}_band_mean": finite(band.ece_mean),
        f"{prefix}_band_low": finite(band.ece_low),
        f"{prefix}_band_high": finite(band.ece_high),
    }


def _null_columns(prefix: str, null: Null) -> TableRow:
    """Return the p-value and the number of draws of a null as columns; its band is in other columns."""
    return {f"{prefix}_p_value": finite(null.p_value), f"{prefix}_draws": null.band.num_draws}


def _algorithm1_columns(prefix: str, one: Algorithm1Diagnostic) -> TableRow:
    """Return Algorithm 1 as columns: ECE, both nulls, clusters used and their sizes, prompts left alone.

    `_band_*`, `_p_value`: references drawn as eigenvectors. `_rescaled_*`: real references, rescaled.
    """
    drawn, rescaled, sizes = one.nulls.drawn, one.nulls.rescaled, one.clusters.cluster_sizes
    return {
        **_ece_columns(prefix, one.diagram.ece, drawn.band),
        **_null_columns(prefix, drawn),
        f"{prefix}_rescaled_mean": finite(rescaled.band.ece_mean),
        f"{prefix}_rescaled_low": finite(rescaled.band.ece_low),
        f"{prefix}_rescaled_high": finite(rescaled.band.ece_high),
        **_null_columns(f"{prefix}_rescaled", rescaled),
        f"{prefix}_singletons": one.clusters.singletons,
        f"{prefix}_clusters": int(sizes.size),
        f"{prefix}_cluster_size_least": int(sizes.min()) if sizes.size else None,
        f"{prefix}_cluster_size_median": float(np.median(sizes)) if sizes.size else None,
        f"{prefix}_cluster_size_most": int(sizes.max()) if sizes.size else None,
    }


def _cluster_rows(one: Algorithm1Diagnostic) -> list[TableRow]:
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


def sensitivity(context: EvaluationContext) -> Experiment:
    """Return the eigenvalue ECE and the bands of both nulls for every map and setting."""
    points: list[TableRow] = []
    for name in context.served:
        for bins, clusters in GRID:
            one = context.algorithm1(name, (bins, clusters))
            drawn, rescaled = one.nulls.drawn.band, one.nulls.rescaled.band
            points.append(
                {
                    "map": name,
                    "bins": bins,
                    "clusters": clusters,
                    "ece": finite(one.diagram.ece),
                    "band_mean": finite(drawn.ece_mean),
                    "band_low": finite(drawn.ece_low),
                    "band_high": finite(drawn.ece_high),
                    "rescaled_low": finite(rescaled.ece_low),
                    "rescaled_high": finite(rescaled.ece_high),
                }
            )
    return unless_empty(
        ran("sensitivity", "Sensitivity of Algorithm 1 to bins B and clusters C", _ranges(points), points),
        NO_CLUSTERS,
        "ece",
    )


def _ranges(points: list[TableRow]) -> TableRow:
    headline: TableRow = {}
    for name in dict.fromkeys(str(p["map"]) for p in points):
        eces = [e for p in points if p["map"] == name and isinstance(e := p["ece"], float)]
        headline[f"{name}_least"] = min(eces, default=None)
        headline[f"{name}_most"] = max(eces, default=None)
    return headline


def similarity(context: EvaluationContext) -> Experiment:
    """Return mean Frobenius cosines of pairs, bin by bin, for B = 8 and C = 5."""
    points: list[TableRow] = []
    headline: TableRow = {"all_pairs": _all_pairs(context)}
    for name in context.served:
        clusters = context.algorithm1(name).clusters
        columns = clusters.mean_predicted, clusters.bin_similarity, clusters.cluster_similarity
        points += [
            {"map": name, "predicted": float(x), "within_bin": finite(b), "within_cluster": finite(c)}
            for x, b, c in zip(*columns, strict=True)
        ]
        headline[f"{name}_within_bin"] = _mean(clusters.bin_similarity)
        headline[f"{name}_within_cluster"] = _mean(clusters.cluster_similarity)
    title = "Similarity of density matrices within bins and within clusters"
    return unless_empty(ran("similarity", title, headline, points), NO_CLUSTERS, "within_cluster")


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _all_pairs(context: EvaluationContext) -> float | None:
    cosines = context.cosines
    if cosines is None or len(cosines) < 2:
        return None
    size = len(cosines)
    # Without the diagonal: each matrix is equal to itself.
    return float((cosines.sum() - np.trace(cosines)) / (size * (size - 1)))


CLAIM_TITLE = "Cal_S, risk and eigenvalue ECE against temperature"


def cominimised(context: EvaluationContext) -> Experiment:
    """Return the three figures of the paper's map on test over temperatures, raw and min-max scaled."""
    cosines = context.cosines
    if cosines is None:
        reason = f"Needs all pairs of prompts at once: at most {MAX_COSINES} test prompts."
        return not_run("co_minimised", CLAIM_TITLE, reason)
    # Of the unscaled matrices, and so the same at every temperature.
    labels = cluster_labels(cosines, NUM_CLUSTERS)
    values = np.array([_figures(context, labels, cosines, float(t)) for t in CLAIM_TEMPERATURES])
    scaled = [_scaled(column) for column in values.T]
    points: list[TableRow] = []
    for i, t in enumerate(CLAIM_TEMPERATURES):
        figures = {name: finite(values[i, j]) for j, name in enumerate(MEASURES)}
        unit = {f"{name}_scaled": finite(scaled[j][i]) for j, name in enumerate(MEASURES)}
        points.append({"temperature": float(t), **figures, **unit})
    lowest: TableRow = {f"{m}_lowest_at": _lowest_at(values[:, j]) for j, m in enumerate(MEASURES)}
    fitted = context.fits["temperature"].map.temperature
    cal_s_at, risk_at, ece_at = (_lowest_at(column) for column in values.T)
    headline = {**lowest, "fitted_temperature": fitted, **_by_map(context, labels)}
    made = ran("co_minimised", CLAIM_TITLE, {**headline, "claim": claim(risk_at, ece_at, cal_s_at)}, points)
    return unless_empty(made, NO_CLUSTERS, "cal_s", "eigenvalue_ece")


def _figures(
    context: EvaluationContext, labels: NDArray[np.intp], cosines: Floats, temperature: float
) -> tuple[float, float, float]:
    test, map_ = context.test, TemperatureMap(temperature, context.eps)
    same = [map_] * len(test)
    clusters = cluster_prompts(
        test.stack, served(same, test.spectra, np.empty(0)).lambda_max, cosines=cosines
    )
    ece = algorithm1(clusters, test.targets).ece
    return _cal_s(context, labels, same), risk(map_, test.dev), ece


def _cal_s(context: EvaluationContext, labels: NDArray[np.intp], maps: Sequence[CalibrationMap]) -> float:
    test = context.test
    pairs = zip(maps, test.spectra, strict=True)
    fitted = [map_.fitted(one.eigenvalues, one.dimension) for map_, one in pairs]
    return calibration_error(labels, test.stack, test.spectra, fitted, test.targets)


def _by_map(context: EvaluationContext, labels: NDArray[np.intp]) -> TableRow:
    return {f"{name}_cal_s": _cal_s(context, labels, context.maps_of(name)) for name in context.names}


def _lowest_at(values: Floats) -> float | None:
    """Return the temperature of the least value; None where no value is known (clusters of one prompt)."""
    return float(CLAIM_TEMPERATURES[np.nanargmin(values)]) if np.isfinite(values).any() else None


def _scaled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    # Times the values: what is unknown stays NaN, in a flat column, too.
    return np.asarray((values - known.min()) / span if span > 0 else np.zeros_like(values) * values)


def auroc_experiment(context: EvaluationContext) -> Experiment:
    """Return the AUROC of both scores of every map, with bootstrap intervals over prompts."""
    title = "AUROC of λmax and entropy, before and after"
    if reason := one_class(context):
        return not_run("auroc", title, reason)
    points: list[TableRow] = [
        {"map": name, "score": kind, **auroc_row(values, context)} for name, kind, values in scores(context)
    ]
    return ran("auroc", title, {f"{p['map']}_{p['score']}": p["auroc"] for p in points}, points)


def accuracy_kept(context: EvaluationContext) -> Experiment:
    """Return accuracy-rejection curves of both scores of every map, and their areas."""
    right = context.test.labels.right
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(right.mean())}
    for name, kind, values in scores(context):
        curve = rejection(name, values, right)
        points += [
            {"map": name, "score": kind, "rejected": x, "accuracy": y}
            for x, y in zip(curve["rejected"], curve["accuracy"], strict=True)
        ]
        headline[f"{name}_{kind}_area"] = accuracy_rejection(values, right).area
    title = "Accuracy of the answers kept when the least certain are rejected"
    return ran("accuracy_rejection", title, headline, points)


def comparison(context: EvaluationContext) -> Experiment:
    """Return each pair's difference (second minus first) in every figure, with 95 % intervals.

    Each figure is of the served maps on test, paired by prompt, but for the cross-validated risk on dev.
    """
    points: list[TableRow] = []
    for first, second in combinations(context.served, 2):
        for figure, difference in _differences(context, second, first):
            ends = {"low": finite(difference.low), "high": finite(difference.high), "real": difference.real}
            row = {"second": second, "first": first, "figure": figure, "difference": finite(difference.value)}
            points.append({**row, **ends})
    headline = {
        f"{p['second']}_minus_{p['first']}_{p['figure']}": p["difference"]
        for p in points
        if p["figure"] == "cv_risk"
    }
    return ran("comparison", "Differences between maps, paired by prompt", headline, points)


def _differences(context: EvaluationContext, second: str, first: str) -> Iterator[tuple[str, Difference]]:
    served, right = context.served, context.test.labels.right
    yield "cv_risk", risk_difference(context, second, first)
    yield "test_risk", mean_differences(context, lambda name: served[name].risks, second, first)
    yield "projection_brier", brier_difference(context, second, first)

    def ece(name: str, pick: Ints) -> float:
        return projection_reliability(served[name].lambda_max[pick], context.test.c1[pick]).ece

    def ranking(name: str, pick: Ints) -> float:
        return auroc(served[name].lambda_max[pick], right[pick])

    yield "projection_ece", _figure_difference(context, ece, second, first)
    if not one_class(context):
        yield "auroc_lambda_max", _figure_difference(context, ranking, second, first)


def _figure_difference(
    context: EvaluationContext, value: Callable[[str, Ints], float], second: str, first: str
) -> Difference:
    def both(pick: Ints) -> tuple[float, float]:
        return value(second, pick), value(first, pick)

    random, again = context.rng(Stream.DIFFERENCES), context.resamples.figure_difference
    return figure_difference(both, len(context.test), random, resamples=again)


def answers(context: EvaluationContext) -> Experiment:
    """Return a row per number of answers and score, and the fewest answers that are enough."""
    judged = [context.first_answers(m) for m in sizes(context.test.material.num_samples)]
    random, number = context.rng(Stream.ANSWERS), context.resamples.answers
    part = answers_part(judged, ResampleCounts.of(len(context.test), random, number))
    advice = recommended(judged)
    chosen, best, gap = advice.chosen, advice.best, advice.gap
    headline: TableRow = {
        "recommended": part["recommended"],
        "recommended_map": part["recommended_map"],
        "recommended_by": part["recommended_by"],
        "recommended_loss": chosen.loss if chosen else None,
        "best": best.num_samples if best else None,
        "best_map": best.map if best else None,
        "best_loss": best.loss if best else None,
        "difference": gap.value if gap else None,
        "standard_error": gap.standard_error if gap else None,
        "tokens": chosen.tokens if chosen else None,
        "tokens_of_all": judged[-1].tokens,
        "recommendation": part["recommendation"],
    }
    return ran("answers", "How many answers to draw", headline, part["rows"])


def embedders(contexts: Mapping[str, EvaluationContext]) -> Experiment:
    """Return the main figures by embedder and map; not run for one embedder alone."""
    name, title = "embedders", "Embedding models side by side"
    if len(contexts) < 2:
        return not_run(name, title, "Only one embedder was given; give --embedder twice.")
    points: list[TableRow] = []
    for embedder, context in contexts.items():
        for row in served_rows(context):
            projection, drawn, rescaled, auroc = (
                row["projection_null"],
                row["algorithm1_drawn"],
                row["algorithm1_rescaled"],
                row["auroc_lambda_max"],
            )
            points.append(
                {
                    "embedder": embedder,
                    "map": row["map"],
                    **_parameters(context, row["map"]),
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
            )
    headline = {f"{p['embedder']}: {p['map']} projection ECE": p["projection_ece"] for p in points}
    return ran(name, title, headline, points)


def _parameters(context: EvaluationContext, name: str) -> TableRow:
    evidence = context.evidence.fit.map if name == "evidence" and context.evidence else None
    map_ = evidence or context.maps[name]
    return {
        "temperature": getattr(map_, "temperature", None),
        "depolarization": getattr(map_, "depolarization", None),
        "intercept": evidence.intercept if evidence else None,
        "slope": evidence.slope if evidence else None,
    }


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
