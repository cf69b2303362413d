"""A damped Newton method in a box, for few parameters: of a calibration map, or a logistic regression."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats, Floats]]

LONGEST_STEP = 1.5  # in any parameter: where the objective is nearly flat a bare step overshoots
MAX_STEPS = 100
MAX_HALVINGS = 40  # 2^-40 of the longest step is 1e-12, below `tol`
ROUNDING = 1e-13  # a rise of the value no larger than this is none


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """Where the search ended: point (p,), value, gradient (p,), and which coordinates sit on a bound (p,)."""

    point: Floats
    value: float
    gradient: Floats
    bound: NDArray[np.bool_]


def _pressed(point: Floats, gradient: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Return the coordinates on a bound that the descent would push further out."""
    return np.asarray(((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0)))


def _direction(gradient: Floats, hessian: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return the Newton step on the free coordinates, with |curvature| where it is not convex."""
    step = np.zeros_like(gradient)
    values, columns = np.linalg.eigh(hessian[np.ix_(free, free)])
    curvature = np.maximum(np.abs(values), 1e-8)  # not 0, which a flat direction has
    step[free] = -columns @ ((columns.T @ gradient[free]) / curvature)
    return step / max(1.0, float(np.abs(step).max()) / LONGEST_STEP)


def minimize(
    objective: Objective, start: Floats, low: Floats, high: Floats, *, tol: float = 1e-10
) -> Minimum:
    """Return a local minimum of `objective` (value, gradient, Hessian) in the box, from `start` downhill.

    `tol`: the largest step left at the end.
    """
    point = np.clip(start, low, high)
    value, gradient, hessian = objective(point)
    for _ in range(MAX_STEPS):
        free = ~_pressed(point, gradient, low, high)
        if not free.any():
            break
        step = _direction(gradient, hessian, free)
        for _ in range(MAX_HALVINGS):
            trial = np.clip(point + step, low, high)
            found = objective(trial)
            if found[0] <= value + ROUNDING * abs(value):
                break
            step = step / 2
        else:
            break
        moved = float(np.abs(trial - point).max())
        point, (value, gradient, hessian) = trial, found
        if moved < tol:
            break
    return Minimum(point, value, gradient, _pressed(point, gradient, low, high))
