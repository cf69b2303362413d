"""How many texts a model is given at once: few enough that other callers' texts get in between."""

from collections.abc import Iterator, Sequence

MOST_TEXTS = 64
# Tokens, padding counted. On two CPU cores all-mpnet-base-v2 works on these for a second or two; accelerators
# are far faster, and want more at once.
BUDGET = {"cpu": 1024}
BUDGET_OF_OTHERS = 32_768
BYTES_PER_TOKEN = 3  # English has 4, Chinese 3, code and digits fewer


def budget_on(device: object) -> int:
    """Return the most tokens at once on a torch device."""
    return BUDGET.get(str(device).partition(":")[0], BUDGET_OF_OTHERS)


def chunks(texts: Sequence[str], longest: int | None, budget: int) -> Iterator[list[int]]:
    """Yield places of texts of like length: at most MOST_TEXTS, and `budget` tokens unless it is one text.

    `longest`: tokens at which the model cuts a text; None: never. Shortest first, so that padding is small.
    """
    tokens = [tokens_of(text, longest) for text in texts]
    chunk: list[int] = []
    for i in sorted(range(len(texts)), key=lambda i: (tokens[i], len(texts[i]))):
        if chunk and (len(chunk) == MOST_TEXTS or (len(chunk) + 1) * tokens[i] > budget):
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def tokens_of(text: str, longest: int | None) -> int:
    """Return about how many tokens a text has after the cut at `longest`."""
    about = 2 + len(text.encode(errors="replace")) // BYTES_PER_TOKEN
    return about if longest is None else min(about, longest)
