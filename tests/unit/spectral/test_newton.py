import numpy as np
import pytest

from service.spectral.fit import minimize


def rosenbrock(point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    x, y = point
    gradient = np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])
    hessian = np.array([[2 - 400 * (y - 3 * x * x), -400 * x], [-400 * x, 200.0]])
    return float((1 - x) ** 2 + 100 * (y - x * x) ** 2), gradient, hessian


BOX = np.array([-5.0, -5.0]), np.array([5.0, 5.0])


def test_curved_valley_is_minimised() -> None:
    minimum = minimize(rosenbrock, np.array([-1.2, 1.0]), *BOX)
    assert minimum.point == pytest.approx([1.0, 1.0], abs=1e-8)
    assert not minimum.bound.any()


def test_search_stays_in_the_box_and_reports_the_active_bound() -> None:
    minimum = minimize(rosenbrock, np.array([-1.2, 1.0]), BOX[0], np.array([0.5, 5.0]))
    assert minimum.point == pytest.approx([0.5, 0.25], abs=1e-8)
    assert minimum.bound.tolist() == [True, False]


def test_start_outside_the_box_is_clipped() -> None:
    minimum = minimize(rosenbrock, np.array([90.0, -90.0]), *BOX)
    assert minimum.point == pytest.approx([1.0, 1.0], abs=1e-6)


def test_negative_curvature_is_descended() -> None:
    def well(point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        x = point[0]
        return float(x**4 - x**2), np.array([4 * x**3 - 2 * x]), np.array([[12 * x**2 - 2]])

    minimum = minimize(well, np.array([0.1]), np.array([-3.0]), np.array([3.0]))
    assert minimum.point == pytest.approx([np.sqrt(0.5)], abs=1e-8)
