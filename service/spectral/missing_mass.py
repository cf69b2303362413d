"""What the log-probabilities of the answers drawn leave over: the missing mass (**ours**, method, section 6).

Every answer comes with the log-probability of its whole text. The distinct texts drawn cover
s = sum_a exp(l_a) of the LLM's own distribution; u = 1 - s is what it would rather have answered. Three equal
answers have one spectrum whether the LLM gives that answer 99 % or 40 % of its mass: u tells them apart.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

MISSING_MASS_CLIP = 1e-4  # u stays this far from 0 and 1, so that its logit is at most 9.21
# Sums of float32 log-probabilities exceed 0 by rounding. More than this above 0 is no log-probability at all:
# a probability, say, or one with the sign lost; clipping it would serve a confident score made of a mistake.
POSITIVE_ROUNDING = 1e-2
LEAST = -700.0  # its exp, 1e-304, is near the smallest that float64 holds in full


def checked_log_probabilities(totals: ArrayLike) -> Floats:
    """Return log-probabilities of whole answers (m,) in nats, clipped to [-700, 0].

    -inf (an answer that the LLM gives no mass) becomes -700, and what is above 0 by rounding becomes 0.
    Raises ValueError for no values, NaN, +inf, or a value above 0 by more than rounding.

    >>> checked_log_probabilities([-1.5, 1e-7, -np.inf]).tolist()
    [-1.5, 0.0, -700.0]
    """
    values = np.asarray(totals, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"log-probabilities must be a non-empty vector, got shape {values.shape}")
    if not (values <= POSITIVE_ROUNDING).all():  # false for NaN, too
        raise ValueError("a log-probability is not a number or lies above 0")
    return np.clip(values, LEAST, 0.0)


def missing_mass(totals: ArrayLike, index: ArrayLike) -> float:
    """Return u = 1 - sum_a exp(l_a) over the distinct texts a, clipped to [1e-4, 1 - 1e-4].

    totals: (m,) log-probability of each answer drawn, in nats, its last token included; index: (m,) which
    distinct text each is. One text may come with several sums (it can be cut into tokens in several ways, and
    white space around it is dropped): the largest counts. Higher = less certain. Never NaN.
    Raises ValueError as `checked_log_probabilities` does, or for an index that does not fit.

    >>> round(missing_mass(np.log([0.5, 0.5, 0.2]), [0, 0, 1]), 12)
    0.3
    """
    values, text = checked_log_probabilities(totals), np.asarray(index)
    if text.shape != values.shape or text.dtype.kind not in "iu" or text.min() < 0:
        raise ValueError("index must say which distinct text each log-probability belongs to")
    largest = np.full(int(text.max()) + 1, -np.inf)
    # Assigning to `largest[text]` would keep the last of several sums, not the largest.
    np.maximum.at(largest, text, values)
    return float(np.clip(1 - np.exp(largest).sum(), MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP))


def logit_missing_mass(missing: ArrayLike) -> Floats:
    """Return log(u / (1 - u)) of missing masses (n,), clipped first: at most 9.21 from 0.

    Higher = less certain. Raises ValueError for values that are not in [0, 1].
    """
    values = np.asarray(missing, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a missing mass must be in [0, 1]")
    inside = np.clip(values, MISSING_MASS_CLIP, 1 - MISSING_MASS_CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def mean_log_probability(totals: ArrayLike) -> float:
    """Return the mean log-probability of the answers drawn (m,), in [-700, 0] nats. Higher = more certain.

    It is -`text_scores.predictive_entropy`, but never infinite. Raises ValueError as
    `checked_log_probabilities` does.
    """
    return float(checked_log_probabilities(totals).mean())
