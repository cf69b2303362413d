"""Scores of texts: ROUGE-L, lexical similarity, log-probabilities per word.

Sources: Lin, *ROUGE*, 2004 (the share of words that two texts have in common, in order);
Lin, Trivedi, Sun, *Generating with Confidence*, 2023, after Fomicheva et al., 2020 (lexical similarity: do
answers share their words?).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.claims.facts import words

Floats = NDArray[np.float64]


def _f_measure(prediction: list[str], reference: list[str]) -> float:
    from rapidfuzz.distance import LCSseq

    # Not the package rouge-score, which drops all non-ASCII letters.
    common = LCSseq.similarity(prediction, reference)
    return 2.0 * common / (len(prediction) + len(reference)) if common else 0.0


def rouge_l(prediction: str, references: Iterable[str]) -> float:
    """Return the best ROUGE-L F of the prediction over the references, in [0, 1]. Higher = more alike.

    F = 2 LCS / (words in prediction + words in reference). A text without words, or no reference, gives 0.
    """
    predicted = words(prediction)
    return max((_f_measure(predicted, words(reference)) for reference in references), default=0.0)


def correct_by_rouge_l(prediction: str, references: Iterable[str], threshold: float = 0.3) -> bool:
    """Return True if ROUGE-L F exceeds the threshold (strictly): the rule of the paper's experiments.

    Not used for verdicts: of 158 recorded answers that the rule calls right, 65 % are right (method, section
    15). `service.claims.verdicts` makes verdicts.
    """
    return rouge_l(prediction, references) > threshold


def pairwise_rouge_l(texts: Sequence[str]) -> Floats:
    """Return ROUGE-L F (k, k) between the texts, symmetric; 1 on the diagonal, even without words."""
    split = [words(text) for text in texts]
    scores = np.eye(len(split))
    for a, first in enumerate(split):
        for b in range(a):
            scores[a, b] = scores[b, a] = _f_measure(first, split[b])
    return scores


def lexical_similarity(texts: Sequence[str], counts: ArrayLike) -> float:
    """Return the mean ROUGE-L F over pairs of different samples, in [0, 1]. Higher = more certain.

    texts: k distinct answers. counts: (k,), number of samples of each. 1 for a single sample.
    """
    times = np.asarray(counts, dtype=np.float64)
    total = float(times.sum())
    if total < 2:
        return 1.0
    scores = pairwise_rouge_l(texts)
    return float((times @ scores @ times - total) / (total * (total - 1)))


def num_words(texts: Sequence[str]) -> Floats:
    """Return the number of words (m,) of each text, at least 1."""
    return np.array([max(len(words(text)), 1) for text in texts], dtype=np.float64)


def per_word(totals: ArrayLike, texts: Sequence[str]) -> Floats:
    """Return log-probabilities of whole answers (m,) divided by their numbers of words, in nats.

    Their mean separates right from wrong answers (method, section 10); the mean over tokens does not.

    >>> per_word([-3.0, -1.0], ["New York City", "?"]).tolist()
    [-1.0, -1.0]
    """
    return np.asarray(np.asarray(totals, dtype=np.float64) / num_words(texts))
