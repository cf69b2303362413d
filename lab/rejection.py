"""Accuracy of the answers kept when the least certain are rejected."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.reliability import rounded_ties

Floats = NDArray[np.float64]
CURVE_POINTS = 41
MIN_KEPT = 10  # answers left at the end of a curve; fewer are not informative


@dataclass(frozen=True, slots=True, eq=False)
class RejectionCurve:
    """Accuracy of the answers kept when the least certain are rejected.

    rejected: (n,) shares 0, 1/n, .. (n - 1)/n; accuracy: (n,) of the answers kept, in [0, 1]. area: mean
    accuracy over the curve, in [0, 1]. Higher = better; an uninformative score has an area equal to the
    accuracy of all answers.
    """

    rejected: Floats
    accuracy: Floats
    area: float


def accuracy_rejection(scores: ArrayLike, labels: ArrayLike) -> RejectionCurve:
    """Return the accuracy-rejection curve of scores (n,) for labels (n,) in {0, 1}.

    Answers with tied scores are rejected in random order; the curve is the expected accuracy.
    """
    values, right = rounded_ties(scores), np.asarray(labels, dtype=np.float64)
    # Negated, so that the most certain come first: they are kept longest.
    groups = np.unique(-values, return_inverse=True)[1]
    tie_means = np.bincount(groups, weights=right) / np.bincount(groups)
    kept = np.arange(1, values.size + 1)
    accuracy = (np.cumsum(tie_means[np.sort(groups)]) / kept)[::-1]
    return RejectionCurve(np.arange(values.size) / values.size, accuracy, float(accuracy.mean()))


def rejection(name: str, scores: Floats, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Return points of the curve of a map. The curve ends with `MIN_KEPT` answers left."""
    curve = accuracy_rejection(scores, right)
    # With few prompts, several points coincide.
    points = np.linspace(0, max(scores.size - MIN_KEPT, 0), CURVE_POINTS)
    shown = np.unique(points.astype(int))
    return {
        "map": name,
        "rejected": curve.rejected[shown].tolist(),
        "accuracy": curve.accuracy[shown].tolist(),
    }
