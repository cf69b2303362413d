"""Logistic regression with an L2 penalty, and the proper scores of predicted probabilities.

Source of the penalty's form: scikit-learn's `LogisticRegression`, whose C this is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.newton import minimize
from service.spectral.strata import verdicts

Floats = NDArray[np.float64]
STRENGTH = 1.0  # C (method, section 8), which is scikit-learn's default, too
LEAST_PROBABILITY = 1e-15  # a probability of exactly 0 given to what happened would cost infinitely much


class LogisticRisk:
    """J(w, b) = ||w||^2 / 2 + C sum_i log(1 + exp(-s_i (w . x_i + b))), s = +1 right, -1 wrong; convex."""

    def __init__(self, features: Floats, right: NDArray[np.bool_], strength: float) -> None:
        self._rows = np.column_stack([features, np.ones(right.size)])
        self._right = right
        self._strength = strength
        self._penalty = np.append(np.ones(features.shape[1]), 0.0)  # the intercept is free

    def __call__(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return J, its gradient (p + 1,) and Hessian (p + 1, p + 1) at (w, b)."""
        z = self._rows @ point
        p = sigmoid(z)
        # log(1 + exp(-s z)) without overflow.
        losses = np.logaddexp(0.0, np.where(self._right, -z, z))
        value = float(self._penalty @ np.square(point)) / 2 + self._strength * float(losses.sum())
        gradient = self._penalty * point + self._strength * (self._rows.T @ (p - self._right))
        curved = (self._rows.T * (p * (1 - p))) @ self._rows
        return value, gradient, np.diag(self._penalty) + self._strength * curved


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """Weights (p,) of the features and an intercept: P(right) = sigmoid(w . x + b)."""

    weights: Floats
    intercept: float


def sigmoid(values: ArrayLike) -> Floats:
    """Return 1 / (1 + exp(-z)) for z of any size, without overflow."""
    z = np.asarray(values, dtype=np.float64)
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    strength: float = STRENGTH,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
) -> Logistic:
    """Return the minimum of `LogisticRisk` for features (n, p) and labels (n,) in {0, 1}.

    low <= 0 <= high: bounds of the weights, (p,) or one for all; the intercept has none. Features should be
    of like scale: the penalty is the same for all. Raises ValueError for features that are not finite or of
    another length, or labels of one kind only, which no finite intercept fits.
    """
    rows, right = np.asarray(features, dtype=np.float64), verdicts(labels)
    if rows.ndim != 2 or rows.shape[0] != right.size or not np.isfinite(rows).all():
        raise ValueError("features must be a finite matrix with one row per label")
    if right.all() or not right.any():
        raise ValueError("labels of one kind only have no logistic regression")
    start = np.zeros(rows.shape[1] + 1)
    # The best intercept without features: the search begins at the base rate.
    start[-1] = np.log(right.mean()) - np.log1p(-right.mean())
    weights = rows.shape[1]
    least = np.append(np.broadcast_to(low, weights), -np.inf)
    most = np.append(np.broadcast_to(high, weights), np.inf)
    end = minimize(LogisticRisk(rows, right, strength), start, least, most)
    return Logistic(end.point[:-1], float(end.point[-1]))


def log_losses(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Return -log of the probability given to what happened, (n,), in nats, at most 34.5. Lower = better.

    >>> log_losses([0.5, 1.0], [1, 1]).round(4).tolist()
    [0.6931, 0.0]
    """
    p, right = np.asarray(probabilities, dtype=np.float64), verdicts(labels)
    happened = np.clip(np.where(right, p, 1 - p), LEAST_PROBABILITY, 1.0)
    return np.asarray(0.0 - np.log(happened))  # a minus sign alone would give -0.0 for certainty


def log_loss(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of `log_losses`, in nats. Lower = better; a proper score."""
    return float(log_losses(probabilities, labels).mean())


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean squared error of probabilities (n,) for labels (n,), in [0, 1]. Lower = better.

    Source: Brier, *Verification of Forecasts Expressed in Terms of Probability*, 1950.
    """
    gaps = np.asarray(probabilities, dtype=np.float64) - verdicts(labels)
    return float(np.square(gaps).mean())
