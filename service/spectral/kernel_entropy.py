"""Kernel language entropy: von Neumann entropy of the heat kernel over a graph of the sampled answers.

Source: Nikitin, Kossen, Gal, Marttinen, *Kernel Language Entropy: Fine-grained Uncertainty Quantification for
LLMs from Semantic Similarities*, NeurIPS 2024. The graph has one node per sample, so an answer that came five
times is five nodes.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

HEAT_TIME = 0.3  # t of exp(-t L), as in the source's own experiments
ROUNDING = 1e-12


def sample_graph(similarity: ArrayLike, index: NDArray[np.int_]) -> Floats:
    """Return the weights (m, m) between samples from those of the distinct answers (k, k), diagonal 0.

    similarity: >= 0, symmetric after averaging both directions; index: (m,) which answer each sample is.
    Raises ValueError for weights that are negative or not finite.
    """
    weights = np.asarray(similarity, dtype=np.float64)
    if not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
        raise ValueError("weights must be finite and not negative")
    graph = ((weights + weights.T) / 2)[np.ix_(index, index)]
    np.fill_diagonal(graph, 0.0)
    return graph


def heat_kernel(graph: ArrayLike, time: float = HEAT_TIME) -> Floats:
    """Return exp(-t L) (m, m), L = diag(row sums) - weights: symmetric, positive definite.

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
