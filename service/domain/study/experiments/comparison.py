"""Is the gain real? Differences between maps on the same prompts, by a paired bootstrap."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration import Method
from service.domain.study.bench import Bench, Served
from service.domain.study.evidence import finite
from service.domain.study.experiments.correctness import one_class
from service.domain.study.model import Experiment, TableRow, ran
from service.spectral.correctness import auroc
from service.spectral.fit import cross_validated_risks
from service.spectral.maps import CalibrationMap
from service.spectral.paired import Difference, figure_difference, mean_difference
from service.spectral.reliability import projection_reliability
from service.spectral.risk import risks

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
NAME, TITLE = "comparison", "Differences between maps, paired by prompt"
RESAMPLES = 500


def comparison(bench: Bench) -> Experiment:
    """Return each pair's difference (second minus first) in every figure, with 95 % intervals."""
    held_out = _held_out(bench)
    points: list[TableRow] = []
    for first, second in combinations(bench.served, 2):
        for figure, found in _differences(bench, held_out, first, second):
            points.append({"second": second, "first": first, "figure": figure, **_columns(found)})
    headline = {
        f"{p['second']}_minus_{p['first']}_{p['figure']}": p["difference"]
        for p in points
        if p["figure"] == "cv_risk"
    }
    return ran(NAME, TITLE, headline, points)


def _held_out(bench: Bench) -> dict[str, Floats]:
    """Return the out-of-fold risks (n,) on dev of every map, 5 folds over prompts."""
    candidates: dict[str, Method | CalibrationMap] = {
        "raw": bench.maps["raw"],
        **{method: method for method in bench.fits},
    }
    found = cross_validated_risks(bench.dev.dev, candidates, rng=bench.rng(2), eps=bench.eps)
    return dict(found.risks)


def _differences(
    bench: Bench, held_out: dict[str, Floats], first: str, second: str
) -> list[tuple[str, Difference]]:
    a, b, c1 = bench.served[first], bench.served[second], bench.test.c1
    risk_a, risk_b = (risks(bench.maps[name], bench.test.dev) for name in (first, second))
    brier_a, brier_b = (np.square(one.lambda_max - c1) for one in (a, b))
    found = [
        ("cv_risk", mean_difference(held_out[second], held_out[first], bench.rng(3))),
        ("test_risk", mean_difference(risk_b, risk_a, bench.rng(3))),
        ("projection_brier", mean_difference(brier_b, brier_a, bench.rng(3))),
        ("projection_ece", _by_figure(bench, _ece_of(b, a, c1))),
    ]
    if not one_class(bench):
        found.append(("auroc_lambda_max", _by_figure(bench, _auroc_of(b, a, bench.test.labels.right))))
    return found


def _by_figure(bench: Bench, figure: Callable[[Ints], tuple[float, float]]) -> Difference:
    return figure_difference(figure, len(bench.test), bench.rng(3), resamples=RESAMPLES)


def _ece_of(second: Served, first: Served, c1: Floats) -> Callable[[Ints], tuple[float, float]]:
    def both(pick: Ints) -> tuple[float, float]:
        found = [projection_reliability(one.lambda_max[pick], c1[pick]).ece for one in (second, first)]
        return found[0], found[1]

    return both


def _auroc_of(
    second: Served, first: Served, right: NDArray[np.bool_]
) -> Callable[[Ints], tuple[float, float]]:
    return lambda pick: (
        auroc(second.lambda_max[pick], right[pick]),
        auroc(first.lambda_max[pick], right[pick]),
    )


def _columns(found: Difference) -> TableRow:
    return {
        "difference": finite(found.value),
        "low": finite(found.low),
        "high": finite(found.high),
        "real": found.real,
    }
