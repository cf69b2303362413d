"""The log-probabilities that an LLM server tells with its answers. Nonsense in them fails no answer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from service.spectral.missing_mass import POSITIVE_ROUNDING

# Of the completions API, a number of alternatives for each token. vLLM gives the tokens' own at 0; to some
# servers 0 means none at all, and a habit of this name says so: then 1 is sent.
ZERO_LOGPROBS = "logprobs: 0"
# Fields of a message or delta whose text was drawn, too, but is no part of the answer.
BESIDE_ANSWER = ("reasoning", "reasoning_content", "reasoning_details", "tool_calls", "refusal")
MAX_NATS = 1e6  # of one token, either way; servers that floor minus infinity send -9999


def token_logprobs(choice: Mapping[str, Any]) -> list[float | None]:
    """Return the log-probabilities of a choice's (or chunk's) tokens in nats; empty when not told.

    None stands for a token that has none, or nonsense.
    """
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return []
    tokens, values = told.get("content"), told.get("token_logprobs")
    if isinstance(tokens, list) and tokens:
        return [_number(one.get("logprob") if isinstance(one, dict) else None) for one in tokens]
    return [_number(value) for value in values] if isinstance(values, list) else []


def _number(value: object) -> float | None:
    # True is an int to Python, and an int may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MAX_NATS else None


def mean_logprob(values: Sequence[float | None]) -> float | None:
    """Return the mean of those told; None for none."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def total_logprob(values: Sequence[float | None], *, whole: bool) -> tuple[float | None, int | None]:
    """Return the sum in nats and the number of tokens; None twice where the sum would not be the answer's.

    `whole`: whether the answer is all that was drawn. Unlike a mean, a sum without one of the tokens is wrong
    by any amount.
    """
    numbers = [value for value in values if value is not None]
    total = math.fsum(numbers)
    if not whole or not numbers or len(numbers) < len(values) or total > POSITIVE_ROUNDING:
        return None, None
    return total, len(numbers)


def is_beside_answer(choice: Mapping[str, Any]) -> bool:
    """Tell whether a choice or chunk holds text that was drawn and is no part of the answer."""
    message = choice.get("message") or choice.get("delta") or {}
    return any(message.get(name) for name in BESIDE_ANSWER)
