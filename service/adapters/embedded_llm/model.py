"""SmolLM2-135M-Instruct in process, behind the port LanguageModel: for a first try without any server.

It follows instructions badly and answers briefly only after few-shot text, so that is its default.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from service.adapters.embedded_llm.gguf import OnStep, converted_model, quiet_transformers
from service.adapters.embedded_llm.sampling_loop import Continuation, Decoding, Sampler, StoppedError
from service.adapters.llm.prompting import FEW_SHOT, PromptShape, api_of
from service.adapters.llm.wire import spread_seed
from service.adapters.weights.table import SMOLLM2
from service.domain.errors import DeadlineExceeded, LLMError, LLMUnavailable, ModelNotFound, Overloaded
from service.domain.models import Draw, Generation, GenerationRequest, LLMIdentity, Usage

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
