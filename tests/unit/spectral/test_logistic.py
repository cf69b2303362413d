import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from service.spectral.correctness_model import (
    LogisticRisk,
    fit_logistic,
    ridge,
    sigmoid,
)
from service.spectral.fit import Prior, drawn_to
from tests.unit.spectral.worlds import seeds


def made(seed: int, size: int = 60, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, width))
    right = rng.random(size) < sigmoid(rows @ rng.standard_normal(width) * 2 - 1)
    right[:2] = [True, False]
    return rows, right


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from([0.01, 1.0, 100.0]))
def test_result_equals_scikit_learn(seed: int, strength: float) -> None:
    rows, right = made(seed)
    # lbfgs may fail to reach this tolerance.
    theirs = LogisticRegression(C=strength, tol=1e-10, solver="newton-cholesky").fit(rows, right)
    ours = fit_logistic(rows, right, prior=ridge(3, strength))
    assert ours.weights == pytest.approx(theirs.coef_[0], abs=1e-4, rel=1e-4)
    assert ours.intercept == pytest.approx(theirs.intercept_[0], abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_labels_of_one_kind_can_be_fitted_with_a_prior_on_the_intercept(turned: bool) -> None:
    rows, _ = made(0)
    right = np.full(60, turned)
    prior = Prior(np.array([1.0, 0.0, 0.0, 0.5]), np.eye(4), 4.0)
    fit = fit_logistic(rows, right, prior=prior)
    point = np.append(fit.weights, fit.intercept)
    assert np.abs(drawn_to(LogisticRisk(rows, right), prior)(point)[1]).max() < 1e-8
    assert (fit.intercept > 0.5) == turned
    heavy = fit_logistic(rows, right, prior=Prior(prior.center, prior.hessian, 1e12))
    assert [*heavy.weights, heavy.intercept] == pytest.approx(prior.center, abs=1e-6)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ([[1.0], [2.0]], [1, 1], "one kind"),
        ([[1.0], [2.0]], [0, 0], "one kind"),
        ([[1.0], [math.nan]], [0, 1], "finite"),
        ([[1.0]], [0, 1], "one row per label"),
        ([1.0, 2.0], [0, 1], "matrix"),
        ([[1.0], [2.0]], [0, 2], "verdicts"),
    ],
)
def test_unusable_rows_are_refused(features: list, labels: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_logistic(features, labels)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_a_bounded_optimum_keeps_its_bounds_and_rises_only_beyond_them(seed: int) -> None:
    rows, right = made(seed)
    low, high = [0.0, -np.inf, -np.inf], [np.inf, 0.0, np.inf]
    fit = fit_logistic(rows, right, low=low, high=high)
    gradient = drawn_to(LogisticRisk(rows, right), ridge(3))(np.append(fit.weights, fit.intercept))[1]
    assert fit.weights[0] >= 0 >= fit.weights[1]
    for at, outward in ((0, -1), (1, 1)):
        # At a bound the risk may still fall outward; inside it is stationary.
        assert abs(gradient[at]) < 1e-7 or (fit.weights[at] == 0 and gradient[at] * outward < 0)
    assert np.abs(gradient[2:]).max() < 1e-7
    free = fit_logistic(rows, right)
    if free.weights[0] > 0 > free.weights[1]:
        assert fit.weights == pytest.approx(free.weights, abs=1e-8)
