"""Is the gain real? Differences between maps on the same prompts, by a paired bootstrap."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.fitting import Stream
from service.domain.study.bench import Bench
from service.domain.study.experiments.correctness import one_class
from service.domain.study.model import Experiment, TableRow, finite, ran
from service.spectral.correctness import auroc
from service.spectral.paired import Difference, figure_difference, mean_difference
from service.spectral.reliability import projection_reliability

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
NAME, TITLE = "comparison", "Differences between maps, paired by prompt"
RESAMPLES = 500  # of figures that are no means: each resample is binned or ranked anew


def comparison(bench: Bench) -> Experiment:
    """Return each pair's difference (second minus first) in every figure, with 95 % intervals."""
    points: list[TableRow] = []
    figures = [name for name in FIGURES if not (name == "auroc_lambda_max" and one_class(bench))]
    for first, second in combinations(bench.served, 2):
        for figure in figures:
            found = difference(bench, figure, second, first)
            points.append({"second": second, "first": first, "figure": figure, **_columns(found)})
    headline = {
        f"{p['second']}_minus_{p['first']}_{p['figure']}": p["difference"]
        for p in points
        if p["figure"] == "cv_risk"
    }
    return ran(NAME, TITLE, headline, points)


def difference(bench: Bench, figure: str, second: str, first: str) -> Difference:
    """Return a figure (a key of FIGURES) of the second map minus that of the first."""
    return FIGURES[figure](bench, second, first)


def _of_means(values: Callable[[Bench, str], Floats]) -> Callable[[Bench, str, str], Difference]:
    """Return the difference of two means; values: (n,) of a map, one per prompt."""

    def found(bench: Bench, second: str, first: str) -> Difference:
        # The stream begins anew for each pair: all differences are over the same resamples.
        return mean_difference(values(bench, second), values(bench, first), bench.rng(Stream.DIFFERENCES))

    return found


def _of_figures(value: Callable[[Bench, str, Ints], float]) -> Callable[[Bench, str, str], Difference]:
    """Return the difference of two figures that are no means; value: of a map on the prompts picked."""

    def found(bench: Bench, second: str, first: str) -> Difference:
        def both(pick: Ints) -> tuple[float, float]:
            return value(bench, second, pick), value(bench, first, pick)

        return figure_difference(both, len(bench.test), bench.rng(Stream.DIFFERENCES), resamples=RESAMPLES)

    return found


def _brier(bench: Bench, name: str) -> Floats:
    """Return (lambda_max - u_1^T Y u_1)^2 (n,), whose mean is the projection Brier score."""
    return np.square(bench.served[name].lambda_max - bench.test.c1)


def _ece(bench: Bench, name: str, pick: Ints) -> float:
    return projection_reliability(bench.served[name].lambda_max[pick], bench.test.c1[pick]).ece


def _auroc(bench: Bench, name: str, pick: Ints) -> float:
    return auroc(bench.served[name].lambda_max[pick], bench.test.labels.right[pick])


FIGURES: dict[str, Callable[[Bench, str, str], Difference]] = {
    "cv_risk": _of_means(lambda bench, name: bench.held_out.risks[name]),
    "test_risk": _of_means(lambda bench, name: bench.served[name].risks),
    "projection_brier": _of_means(_brier),
    "projection_ece": _of_figures(_ece),
    "auroc_lambda_max": _of_figures(_auroc),
}


def _columns(found: Difference) -> TableRow:
    return {
        "difference": finite(found.value),
        "low": finite(found.low),
        "high": finite(found.high),
        "real": found.real,
    }
