"""What the caller should know of the answers that a score rests on."""

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from service.domain.models import Generation
from service.domain.scoring.model import ScoreCommand, ScoreWarning

TRUNCATED_SHARE = 0.5  # of the answers cut by max_tokens, from which on a score warns
EQUAL_COSINE = 1 - 1e-6
IGNORED = frozenset("PZMC")  # Unicode categories: punctuation, spaces, marks, control characters


def partial(generation: Generation) -> list[ScoreWarning]:
    """Return a warning when fewer answers count than were asked for."""
    usable, empty, asked = len(generation.draws), generation.num_empty, generation.requested
    if usable >= asked:
        return []
    came = usable + empty
    why = "before the deadline" if generation.missing_reason == "deadline" else "without an error"
    said = [f"{came} of {asked} answers came {why}"] if came < asked else []
    if empty:
        said.append(f"{empty} of {came} answers hold no text (only reasoning, a tool call, or nothing)")
    rest = f"the {usable} others" if empty else "those"
    return [ScoreWarning("partial_samples", f"{', and '.join(said)}; the score rests on {rest}.")]


def truncated(generation: Generation, command: ScoreCommand) -> list[ScoreWarning]:
    """Return a warning when half of the answers or more were cut: their meaning may not have come yet."""
    cut, came = sum(draw.truncated for draw in generation.draws), len(generation.draws)
    if command.generation is None or cut < TRUNCATED_SHARE * came:
        return []
    limit = command.generation.sampling.max_tokens
    message = (
        f"{cut} of {came} answers were cut by max_tokens ({limit}); the score rests on their beginnings. "
        "Allow more tokens, or have the model answer more briefly."
    )
    return [ScoreWarning("truncated_samples", message)]


def indistinct(alike: int, distinct_: int) -> list[ScoreWarning]:
    """Return a warning when the embedder cannot tell `alike` distinct answers from others that differ."""
    if not alike:
        return []
    message = (
        f"The embedder cannot tell {alike} of the {distinct_} distinct answers from others that say other "
        "things (characters unknown to it, or texts equal as far as it reads): they count as agreement."
    )
    return [ScoreWarning("indistinct_answers", message)]


def num_indistinct(texts: Sequence[str], vectors: NDArray[np.float32]) -> int:
    """Return how many distinct texts have the vector of another that says something else, 0..len(texts).

    vectors: unit rows (k, d). Texts that differ in case, accents, spaces and punctuation alone say the same.
    """
    # Above the diagonal alone: each pair once, and none with itself.
    first, second = np.nonzero(np.triu(vectors @ vectors.T > EQUAL_COSINE, 1))
    said = cache(essence)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return len({i for pair in pairs if said(texts[pair[0]]) != said(texts[pair[1]]) for i in pair})


def essence(text: str) -> str:
    """Return the text without case, accents, spaces and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    dropped = (ord(char) for char in set(plain) if unicodedata.category(char)[0] in IGNORED)
    return plain.translate(dict.fromkeys(dropped))
