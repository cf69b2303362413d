"""A prior for fits on little data: parameters fitted elsewhere, and how sharply (**ours**, method, section 9)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
