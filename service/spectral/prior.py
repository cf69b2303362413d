"""What fits on little data are drawn to: parameters fitted elsewhere (**ours**, method, section 9)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats, Floats]]


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """What a fit of p parameters is drawn to: (weight / 2) (x - center)^T hessian (x - center) nats.

    center: (p,), the optimum on other rows. hessian: (p, p), positive semidefinite, of the mean risk there.
    weight: >= 0, how many labelled rows it counts for. Source: Laplace's approximation of the posterior on
    those rows, tempered to so many of them.
    """

    center: Floats
    hessian: Floats
    weight: float

    def penalty(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Return the value, gradient (p,) and Hessian (p, p) at a point (p,); in nats of the sum over rows.

        >>> Prior(np.zeros(1), np.eye(1), 30.0).penalty(np.ones(1))[0]
        15.0
        """
        curved = self.weight * self.hessian
        slope = curved @ (point - self.center)
        return float(slope @ (point - self.center)) / 2, slope, curved


PriorSource = Callable[[str, int], Prior | None]  # by the method fitted and the number of answers


def no_prior(method: str, num_samples: int) -> None:
    """Return that nothing draws a fit anywhere: a `PriorSource`."""


def per_row(prior: Prior | None, rows: int) -> Prior | None:
    """Return the share of the prior that a mean over so many rows takes; None for None."""
    return None if prior is None else replace(prior, weight=prior.weight / rows)


def drawn_to(objective: Objective, prior: Prior | None) -> Objective:
    """Return the sum of an objective and the penalty of a prior; None adds nothing."""
    if prior is None:
        return objective

    def penalized(point: Floats) -> tuple[float, Floats, Floats]:
        value, gradient, hessian = objective(point)
        more, slope, curved = prior.penalty(point)
        return value + more, gradient + slope, hessian + curved

    return penalized
