"""Lexical similarity: do the answers share their words? Mean pairwise ROUGE-L over the samples.

Source: Lin, Trivedi, Sun, *Generating with Confidence*, 2023, after Fomicheva et al., 2020.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.rouge import words

Floats = NDArray[np.float64]


def pairwise_rouge_l(texts: Sequence[str]) -> Floats:
    """Return ROUGE-L F (k, k) between the texts, symmetric; 1 on the diagonal, whatever the text."""
    from rapidfuzz.distance import LCSseq

    said = [words(text) for text in texts]
    scores = np.eye(len(said))
    for a, first in enumerate(said):
        for b in range(a):
            common = LCSseq.similarity(first, said[b])
            scores[a, b] = scores[b, a] = 2.0 * common / (len(first) + len(said[b])) if common else 0.0
    return scores


def lexical_similarity(texts: Sequence[str], counts: ArrayLike) -> float:
    """Return the mean ROUGE-L F over pairs of different samples, in [0, 1]. Higher = more certain.

    texts: k distinct answers; counts: (k,) how often each came. One sample has no pair: 1.
    """
    times = np.asarray(counts, dtype=np.float64)
    total = float(times.sum())
    if total < 2:
        return 1.0
    scores = pairwise_rouge_l(texts)
    return float((times @ scores @ times - total) / (total * (total - 1)))
