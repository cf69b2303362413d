"""One set of bootstrap resamples for many figures of the same prompts, so that all of them pair.

`paired` and `correctness.bootstrap_auroc` draw anew for each figure, one resample after the other; where
dozens of figures are compared, as by number of answers, resamples kept as counts cost a product each.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.reliability import rounded_ties

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Resamples:
    """counts: (B, n), how often each of B resamples holds each of n prompts; rows of sum n."""

    counts: Floats

    @classmethod
    def of(cls, size: int, rng: np.random.Generator, number: int = 1000) -> Self:
        """Return so many resamples of n = `size` prompts. Raises ValueError for no prompts."""
        if size < 1:
            raise ValueError("nothing to resample")
        return cls(rng.multinomial(size, np.full(size, 1 / size), size=number).astype(np.float64))

    def means(self, values: ArrayLike) -> Floats:
        """Return the mean of values (n,) in each resample, (B,)."""
        found = np.asarray(values, dtype=np.float64)
        return np.asarray(self.counts @ found / found.size)

    def aurocs(self, scores: ArrayLike, labels: ArrayLike) -> Floats:
        """Return the AUROC of scores (n,), higher = more certain, in each resample, (B,).

        As `correctness.auroc`: ties count half. NaN in a resample that holds one kind only.
        """
        groups = np.unique(rounded_ties(scores), return_inverse=True)[1]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        drawn, right = self.counts[:, order], np.asarray(labels, dtype=np.float64)[order]
        positives = np.add.reduceat(drawn * right, starts, axis=1)
        negatives = np.add.reduceat(drawn * (1 - right), starts, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives
        ordered = (positives * (below + negatives / 2)).sum(axis=1)
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        with np.errstate(invalid="ignore"):  # 0 / 0: such a resample has no AUROC
            return np.asarray(ordered / pairs)


def interval(drawn: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of resampled values (B,), those that are NaN left out; NaN for none."""
    known = drawn[np.isfinite(drawn)]
    if known.size < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
