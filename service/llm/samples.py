"""The answers of an LLM."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import regex

from service.llm.reasoning import strip_reasoning

# The code points at the end are invisible, or the replacement character, but count as letters or signs.
_VISIBLE = regex.compile(r"[^\p{Cc}\p{Cf}\p{Z}\p{M}\u115f\u1160\u2800\u3164\uffa0\ufffd]")


def is_blank(text: str) -> bool:
    """Return True if all characters are invisible: white space, zero-width and control characters, marks."""
    return _VISIBLE.search(text) is None


@dataclass(frozen=True, slots=True)
class Draw:
    """One sampled answer: the raw output, or the `answer` in it.

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

    def answer(self) -> "Draw":
        """Return the answer in a raw output, without reasoning and surrounding white space; maybe empty."""
        # Servers that cut a text between two tokens may send half a surrogate pair.
        text = self.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = strip_reasoning(text)
        # The log-probability of the output belongs to the answer only if the answer is the whole output.
        total = self.total_logprob if text == self.text else None
        return replace(self, text=text.strip(), total_logprob=total)


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
