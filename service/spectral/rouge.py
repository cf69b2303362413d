"""ROUGE-L (Lin, 2004): an answer is right when it shares enough words, in order, with a reference."""

import re
import unicodedata
from collections.abc import Iterable

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    r"""Return the words of a text in any script: `\w+` after NFKC and case folding.

    Punctuation separates. Scripts written without spaces give one word per run.

    >>> words("Straße, CAFÉ!")
    ['strasse', 'café']
    """
    return WORD.findall(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))


def _f_measure(prediction: list[str], reference: list[str]) -> float:
    from rapidfuzz.distance import LCSseq

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
