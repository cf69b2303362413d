"""SmolLM2-135M-Instruct by transformers: tokens of several answers to one prompt, as they are drawn.

The model follows instructions badly and answers briefly only after few-shot text.
"""

import contextlib
import copy
import io
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from filelock import FileLock

from service.llm.prompt import GREEDY_BELOW, Sampling
from service.llm.weights import SMOLLM2, TABLE, WeightsError, find

log = logging.getLogger(__name__)

PREFILL_TOKENS = 512  # prompt tokens between two steps, at each of which a caller may leave
MAX_CONTEXT = 2048  # tokens of prompt and answer together
MAX_KEPT = 4  # recent prompts with a stored cache: few-shot prompts and self-checks share a prefix with them
MAX_BATCH_TOKENS = 32_768  # rows times context of a batch: the cache takes 46 kB per token, so 1.5 GB


def converted_model(cache_dir: Path) -> Path:
    """Return the folder of the float32 model, and convert the model first if the folder does not exist.

    Unpacking a GGUF takes 20 s or more at every load; the converted model loads in a second. The folder
    appears atomically, and a second process waits. Raises WeightsError without the weights.
    """
    entry = TABLE[SMOLLM2]
    target = cache_dir / f"{SMOLLM2}-float32-{entry.sha256[:8]}"
    if not target.is_dir():
        folder = find(SMOLLM2, cache_dir)
        if folder is None:
            raise WeightsError(
                f"The weights {SMOLLM2} are missing: python -m service weights fetch {SMOLLM2}"
            )
        with FileLock(cache_dir / f".{target.name}.lock"):
            if not target.is_dir():  # another process may have converted it
                log.warning("unpacking %s, once: about 20 s", SMOLLM2)
                partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=cache_dir))
                try:
                    _convert(folder / entry.weights, partial)
                    partial.rename(target)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    return target


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    options: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **options)
    with contextlib.redirect_stderr(io.StringIO()):  # the library's progress bar here cannot be turned off
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **options)
    # The weights are plain float32 now. With these attributes they could not be saved and loaded.
    del model.config.quantization_config
    model.hf_quantizer = None
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def quiet_transformers() -> None:
    """Turn off the library's own progress bars and advice."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


# Texts and log-probabilities, the likeliest first. Tokens of half a character have equal texts.
Alternatives = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer.

    `index`: the answer, from 0. `token`: its own text. `logprob`, `alternatives`: the log-probabilities in
    nats of the token and of the likeliest tokens at its place, before sampling temperature, top_k and top_p,
    as in vLLM. `piece`: the text that the answer grows by, maybe empty: half a character and the beginning of
    a stop string wait. `finish_reason`: set for the last token of an answer.
    """

    index: int
    token: str
    logprob: float
    alternatives: Alternatives
    piece: str
    finish_reason: Literal["stop", "length"] | None


@dataclass(slots=True)
class _Answer:
    """An answer that grows. `num_sent`: the characters of its text that its tokens have carried."""

    index: int
    tokens: list[int] = field(default_factory=list)
    num_sent: int = 0


class Model:
    """A causal language model of transformers with its tokenizer.

    The prompt is computed once and its cache is copied to all answers. A prompt that shares a recent prompt's
    prefix reuses its cache. Answers that have ended leave the batch, so short answers are cheap. (`generate`
    of transformers would compute the prompt n times and keep ended answers to the end.)
    `eos`: token ids that end an answer.
    """

    def __init__(self, network: Any, tokenizer: Any, eos: Sequence[int], name: str = SMOLLM2) -> None:
        import torch

        self.name = name
        self._torch = torch
        self._network = network
        self._tokenizer = tokenizer
        self._eos = frozenset(eos)
        self._kept: list[tuple[Sequence[int], Any]] = []  # the last prompts and their caches

    @classmethod
    def load(cls, cache_dir: Path) -> Self:
        """Load the model; the first call converts its weights. Raises WeightsError without the weights."""
        folder = converted_model(cache_dir)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        quiet_transformers()
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        # Up to twice as fast where the processor multiplies bfloat16, and much slower where it does not.
        dtype = torch.bfloat16 if torch.cpu.get_capabilities().get("avx512_bf16") else torch.float32
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        # The ends of a turn and of a text.
        eos = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|endoftext|>")]
        return cls(network.eval(), tokenizer, eos)

    def chat_tokens(self, turns: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to the beginning of the next answer."""
        text = self._tokenizer.apply_chat_template(
            [dict(turn) for turn in turns], tokenize=False, add_generation_prompt=True
        )
        return self.tokens(text)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens of its own; at least one."""
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens or [self._tokenizer.bos_token_id]

    def draw(
        self, prompt: Sequence[int], count: int, sampling: Sampling, num_alternatives: int = 0
    ) -> Iterator[list[Token]]:
        """Yield the next token of each unfinished answer to the prompt; [] after a part of a long prompt.

        Without a seed, randomness comes from the operating system. All calls must come from one thread.
        """
        generator = self._torch.Generator()
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed % 2**63)  # torch accepts at most 63 bits
        size = max(1, MAX_BATCH_TOKENS // (len(prompt) + sampling.max_tokens))
        for start in range(0, count, size):
            answers = [_Answer(index) for index in range(start, min(start + size, count))]
            yield from self._draw(prompt, answers, sampling, generator, num_alternatives)

    def _draw(
        self,
        prompt: Sequence[int],
        active: list[_Answer],
        sampling: Sampling,
        generator: Any,
        num_alternatives: int,
    ) -> Iterator[list[Token]]:
        done, cache = self._begun(prompt)
        for start in range(done, len(prompt), PREFILL_TOKENS):
            yield []
            logits, cache = self._forward([prompt[start : start + PREFILL_TOKENS]], cache)
        self._kept = [*self._kept, (prompt, copy.deepcopy(cache))][-MAX_KEPT:]
        cache.batch_repeat_interleave(len(active))
        logits = logits.expand(len(active), -1)
        while active:
            ids = self._choose(logits, sampling, generator)
            step = [
                self._append(answer, token, *likely, sampling)
                for answer, token, likely in zip(
                    active, ids, self._logprobs(logits, ids, num_alternatives), strict=True
                )
            ]
            yield step
            kept = [i for i, token in enumerate(step) if token.finish_reason is None]
            if kept and len(kept) < len(active):
                cache.batch_select_indices(self._torch.tensor(kept))
            active = [active[i] for i in kept]
            if active:
                logits, cache = self._forward([[ids[i]] for i in kept], cache)

    def _begun(self, prompt: Sequence[int]) -> tuple[int, Any]:
        """Return the length of the longest cached prefix (less than the prompt), and its cache."""
        alike = [_num_alike(earlier, prompt[:-1]) for earlier, _ in self._kept]
        done = max(alike, default=0)
        if not done:
            return 0, None
        earlier, kept = self._kept[alike.index(done)]
        cache = copy.deepcopy(kept)
        cache.crop(done - len(earlier))
        return done, cache

    def _forward(self, tokens: Sequence[Sequence[int]], cache: Any) -> tuple[Any, Any]:
        """Return the float32 logits (rows, vocabulary) after the last token of each row, and the cache."""
        with self._torch.inference_mode():
            ids = self._torch.tensor(tokens)
            output = self._network(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return output.logits[:, -1].float(), output.past_key_values

    def _logprobs(
        self, logits: Any, ids: Sequence[int], num_alternatives: int
    ) -> list[tuple[float, Alternatives]]:
        """Return for each row the log-probability of its token, and the likeliest tokens with theirs."""
        # Logit minus log normalizer. log_softmax would allocate a whole vocabulary per row.
        normalizer = logits.logsumexp(dim=-1, keepdim=True)
        chosen = (logits.gather(1, self._torch.tensor(ids)[:, None]) - normalizer).squeeze(1).tolist()
        values, tokens = logits.topk(num_alternatives, dim=-1)
        likeliest = zip(tokens.tolist(), (values - normalizer).tolist(), strict=True)
        return [
            (logprob, [(self._text(token), value) for token, value in zip(*row, strict=True)])
            for logprob, row in zip(chosen, likeliest, strict=True)
        ]

    def _choose(self, logits: Any, sampling: Sampling, generator: Any) -> list[int]:
        """Return a token per row, sampled from top_k and then from the nucleus."""
        if sampling.temperature < GREEDY_BELOW:
            greedy: list[int] = logits.argmax(dim=-1).tolist()
            return greedy
        scores = logits / sampling.temperature
        if 0 < sampling.top_k < scores.shape[-1]:
            least = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -self._torch.inf)
        if sampling.top_p < 1:
            ordered, order = scores.sort(dim=-1, descending=True)
            share = self._torch.softmax(ordered, dim=-1)
            # A token is kept if the tokens before it do not reach top_p; the first is always kept.
            outside = share.cumsum(dim=-1) - share >= sampling.top_p
            scores = scores.masked_fill(outside.scatter(1, order, outside), -self._torch.inf)
        weights = self._torch.softmax(scores, dim=-1)
        chosen: list[int] = self._torch.multinomial(weights, 1, generator=generator).squeeze(1).tolist()
        return chosen

    def _append(
        self,
        answer: _Answer,
        token: int,
        logprob: float,
        alternatives: Alternatives,
        sampling: Sampling,
    ) -> Token:
        answer.tokens.append(token)
        is_end = token in self._eos
        text = self._text(*(answer.tokens[:-1] if is_end else answer.tokens), skip_special=True)
        places = [place for stop in sampling.stop if (place := text.find(stop)) >= 0]
        reason: Literal["stop", "length"] | None = "stop" if is_end or places else None
        if reason is None and len(answer.tokens) >= sampling.max_tokens:
            reason = "length"
        settled = min(places, default=len(text) if reason else len(text) - _num_held(text, sampling.stop))
        piece = text[answer.num_sent : settled]
        answer.num_sent += len(piece)
        return Token(answer.index, self._text(token), logprob, alternatives, piece, reason)

    def _text(self, *tokens: int, skip_special: bool = False) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return text


def _num_alike(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(a), len(b)))


def _num_held(text: str, stops: Sequence[str]) -> int:
    """Return the length of the end of a text that later tokens may change or cut off."""
    finished = text.rstrip("\ufffd")  # without a character of several tokens
    begun = (n for stop in stops for n in range(1, len(stop)) if finished.endswith(stop[:n]))
    return len(text) - len(finished) + max(begun, default=0)
