"""Discrete semantic entropy: the entropy of the shares of answers that mean the same.

Source: Farquhar, Kossen, Kuhn, Gal, *Detecting hallucinations in large language models using semantic
entropy*, Nature 2024. Which answers mean the same is for the caller to say (an NLI model, or a stand-in):
here it comes as a matrix.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


def semantic_classes(equivalent: ArrayLike) -> Ints:
    """Return the class (k,) in 0 .. K - 1 of each of k distinct answers, in their order.

    equivalent: (k, k) bool; [a, b] says that a and b mean the same (both directions). An answer joins the
    first class whose first member it is equivalent to, else it begins one: the greedy rule of the source.
    Raises ValueError for a matrix that is not square.
    """
    same = np.asarray(equivalent, dtype=np.bool_)
    if same.ndim != 2 or same.shape[0] != same.shape[1]:
        raise ValueError(f"equivalences must be square, got shape {same.shape}")
    firsts: list[int] = []
    labels = np.empty(same.shape[0], dtype=np.intp)
    for one in range(same.shape[0]):
        joined = next((c for c, first in enumerate(firsts) if same[one, first] and same[first, one]), None)
        if joined is None:
            joined = len(firsts)
            firsts.append(one)
        labels[one] = joined
    return labels


def class_shares(labels: Ints, counts: ArrayLike) -> Floats:
    """Return the share (K,) of the samples in each class; counts (k,): how often each answer came."""
    mass = np.bincount(labels, weights=np.asarray(counts, dtype=np.float64))
    return np.asarray(mass / mass.sum())


def discrete_entropy(shares: ArrayLike) -> float:
    """Return -sum p log p in nats, in [0, log K], 0 log 0 = 0. Higher = less certain.

    >>> discrete_entropy([1.0])
    0.0
    """
    p = np.asarray(shares, dtype=np.float64)
    p = p[p > 0]
    return max(0.0, -float(p @ np.log(p)))  # in this order: never -0.0


def semantic_entropy(equivalent: ArrayLike, counts: ArrayLike) -> float:
    """Return the discrete semantic entropy of k distinct answers that came `counts` (k,) times, in nats."""
    return discrete_entropy(class_shares(semantic_classes(equivalent), counts))
