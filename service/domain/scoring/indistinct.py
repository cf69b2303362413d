"""Answers that differ and have one vector: what the embedder cannot tell apart counts as agreement."""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

EQUAL_COSINE = 1 - 1e-6
IGNORED = frozenset("PZMC")  # Unicode categories: punctuation, spaces, marks, control characters


def num_indistinct(texts: Sequence[str], vectors: NDArray[np.float32]) -> int:
    """Return how many distinct texts have the vector of another that says something else, 0..len(texts).

    vectors: unit rows (k, d). Texts that differ in case, accents, spaces and punctuation alone say the same.
    """
    first, second = np.nonzero(np.triu(vectors @ vectors.T > EQUAL_COSINE, 1))
    said = cache(essence)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return len({i for pair in pairs if said(texts[pair[0]]) != said(texts[pair[1]]) for i in pair})


def essence(text: str) -> str:
    """Return the text without case, accents, spaces and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    dropped = (ord(char) for char in set(plain) if unicodedata.category(char)[0] in IGNORED)
    return plain.translate(dict.fromkeys(dropped))
