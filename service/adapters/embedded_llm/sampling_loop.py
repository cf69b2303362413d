"""Draws n continuations of one prompt from a causal language model of transformers, row by row.

The prompt goes through the model once and its cache is shared out to the n rows; rows that have ended leave
the batch, so short answers are cheap; stop strings, deadline and cancellation are seen at every token.
(`generate` of transformers would compute the prompt n times and carry ended rows to the end.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFILL_TOKENS = 512  # prompt tokens between two looks at the clock


class StoppedError(Exception):
    """The drawing was told to stop before all rows had ended."""


@dataclass(slots=True)
class Continuation:
    """One continuation. `text` is set, and cut before a stop string, once the row has ended.

    `total_logprob`: the log-probability of all `tokens` under the model itself, in nats: before sampling
    temperature, top_k and top_p, as vLLM tells it.
    """

    tokens: list[int] = field(default_factory=list)
    total_logprob: float = 0.0
    text: str = ""
    ended: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tokens are drawn and when a row ends.

    `top_k` 0: all tokens; `temperature` 0: greedy. `eos`: token ids that end a row.
    """

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    stop: tuple[str, ...]
    eos: frozenset[int]


class Sampler:
    """A model and its tokenizer; all calls must come from one thread."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        import torch

        self._torch = torch
        self._model = model
        self._tokenizer = tokenizer

    def draw(
        self,
        prompt: Sequence[int],
        rows: Sequence[Continuation],
        decoding: Decoding,
        *,
        seed: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fill the rows with continuations of the prompt's tokens; those ended stay if it is stopped.

        Without a seed the draws come from the operating system's randomness. Raises StoppedError.
        """
        generator = self._torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed % 2**63)  # torch takes no more bits
        with self._torch.inference_mode():
            logits, cache = self._prefill(prompt, stopped)
            cache.batch_repeat_interleave(len(rows))
            self._continue(list(rows), logits.expand(len(rows), -1), cache, decoding, generator, stopped)

    def _prefill(self, prompt: Sequence[int], stopped: Callable[[], bool]) -> tuple[Any, Any]:
        output = cache = None
        for start in range(0, len(prompt), PREFILL_TOKENS):
            _look(stopped)
            output = self._forward([list(prompt[start : start + PREFILL_TOKENS])], cache)
            cache = output.past_key_values
        if output is None:
            raise ValueError("The prompt has no tokens.")
        return output.logits[:, -1], cache

    def _continue(
        self,
        active: list[Continuation],
        logits: Any,
        cache: Any,
        decoding: Decoding,
        generator: Any,
        stopped: Callable[[], bool],
    ) -> None:
        while True:
            tokens = self._choose(logits, decoding, generator)
            logprobs = self._logprobs(logits, tokens)
            for row, token, logprob in zip(active, tokens, logprobs, strict=True):
                row.total_logprob += logprob
                self._append(row, token, decoding)
            kept = [i for i, row in enumerate(active) if not row.ended]
            if not kept:
                return
            _look(stopped)
            if len(kept) < len(active):  # rows that have ended take no time from here on
                active, tokens = [active[i] for i in kept], [tokens[i] for i in kept]
                cache.batch_select_indices(self._torch.tensor(kept))
            output = self._forward([[token] for token in tokens], cache)
            logits, cache = output.logits[:, -1], output.past_key_values

    def _forward(self, tokens: list[list[int]], cache: Any) -> Any:
        ids = self._torch.tensor(tokens)
        return self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def _choose(self, logits: Any, decoding: Decoding, generator: Any) -> list[int]:
        if decoding.temperature == 0:
            greedy: list[int] = logits.argmax(dim=-1).tolist()
            return greedy
        weights = self._torch.softmax(self._kept(logits / decoding.temperature, decoding), dim=-1)
        chosen: list[int] = self._torch.multinomial(weights, 1, generator=generator).squeeze(1).tolist()
        return chosen

    def _logprobs(self, logits: Any, tokens: list[int]) -> list[float]:
        # A token's logit less the log of the normaliser: a log_softmax would make a whole vocabulary a row.
        chosen = logits.gather(1, self._torch.tensor(tokens)[:, None]).squeeze(1)
        values: list[float] = (chosen - logits.logsumexp(dim=-1)).tolist()
        return values

    def _kept(self, scores: Any, decoding: Decoding) -> Any:
        """Return the scores with those outside top_k, then outside the nucleus, at minus infinity."""
        if 0 < decoding.top_k < scores.shape[-1]:
            least = scores.topk(decoding.top_k, dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -self._torch.inf)
        if decoding.top_p < 1:
            ordered, order = scores.sort(dim=-1, descending=True)
            share = self._torch.softmax(ordered, dim=-1)
            # A token stays when those before it do not reach top_p yet: the first always does.
            outside = share.cumsum(dim=-1) - share >= decoding.top_p
            scores = scores.masked_fill(outside.scatter(1, order, outside), -self._torch.inf)
        return scores

    def _append(self, row: Continuation, token: int, decoding: Decoding) -> None:
        row.tokens.append(token)
        if token in decoding.eos:
            self._end(row, row.tokens[:-1])
        elif decoding.stop and self._stops(row.tokens, decoding.stop):
            self._end(row, row.tokens)
            row.text = row.text[: min(row.text.find(stop) for stop in decoding.stop if stop in row.text)]
        elif len(row.tokens) >= decoding.max_tokens:
            self._end(row, row.tokens)
            row.truncated = True

    def _stops(self, tokens: list[int], stop: tuple[str, ...]) -> bool:
        # A token adds a byte at least: a stop string that ends with this one lies within so many tokens.
        reach = max(len(text.encode()) for text in stop)
        # Four more, for a character cut in two at the beginning. The whole text is decoded on a hit alone.
        tail = self._decode(tokens[-reach - 4 :])
        return any(text in tail for text in stop) and any(text in self._decode(tokens) for text in stop)

    def _end(self, row: Continuation, tokens: list[int]) -> None:
        row.text = self._decode(tokens)
        row.ended = True

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _look(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise StoppedError
