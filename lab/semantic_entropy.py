"""Entropies of meanings: discrete semantic entropy, and kernel language entropy.

The caller decides which answers mean the same (by an NLI model, or a substitute) and passes a matrix.

Sources: Farquhar, Kossen, Kuhn, Gal, *Detecting hallucinations in large language models using semantic
entropy*, Nature 2024 (the entropy of the shares of answers that mean the same); Nikitin, Kossen, Gal,
Marttinen, *Kernel Language Entropy: Fine-grained Uncertainty Quantification for LLMs from Semantic
Similarities*, NeurIPS 2024 (the von Neumann entropy of the heat kernel over a graph with one node per sample:
an answer drawn five times gives five nodes).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

HEAT_TIME = 0.3  # t of exp(-t L), as in the experiments of the source
ROUNDING = 1e-12  # eigenvalues up to this are 0 up to rounding, even if negative


def semantic_classes(equivalent: ArrayLike) -> Ints:
    """Return the class (k,) in 0 .. K - 1 of each of k distinct answers, in their order.

    equivalent: (k, k) bool, True if answers a and b mean the same (both directions). By the greedy rule of
    the source, an answer joins the first class with an equivalent first member, or starts a new class.
    Raises ValueError for a matrix that is not square.
    """
    same = np.asarray(equivalent, dtype=np.bool_)
    if same.ndim != 2 or same.shape[0] != same.shape[1]:
        raise ValueError(f"equivalences must be square, got shape {same.shape}")
    firsts: list[int] = []
    labels = np.empty(same.shape[0], dtype=np.intp)
    for answer in range(same.shape[0]):
        joined = next(
            (c for c, first in enumerate(firsts) if same[answer, first] and same[first, answer]), None
        )
        if joined is None:
            joined = len(firsts)
            firsts.append(answer)
        labels[answer] = joined
    return labels


def class_shares(labels: Ints, counts: ArrayLike) -> Floats:
    """Return the share (K,) of the samples in each class. counts: (k,), number of samples of each answer."""
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
    """Return the discrete semantic entropy of k distinct answers drawn `counts` (k,) times, in nats."""
    return discrete_entropy(class_shares(semantic_classes(equivalent), counts))


def sample_graph(similarity: ArrayLike, index: NDArray[np.int_]) -> Floats:
    """Return the weights (m, m) between samples from those of the distinct answers (k, k), diagonal 0.

    similarity: >= 0, symmetric after averaging both directions. index: (m,), the answer of each sample.
    Raises ValueError for weights that are negative or not finite.
    """
    weights = np.asarray(similarity, dtype=np.float64)
    if not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
        raise ValueError("weights must be finite and not negative")
    graph = ((weights + weights.T) / 2)[np.ix_(index, index)]
    np.fill_diagonal(graph, 0.0)  # loops would cancel in the Laplacian
    return graph


def heat_kernel(graph: ArrayLike, time: float = HEAT_TIME) -> Floats:
    """Return exp(-t L) (m, m), symmetric and positive definite, with L = diag(row sums) - weights.

    Raises ValueError unless time > 0.
    """
    if not time > 0:
        raise ValueError("the heat kernel's time must be positive")
    weights = np.asarray(graph, dtype=np.float64)
    values, columns = np.linalg.eigh(np.diag(weights.sum(axis=1)) - weights)
    return np.asarray((columns * np.exp(-time * values)) @ columns.T)


def kernel_entropy(kernel: ArrayLike) -> float:
    """Return the von Neumann entropy in nats of a kernel (m, m) scaled to unit diagonal and trace 1.

    In [0, log m]. Higher = less certain.
    """
    matrix = np.asarray(kernel, dtype=np.float64)
    scale = np.sqrt(np.diagonal(matrix))
    values = np.linalg.eigvalsh(matrix / scale[:, None] / scale / matrix.shape[0])
    values = values[values > ROUNDING]
    return max(-float(values @ np.log(values)), 0.0)


def kernel_language_entropy(similarity: ArrayLike, index: NDArray[np.int_], time: float = HEAT_TIME) -> float:
    """Return the entropy of the heat kernel over the graph of the samples; arguments as in `sample_graph`."""
    return kernel_entropy(heat_kernel(sample_graph(similarity, index), time))
