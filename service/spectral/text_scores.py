"""Scores of texts: right or wrong by ROUGE-L, lexical similarity, log-probabilities per word.

Sources: Lin, *ROUGE*, 2004 (an answer is right when it shares enough words, in order, with a reference);
Lin, Trivedi, Sun, *Generating with Confidence*, 2023, after Fomicheva et al., 2020 (lexical similarity: do
answers share their words?).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

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
    predicted = words(prediction)
    return max((_f_measure(predicted, words(reference)) for reference in references), default=0.0)


# Said of what follows or stands before in the same clause, it takes it back (en, de, fr, es, it, pt).
_NEGATION = re.compile(
    r"(?<!\w)(?:not|never|no|none|nor|neither|without|cannot|unlike|except|false|wrong|incorrect|nicht|kein\w*"
    r"|nie|niemals|weder|ne|pas|jamais|aucune?|nunca|jamás|sin|non|não|nem|niet|geen|inte|ikke|не|нет"
    r"|hardly|formerly|used to be|myth|opposite)(?!\w)"
    r"|n['’]t(?!\w)|(?<!\w)n['’]|(?:instead of|rather than|other than)\s"
)
_OR = re.compile(r"(?<!\w)(?:or|either|oder|entweder|ou|soit|o(?!['’]))(?!\w)")
_SIGNED = re.compile(r"\s*[-−]\d")
_SIGN, _NO_SIGN = r"(?<=[-−])", r"(?<!\d[.,'’:])(?<!(?<!\w)[-−])(?<!minus )"
_NO_DIGITS = r"(?![.,'’:]\d)"
_CLAUSE_END = re.compile(r"[.!?:](?=\s|$)|[,;()\n]|(?<!\w)(?:but|sondern|aber|mais|pero|sino|ma|mas)(?!\w)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_PIECE_END = re.compile(r"[,;\n]")
MAX_PIECE_WORDS, MIN_PIECES = 3, 3
# They stand in many an answer that does not mean them.
_EVERYWHERE = frozenset(
    words(
        "yes no true false ja nein oui non si sí sì não sim wahr falsch vrai faux "
        "it us the he she we they i you who this that is are was in on of and to a an"
    )
)


def contains(prediction: str, reference: str) -> bool:
    """Return whether the reference stands whole, word for word, in a longer answer that means it.

    It does not where a negation stands in its clause ("not Berlin", "Berlin isn't"), or its sentence says
    "or", or the answer is a list of short pieces ("Berlin, Paris, Rome"), or the reference is one character,
    yes, no, or a word that is everywhere.

    Not caught, so taken for right: doubt ("I doubt that it is Berlin"), a negation in another clause ("Some
    say Berlin. That is an error."), alternatives in several sentences, a name within another ("New York" in
    "New York Times"). Not seen, so left to ROUGE-L: other wordings, double negations, scripts without spaces.

    >>> contains("The capital of Germany is Berlin.", "Berlin"), contains("It is not Berlin.", "Berlin")
    (True, False)
    """
    predicted, wanted = words(prediction), words(reference)
    letters = "".join(wanted)
    if len(wanted) >= len(predicted) or len(letters) < 2 or letters in _EVERYWHERE or _is_list(prediction):
        return False
    # As `words` folds it, so that a word is the same in both.
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", prediction).casefold())
    # A number is whole with its sign, its groups of digits and its decimals.
    sign = _SIGN if _SIGNED.match(reference) else _NO_SIGN
    before, after = sign if wanted[0].isdecimal() else "", _NO_DIGITS if wanted[-1].isdecimal() else ""
    whole = re.compile(rf"{before}(?<!\w)" + r"\W+".join(map(re.escape, wanted)) + rf"(?!\w){after}")
    return any(_is_meant(text, match.start(), match.end()) for match in whole.finditer(text))


def _is_list(prediction: str) -> bool:
    sizes = [len(words(piece)) for piece in _PIECE_END.split(prediction)]
    filled = [size for size in sizes if size]
    return len(filled) >= MIN_PIECES and max(filled) <= MAX_PIECE_WORDS


def _is_meant(text: str, start: int, end: int) -> bool:
    clause = _around(text, start, end, _CLAUSE_END)
    sentence = _around(text, start, end, _SENTENCE_END)
    beside = text[:start].rstrip()[-1:] + text[end:].lstrip()[:1]
    asked = text[end:].partition("?")[1] and not _SENTENCE_END.search(text[end:].partition("?")[0])
    return not (_NEGATION.search(clause) or _OR.search(sentence) or "/" in beside or asked)


def _around(text: str, start: int, end: int, ends: re.Pattern[str]) -> str:
    """Return what stands before and after a passage, as far as the next end on either side."""
    before, after = ends.split(text[:start])[-1], ends.split(text[end:], maxsplit=1)[0]
    return f"{before} | {after}"


def too_long(prediction: str, references: Sequence[str], threshold: float = 0.3) -> bool:
    """Return whether the answer has so many words that none of the references could reach ROUGE-L's F."""
    length = len(words(prediction))
    longest = max((len(words(one)) for one in references), default=0)
    return 2 * longest <= threshold * (length + longest)


Why = Literal["rouge_l", "reference_contained", "none"]


def why_correct(prediction: str, references: Sequence[str], threshold: float = 0.3) -> Why:
    """Return what makes the answer right: its ROUGE-L F, or a reference in it; "none": it is wrong."""
    if rouge_l(prediction, references) > threshold:
        return "rouge_l"
    return "reference_contained" if any(contains(prediction, one) for one in references) else "none"


def correct(
    prediction: str, references: Iterable[str], threshold: float = 0.3, *, containment: bool = True
) -> bool:
    """Return whether ROUGE-L F exceeds the threshold (strictly) for the best of the references.

    containment: or one of them stands in the answer, see `contains`. Without it, this is the rule of the
    paper, on which published figures rest.
    """
    known = list(references)
    if not containment:
        return rouge_l(prediction, known) > threshold
    return why_correct(prediction, known, threshold) != "none"


def pairwise_rouge_l(texts: Sequence[str]) -> Floats:
    """Return ROUGE-L F (k, k) between the texts, symmetric; 1 on the diagonal, whatever the text."""
    split = [words(text) for text in texts]
    scores = np.eye(len(split))
    for a, first in enumerate(split):
        for b in range(a):
            scores[a, b] = scores[b, a] = _f_measure(first, split[b])
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


def num_words(texts: Sequence[str]) -> Floats:
    """Return the number of words (m,) of each text, at least 1."""
    return np.array([max(len(words(text)), 1) for text in texts], dtype=np.float64)


def per_word(totals: ArrayLike, texts: Sequence[str]) -> Floats:
    """Return log-probabilities of whole answers (m,) over their numbers of words, in nats.

    Their mean tells right answers from wrong ones (method, section 10); over tokens it does not.

    >>> per_word([-3.0, -1.0], ["New York City", "?"]).tolist()
    [-1.0, -1.0]
    """
    return np.asarray(np.asarray(totals, dtype=np.float64) / num_words(texts))
