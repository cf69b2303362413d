"""An evaluation: the figures of a report on a test file, and the experiments of the paper besides.

Maps are fitted on dev and judged on test; what a calibration's report holds, too, is made as there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.fitting import Stream
from service.calibration.rows import FEW_ROWS
from service.embedding.port import Embedder
from service.evaluation.baselines import Meanings, baselines, by_embedding
from service.report.diagnostics import EvaluationContext, Split
from service.report.report import figures, null_part
from service.report.words import Caution, about_fit, caution, estimate, few_of_a_kind, finite, in_short
from service.spectral.algorithm1 import algorithm1, cluster_labels, cluster_prompts
from service.spectral.density import calibration_error, frobenius_cosines
from service.spectral.dev_set import risk
from service.spectral.reliability import auroc, reliability_diagram
from service.spectral.resampling import Difference, figure_difference
from service.spectral.spectrum import DEFAULT_EPS, CalibrationMap, TemperatureMap

Ints = NDArray[np.intp]

# Few: each has clusters of its own to find, and Cal_S over all prompts.
TEMPERATURES = np.geomspace(0.25, 32.0, 15)
NUM_CLUSTERS = 30  # of all prompts, for Cal_S (method, section 4)
MAX_COSINES = 4000  # prompts: beyond, the table of all their cosines (8 bytes a pair) is not made
FITTED_ON_DEV = "the model of P(correct), if there is one, rests"


def make_results(
    context: EvaluationContext,
    rows: tuple[int, int],
    provenance: dict[str, Any],
    meanings: Meanings | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, Any]:
    """Run every experiment; return what is written as results.json, and shown on its page.

    rows: in the dev and the test file; meanings: None: by the embedder. The results are those of a report's
    figures (what cannot be computed is null, never NaN), with `method`, the map of the lowest cross-validated
    risk on dev. `progress` takes (done, all). Blocking: seconds to minutes.
    """
    progress(0, 3)
    shared = figures(context)
    progress(1, 3)
    error = cal_s(context)
    progress(2, 3)
    risks = {name: fit["cv_risk"] for name, fit in shared["fits"].items()}
    method = min(risks, key=lambda name: risks[name])
    results = {
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
    progress(3, 3)
    return results


def provenance(
    version: str, files: dict[str, dict[str, Any]], answers: dict[str, Any] | None, embedder: Embedder
) -> dict[str, Any]:
    """Return where results that are made now come from.

    files: "dev" and "test": `name`, `sha256` (null where a job does not keep them), and `answers_from`:
    "file" (it came with them) or "model" (drawn here). answers: by kind of row ("prompt", "messages"), the
    parts of a fingerprint that the answers were drawn with; None when every answer came with the files.
    """
    return {
        "version": version,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "eps": DEFAULT_EPS,
        "files": files,
        "answers": answers,
        "embedder": asdict(embedder.identity),
    }


def _describe(split: Split, rows: int) -> dict[str, Any]:
    return {
        "rows": rows,
        "used": len(split),
        "distinct_mean": float(np.mean([len(texts) for texts in split.texts])),
        "correct_from": split.rows.source,
        "accuracy": float(split.rows.right.mean()),
    }


def naive(context: EvaluationContext, name: str) -> dict[str, Any]:
    """Return Algorithm 1 of a map with one cluster per bin: its target is small whatever the calibration."""
    clusters, both_nulls = context.algorithm1(context.served[name], num_clusters=1)
    return {
        "map": name,
        "ece": finite(algorithm1(clusters, context.test.targets).ece),
        "drawn": null_part(both_nulls.drawn),
        "rescaled": null_part(both_nulls.rescaled),
    }


def cal_s(context: EvaluationContext) -> dict[str, Any] | None:
    """Return Cal_S in nats of each map, and Cal_S, risk and eigenvalue ECE of the paper's map over T.

    claim: whether all three are lowest at one T, as the paper has it. None for more than `MAX_COSINES` test
    prompts.
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

    points = list[dict[str, float | None]]()
    for temperature in TEMPERATURES.tolist():
        map_ = TemperatureMap(temperature)
        same = [map_] * len(test)
        largest = context.serve(same, np.empty(0)).lambda_max
        clusters = cluster_prompts(test.stack, largest, cosines=cosines)
        points.append(
            {
                "temperature": temperature,
                "cal_s": finite(error(same)),
                "risk": finite(risk(map_, test.rows.dev)),
                "eigenvalue_ece": finite(algorithm1(clusters, test.targets).ece),
            }
        )
    lowest = {name: _lowest_at(points, name) for name in ("cal_s", "risk", "eigenvalue_ece")}
    return {
        "by_map": {name: finite(error(context.maps_of(name))) for name in context.served},
        "points": points,
        "lowest_at": lowest,
        "claim": claim(lowest["risk"], lowest["eigenvalue_ece"], lowest["cal_s"]),
    }


def _lowest_at(points: Sequence[dict[str, float | None]], name: str) -> float | None:
    """Return the temperature of the least value; None where none is known (clusters of one prompt)."""
    known = [(one[name], one["temperature"]) for one in points if one[name] is not None]
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


def comparison(context: EvaluationContext) -> Iterator[dict[str, Any]]:
    """Yield each pair's difference (second minus first) in every figure, paired by prompt.

    Below 0 is better but for the AUROC. figure: of the served maps on test, or "cv_risk", cross-validated on
    dev. real: whether the interval leaves out 0.
    """
    for first, second in combinations(context.served, 2):
        for figure, one in _differences(context, second, first):
            yield {
                "second": second,
                "first": first,
                "figure": figure,
                "difference": estimate(one.value, one),
                "real": one.real,
            }


def _differences(context: EvaluationContext, second: str, first: str) -> Iterator[tuple[str, Difference]]:
    served, right = context.served, context.test.rows.right
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


def warnings(context: EvaluationContext) -> Iterator[Caution]:
    """Yield warnings of few rows, few right or wrong answers, fits on a bound."""
    both = {"dev": context.dev, "test": context.test}
    for name, split in both.items():
        if len(split) < FEW_ROWS:
            text = f"Only {len(split)} {name} prompts: intervals are wide. Use at least {FEW_ROWS}."
            yield caution("few_rows", text)
    dev, test = (split.rows.right for split in both.values())
    yield from few_of_a_kind(dev, " of the dev file", FITTED_ON_DEV)
    yield from few_of_a_kind(test, " of the test file")
    for fit in context.fitted.fits.values():
        yield from about_fit(fit)
