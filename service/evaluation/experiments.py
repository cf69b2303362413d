"""An evaluation: the figures of a report on a test file, and the experiments of the paper besides.

Maps are fitted on dev and judged on test; what a calibration's report holds, too, is made as there.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from service.calibration.fitting import Stream
from service.calibration.rows import FEW_ROWS
from service.evaluation.baselines import Meanings, baselines, by_embedding
from service.evaluation.results import (
    CalibrationErrorPart,
    ComparisonRow,
    MeasuresAt,
    NaiveRow,
    Provenance,
    Results,
    SplitPart,
)
from service.report.diagnostics import (
    EvaluationContext,
    Split,
    served,
)
from service.report.model import PlainWarning, estimate, finite
from service.report.report import figures, null_part
from service.report.words import about_fit, caution, few_of_a_kind, in_short
from service.spectral.algorithm1 import algorithm1, cluster_labels, cluster_prompts
from service.spectral.correctness import auroc
from service.spectral.density import calibration_error, frobenius_cosines
from service.spectral.dev_set import risk
from service.spectral.maps import CalibrationMap, TemperatureMap
from service.spectral.reliability import reliability_diagram
from service.spectral.resampling import Difference, figure_difference

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Few: each has clusters of its own to find, and Cal_S over all prompts.
TEMPERATURES = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MAX_COSINES = 4000  # prompts: beyond, the table of all their cosines (8 bytes a pair) is not made
DIFFERENT = 0.01  # of two tests per pair of files: one pair in fifty that is alike is called different
FITTED_ON_DEV = "the model of P(correct), if there is one, rests"


def make_results(
    context: EvaluationContext,
    rows: tuple[int, int],
    provenance: Provenance,
    meanings: Meanings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """Run every experiment. rows: in the dev and the test file; meanings: None: by the embedder.

    `progress` takes (done, all). Blocking: seconds to minutes.
    """
    tell = progress or (lambda _done, _all: None)
    tell(0, 3)
    shared = figures(context)
    tell(1, 3)
    risks = {name: fit["cv_risk"] for name, fit in shared["fits"].items()}
    method = min(risks, key=lambda name: risks[name])
    error = cal_s(context)
    tell(2, 3)
    results: Results = {
        "version": 1,
        "num_samples": context.test.material.num_samples,
        "seed": context.seed,
        "method": method,
        "verdict": [*in_short(shared["served"], method), shared["answers"]["recommendation"]],
        "dev": _describe(context.dev, rows[0]),
        "test": _describe(context.test, rows[1]),
        **shared,
        "comparison": list(comparison(context)),
        "naive": [naive(context, name) for name in context.served],
        "calibration_error": error,
        "baselines": baselines(context, meanings or by_embedding(context.test)),
        "warnings": list(warnings(context)),
        "provenance": provenance,
    }
    tell(3, 3)
    return results


def _describe(split: Split, rows: int) -> SplitPart:
    return {
        "rows": rows,
        "used": len(split),
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.labels.source,
        "accuracy": float(split.labels.right.mean()),
    }


def naive(context: EvaluationContext, name: str) -> NaiveRow:
    """Return Algorithm 1 of a map with one cluster per bin."""
    clusters, both_nulls = context.algorithm1(context.served[name], num_clusters=1)
    return {
        "map": name,
        "ece": finite(algorithm1(clusters, context.test.targets).ece),
        "drawn": null_part(both_nulls.drawn),
        "rescaled": null_part(both_nulls.rescaled),
    }


def comparison(context: EvaluationContext) -> Iterator[ComparisonRow]:
    """Yield each pair's difference (second minus first) in every figure, with 95 % intervals."""
    for first, second in combinations(context.served, 2):
        for figure, one in _differences(context, second, first):
            yield {
                "second": second,
                "first": first,
                "figure": figure,
                "difference": estimate(one.value, one.low, one.high),
                "real": one.real,
            }


def _differences(context: EvaluationContext, second: str, first: str) -> Iterator[tuple[str, Difference]]:
    served, right = context.served, context.test.labels.right
    risks, squares = context.fitted.risks, context.squared_gaps
    yield "cv_risk", context.difference(risks[second], risks[first])
    yield "test_risk", context.difference(served[second].risks, served[first].risks)
    yield "projection_brier", context.difference(squares(second), squares(first))

    def ece(name: str, pick: Ints) -> float:
        return reliability_diagram(served[name].lambda_max[pick], context.test.c1[pick]).ece

    def ranking(name: str, pick: Ints) -> float:
        return auroc(served[name].lambda_max[pick], right[pick])

    yield "projection_ece", _figure_difference(context, ece, second, first)
    if right.any() and not right.all():
        yield "auroc_lambda_max", _figure_difference(context, ranking, second, first)


def _figure_difference(
    context: EvaluationContext, value: Callable[[str, Ints], float], second: str, first: str
) -> Difference:
    def both(pick: Ints) -> tuple[float, float]:
        return value(second, pick), value(first, pick)

    random, again = context.rng(Stream.DIFFERENCES), context.resamples.figure_difference
    return figure_difference(both, len(context.test), random, resamples=again)


def cal_s(context: EvaluationContext) -> CalibrationErrorPart | None:
    """Return Cal_S of each map, and Cal_S, risk and eigenvalue ECE of the paper's map over temperatures.

    None for more than `MAX_COSINES` test prompts.
    """
    test = context.test
    if len(test) > MAX_COSINES:
        return None
    cosines = frobenius_cosines(test.stack)
    # Of the unscaled matrices, and so the same at every temperature.
    labels = cluster_labels(cosines, NUM_CLUSTERS)

    def error(maps: Sequence[CalibrationMap]) -> float:
        pairs = zip(maps, test.spectra, strict=True)
        fitted = [map_.fitted(one.eigenvalues, one.dimension) for map_, one in pairs]
        return calibration_error(labels, test.stack, test.spectra, fitted, test.targets)

    points: list[MeasuresAt] = []
    for temperature in TEMPERATURES:
        map_ = TemperatureMap(float(temperature))
        same = [map_] * len(test)
        largest = served(same, test.spectra, np.empty(0)).lambda_max
        clusters = cluster_prompts(test.stack, largest, cosines=cosines)
        points.append(
            {
                "temperature": float(temperature),
                "cal_s": finite(error(same)),
                "risk": finite(risk(map_, test.dev)),
                "eigenvalue_ece": finite(algorithm1(clusters, test.targets).ece),
            }
        )
    at = {
        "cal_s": _lowest_at([(one["cal_s"], one["temperature"]) for one in points]),
        "risk": _lowest_at([(one["risk"], one["temperature"]) for one in points]),
        "eigenvalue_ece": _lowest_at([(one["eigenvalue_ece"], one["temperature"]) for one in points]),
    }
    return {
        "by_map": {name: finite(error(context.maps_of(name))) for name in context.served},
        "points": points,
        "lowest_at": at,
        "claim": claim(at["risk"], at["eigenvalue_ece"], at["cal_s"]),
    }


def _lowest_at(values: Sequence[tuple[float | None, float]]) -> float | None:
    """Return the temperature of the least value; None where no value is known (clusters of one prompt)."""
    known = [(value, temperature) for value, temperature in values if value is not None]
    return min(known)[1] if known else None


def claim(risk_at: float | None, ece_at: float | None, cal_s_at: float | None) -> str:
    """Return whether the paper's claim holds: calibration error, risk and ECE lowest at one temperature.

    Arguments: the temperature of the grid where each is lowest on the test file, None where unknown.
    """
    if risk_at is None or ece_at is None or cal_s_at is None:
        return "The paper's claim cannot be tested here: a measure is not known at any temperature."
    others = (("eigenvalue ECE", ece_at), ("Cal_S", cal_s_at))
    off = [f"the {name} at {at:.2g}" for name, at in others if at != risk_at]
    holds = "fails" if ece_at != risk_at else "holds for the ECE only" if off else "holds"
    lowest = ", ".join([f"the risk is lowest at T = {risk_at:.2g}", *off])
    return f"The paper's claim {holds} on these files: {lowest}."


def warnings(context: EvaluationContext) -> Iterator[PlainWarning]:
    """Yield warnings of few rows, few right or wrong answers, files that are not alike, fits on a bound."""
    both = {"dev": context.dev, "test": context.test}
    for name, split in both.items():
        if len(split) < FEW_ROWS:
            text = f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
            yield caution("few_rows", text)
    dev, test = (split.labels.right for split in both.values())
    yield from few_of_a_kind(dev, " of the dev file", FITTED_ON_DEV)
    yield from few_of_a_kind(test, " of the test file")
    largest = [np.array([one.eigenvalues[0] for one in split.spectra]) for split in both.values()]
    yield from files_differ((dev, test), (largest[0], largest[1]))
    for fit in context.fitted.fits.values():
        yield from about_fit(fit)
    if context.fitted.evidence is not None:
        yield from about_fit(context.fitted.evidence.fit)


def files_differ(accuracy: tuple[Bools, Bools], lambda_max: tuple[Floats, Floats]) -> Iterator[PlainWarning]:
    """Yield a warning where dev and test differ in accuracy (Fisher), or in mean raw lambda_max (Welch).

    accuracy: right or wrong, lambda_max: in [0, 1], each of the dev (n,) and the test prompts (k,).
    """
    tests = (
        ("accuracy", "share of right answers", accuracy, _fisher(*accuracy)),
        ("lambda_max", "mean raw lambda_max", lambda_max, _welch(*lambda_max)),
    )
    for name, words, (dev, test), p_value in tests:
        if p_value < DIFFERENT:
            text = (
                f"Dev and test are not alike: {words} {dev.mean():.3f} against {test.mean():.3f} "
                f"(p = {p_value:.1g}). A map fitted on one kind of prompt need not fit the other."
            )
            yield caution(f"files_differ_{name}", text)


def _fisher(dev: Bools, test: Bools) -> float:
    from scipy.stats import fisher_exact

    table = np.array([[one.sum(), one.size - one.sum()] for one in (dev, test)])
    return float(fisher_exact(table).pvalue)  # exact: right answers may be a handful


def _welch(dev: Floats, test: Floats) -> float:
    """Return the p-value of equal means; 1 where there is no spread to compare by."""
    from scipy.stats import ttest_ind

    if min(dev.size, test.size) < 2 or np.ptp(dev) == 0 == np.ptp(test):
        return 1.0
    # Welch: the two files need not spread alike.
    return float(ttest_ind(dev, test, equal_var=False).pvalue)
