"""Do scores tell right answers from wrong ones? AUROC and accuracy-rejection, before and after."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.fitting import Stream
from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, finite, not_run, ran
from service.spectral.correctness import Auroc, accuracy_rejection, bootstrap_auroc

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
    return bootstrap_auroc(values, bench.test.labels.right, bench.rng(Stream.AUROC))


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


def auroc(bench: Bench) -> Experiment:
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
