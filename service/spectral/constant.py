"""The constant predictor: the mean of the references themselves, given for every prompt.

Over the references that it was made of, no other constant matrix has a lower matrix log risk (Gibbs'
inequality), so its best temperature is 1. An estimator of the risk that does not find that is wrong.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral.density import DensityStack
from service.spectral.dev_set import DevSet
from service.spectral.fit import fit_temperature
from service.spectral.maps import DEFAULT_EPS
from service.spectral.resampling import DEFAULT, Interval, percentile_interval
from service.spectral.spectrum import RANK_TOLERANCE

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPredictor:
    """eigenvalues: (r,) descending, sum 1; alignment: (n, r), c_i of each prompt's target; dimension: d."""

    eigenvalues: Floats
    alignment: Floats
    dimension: int

    def dev_set(self, weights: Floats | None = None) -> DevSet:
        """Return the risk's material for prompts weighted (n,), equal for None.

        The prediction is one, and the risk is linear in the targets: one row, their mean, holds them all.
        """
        size = self.alignment.shape[0]
        share = np.full(size, 1 / size) if weights is None else weights
        c = np.clip(share @ self.alignment, 0.0, 1.0)  # above 1 by rounding only
        outside = np.clip(1 - c.sum(), 0.0, 1.0)
        rank = np.array([self.eigenvalues.size])
        return DevSet(self.eigenvalues[None], c[None], np.array([outside]), rank, self.dimension)


def constant_predictor(targets: DensityStack, dimension: int) -> ConstantPredictor:
    """Return the mean of n targets Y and where each target lies in it. d = `dimension`."""
    rows, starts = targets.factor(np.arange(len(targets)))
    scaled = rows.astype(np.float64) / np.sqrt(len(targets))
    # The right singular vectors are the eigenvectors in R^d: the mean itself need not be formed.
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    values = np.square(singular)
    keep = values > RANK_TOLERANCE
    along = np.square(rows.astype(np.float64) @ directions[keep].T)
    return ConstantPredictor(values[keep] / values[keep].sum(), np.add.reduceat(along, starts), dimension)


def best_temperature(
    predictor: ConstantPredictor,
    rng: np.random.Generator,
    *,
    resamples: int = DEFAULT.bootstrap,
    eps: float = DEFAULT_EPS,
) -> tuple[float, Interval]:
    """Return the best temperature and its percentile interval over resamples of the prompts."""
    size = predictor.alignment.shape[0]
    # A resample as counts, which are weights: no rows are copied.
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    refits = np.array(
        [fit_temperature(predictor.dev_set(row / size), eps=eps).map.temperature for row in counts]
    )
    best = fit_temperature(predictor.dev_set(), eps=eps).map.temperature
    return best, percentile_interval(refits)
