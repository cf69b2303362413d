"""The answers of an LLM."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import regex
from numpy.typing import NDArray

from service.spectral.evidence import checked_log_probabilities

# The code points at the end are invisible, or the replacement character, but count as letters or signs.
_VISIBLE = regex.compile(r"[^\p{Cc}\p{Cf}\p{Z}\p{M}\u115f\u1160\u2800\u3164\uffa0\ufffd]")

_THOUGHT = r"\w*[:_]?think(?:ing)?|reasoning|thoughts?"
# Begin and end marks of reasoning, by model.
_MARKS = (
    # With attributes, or cut before the end of the mark.
    (rf"<(?:{_THOUGHT})(?:\s[^>]*)?(?:>|\Z)", rf"</(?:{_THOUGHT})\s*>"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|channel>thought|<unused94>thought", r"<channel\|>|<unused95>"),  # Gemma
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|thinking\|>", r"<\|/thinking\|>"),
    # The harmony format of gpt-oss.
    (r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final.*?<\|message\|>"),
)
_THOUGHT_BEGINS, _THOUGHT_ENDS = (
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\A[\s\u200b\u2060\ufeff]*(?:{'|'.join(begin for begin, _ in _MARKS)})",
        "|".join(end for _, end in _MARKS),
    )
)
# Marks around the answer after the reasoning.
_AROUND = re.compile(
    r"\A\s*<\|(?:START_(?:RESPONSE|TEXT)|begin_of_solution)\|>"
    r"|<\|(?:END_RESPONSE|END_TEXT|end_of_solution|return|end)\|>\s*\Z"
)
# Tool calls in the text, from servers that do not parse them. A text of only tool calls is not an answer.
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)


def is_blank(text: str) -> bool:
    """Return True if all characters are invisible: white space, zero-width and control characters, marks."""
    return _VISIBLE.search(text) is None


def answer_in(output: str) -> str:
    """Return an LLM's output without leading reasoning.

    It is "" if a block is not closed, or only tool calls remain. Some chat templates open the block in the
    prompt, so a closing tag without an opening one also ends it.
    """
    # Servers that cut a text between two tokens may send half a surrogate pair.
    text = output.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if end := _THOUGHT_ENDS.search(text):  # the first one: an answer may itself speak of the tag
        text = text[end.end() :]
    while _THOUGHT_BEGINS.match(text):
        end = _THOUGHT_ENDS.search(text)
        text = text[end.end() :] if end else ""
    text = _AROUND.sub("", text)
    return text if _CALL.sub("", text).strip() else ""


@dataclass(frozen=True, slots=True)
class Draw:
    """One sampled answer, without reasoning and surrounding white space; maybe empty.

    `truncated`: cut by max_tokens. `logprob`: mean log-probability per token in nats, if known.
    `total_logprob`: log-probability of the whole answer in nats, including the token that ended it; None if
    unknown, or if the answer is only a part of the output. `num_tokens`: of the whole output, if known.
    `logprobs_of_other_text`: log-probabilities were dropped because their tokens do not spell the text.
    `first_tokens`: the likeliest first tokens with their log-probabilities in nats, where asked for.
    """

    text: str
    truncated: bool = False
    logprob: float | None = None
    total_logprob: float | None = None
    num_tokens: int | None = None
    logprobs_of_other_text: bool = False
    first_tokens: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the LLM server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """The answers to a request.

    `model`: the model of all answers, as the server names it; "" for supplied answers.
    `queued_s`: how long the request waited for a permit, in seconds.
    `omitted`: see `LLMIdentity`. `num_empty`: answers without text, which are left out of `draws` as failed.
    `max_tokens`: the token limit if the request's fallback was used, else None.
    """

    draws: tuple[Draw, ...]
    model: str
    usage: Usage = Usage()
    queued_s: float = 0.0
    omitted: tuple[str, ...] = ()
    num_empty: int = 0
    max_tokens: int | None = None


def distinct(answers: Sequence[str]) -> tuple[list[str], NDArray[np.int_]]:
    """Return the distinct answers in order of appearance and, for each answer, the index of its text (m,)."""
    order: dict[str, int] = {}
    index = [order.setdefault(answer, len(order)) for answer in answers]
    return list(order), np.asarray(index, dtype=np.int_)


def with_candidate(texts: Sequence[str], candidate: str | None) -> list[str]:
    """Return the distinct answers and, last, the candidate unless it is one of them."""
    return [*texts] if candidate is None or candidate in texts else [*texts, candidate]


def supplied_draws(samples: Sequence[str], logprobs: Sequence[float] | None = None) -> tuple[Draw, ...]:
    """Return the caller's answers as draws, stripped like the service's own, so a blank answer is empty.

    logprobs: of each whole answer, in nats. Raises ValueError unless there is one per answer.
    """
    totals = [None] * len(samples) if logprobs is None else logprobs
    return tuple(Draw(text.strip(), total_logprob=total) for text, total in zip(samples, totals, strict=True))


def usable(draws: Sequence[Draw]) -> tuple[Draw, ...]:
    """Return the draws that count as answers: those that are not blank."""
    return tuple(draw for draw in draws if not is_blank(draw.text))


def totals(draws: Sequence[Draw]) -> tuple[float, ...] | None:
    """Return the log-probability of each whole answer in nats; None if one is missing, or without draws."""
    values = tuple(draw.total_logprob for draw in draws if draw.total_logprob is not None)
    return values if draws and len(values) == len(draws) else None


def log_probabilities(draws: Sequence[Draw]) -> NDArray[np.float64] | None:
    """Return the log-probability of each whole answer (m,), in [-700, 0] nats.

    None unless every answer has a valid one (not NaN, not above 0).
    """
    values = [math.nan if draw.total_logprob is None else draw.total_logprob for draw in draws]
    try:
        return checked_log_probabilities(values)
    except ValueError:
        return None
