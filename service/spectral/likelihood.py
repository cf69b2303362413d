"""Baselines from recorded log-probabilities of the samples.

Source: Malinin, Gales, *Uncertainty Estimation in Autoregressive Structured Prediction*, ICLR 2021.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.rouge import words

Floats = NDArray[np.float64]


def per_word(totals: ArrayLike, texts: Sequence[str]) -> Floats:
    """Return log-probabilities of whole answers (m,) over their numbers of words (at least 1), in nats.

    A stand-in for division by tokens where the number of tokens was not recorded.
    """
    lengths = [max(len(words(text)), 1) for text in texts]
    return np.asarray(np.asarray(totals, dtype=np.float64) / lengths)


def predictive_entropy(log_probabilities: ArrayLike) -> float:
    """Return -mean log p over the samples (m,), a Monte Carlo estimate in nats. Higher = less certain."""
    return -float(np.mean(np.asarray(log_probabilities, dtype=np.float64)))


def best_log_likelihood(normalised: ArrayLike) -> float:
    """Return the largest length-normalised log-probability among the samples (m,). Higher = more certain."""
    return float(np.max(np.asarray(normalised, dtype=np.float64)))
