"""Scores of texts: right or wrong by ROUGE-L, lexical similarity, recorded log-probabilities.

Sources: Lin, *ROUGE*, 2004 (an answer is right when it shares enough words, in order, with a reference);
Lin, Trivedi, Sun, *Generating with Confidence*, 2023, after Fomicheva et al., 2020 (lexical similarity: do
answers share their words?); Malinin, Gales, *Uncertainty Estimation in Autoregressive Structured Prediction*,
ICLR 2021 (scores of log-probabilities).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    r"""Return the words of a text in any script: `\w+` after NFKC and case folding.

    Punctuation separates. Scripts written without spaces give one word per run.

    >>> words("Straße, CAFÉ!")
    ['strasse', 'café']
    """
    # Twice: case folding may undo the normal form.
    return WORD.findall(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))


def _f_measure(prediction: list[str], reference: list[str]) -> float:
    from rapidfuzz.distance import LCSseq

    # Not the package rouge-score, which drops every letter that is not ASCII.
    common = LCSseq.similarity(prediction, reference)
    return 2.0 * common / (len(prediction) + len(reference)) if common else 0.0


def rouge_l(prediction: str, references: Iterable[str]) -> float:
    """Return the best ROUGE-L F of the prediction over the references, in [0, 1]. Higher = more alike.

    F = 2 LCS / (words in prediction + words in reference). A text without words, or no reference, gives 0.
    """
    said = words(prediction)
    return max((_f_measure(said, words(reference)) for reference in references), default=0.0)


def correct(prediction: str, references: Iterable[str], threshold: float = 0.3) -> bool:
    """Return whether ROUGE-L F exceeds the threshold (strictly) for the best of the references."""
    return rouge_l(prediction, references) > threshold


def pairwise_rouge_l(texts: Sequence[str]) -> Floats:
    """Return ROUGE-L F (k, k) between the texts, symmetric; 1 on the diagonal, whatever the text."""
    said = [words(text) for text in texts]
    scores = np.eye(len(said))
    for a, first in enumerate(said):
        for b in range(a):
            scores[a, b] = scores[b, a] = _f_measure(first, said[b])
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
