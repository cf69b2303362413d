"""Deterministic in-memory fakes of the ports, for tests and load tests."""

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.embedding.port import PAPER, Embedded, EmbedderIdentity, Kernel
from service.errors import EmbedderUnavailable, LLMUnavailable
from service.llm.client import LLM
from service.llm.forward import Reply
from service.llm.prompt import Api, GenerationRequest, LLMIdentity, shape_hash
from service.llm.queue import CallQueue
from service.llm.samples import Draw, Generation, Usage

DEFAULT_ANSWERS = ("Paris", "Paris", "Lyon", "paris", "Marseille")


def last_user_text(request: GenerationRequest) -> str:
    """Return the prompt, or the content of the last message of the conversation."""
    members = request.prompt.members
    return str(members["prompt"] if "prompt" in members else members["messages"][-1]["content"])


class FakeLLM:
    """Answers from a script: answer i to a prompt is `answers[prompt][i % len]`, else `default[i % len]`.

    `gate`: each call waits for it before answering. `fail_with`: errors raised by the next calls for answers,
    in order; `fail_questions`: by the next yes-or-no questions.
    `requests` records the calls for answers, `questions` the yes-or-no questions, `cancelled` counts the
    cancelled ones, `active` those in progress. `server`: the client that forwards calls, by default to a
    closed port. `yes`: P(Yes) of each reply; None: neither Yes nor No.
    """

    def __init__(
        self,
        answers: Mapping[str, Sequence[str]] | None = None,
        *,
        default: Sequence[str] = DEFAULT_ANSWERS,
        model: str = "fake-llm",
        gate: asyncio.Event | None = None,
        fail_with: Sequence[Exception] = (),
    ) -> None:
        self.answers = dict(answers or {})
        self.default = tuple(default)
        self.model = model
        self.gate = gate
        self.fail_with = list(fail_with)
        self.available = True
        self.api: Api = "chat"
        self.yes: float | None = 0.75
        self.fail_questions: list[Exception] = []
        self.failures = Counter[str]()
        self.server = LLM("http://127.0.0.1:9")
        self.questions: list[GenerationRequest] = []
        self.requests: list[GenerationRequest] = []
        self.cancelled = 0
        self.active = 0
        self._on_request: Callable[[GenerationRequest], None] | None = None

    async def start(self) -> None:
        """Nothing to acquire."""

    async def stop(self) -> None:
        """Close the connections of forwarded calls."""
        await self.server.stop()

    def identity(self, request: GenerationRequest) -> LLMIdentity:
        """Return the fake's identity; the prompt shape is a plain prompt through chat."""
        shape = shape_hash(system_prompt="", template="{prompt}")
        return LLMIdentity(model=request.model or self.model, api="chat", prompt_shape=shape)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Answer from the script; see the class."""
        (self.questions if request.is_question else self.requests).append(request)
        if self._on_request is not None:
            self._on_request(request)
        self.active += 1
        try:
            await self._wait()
            return self._answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    async def check(self) -> None:
        """Raise LLMUnavailable while `available` is false."""
        if not self.available:
            raise LLMUnavailable("The LLM is not available.")

    @property
    def queue(self) -> CallQueue:
        """Return the queue of forwarded calls."""
        return self.server.queue

    def permit(self) -> AbstractAsyncContextManager[ExitStack]:
        """Wait for the right to forward a call."""
        return self.server.permit()

    def forward(self, path: str, *contents: bytes | None, **more: Any) -> AbstractAsyncContextManager[Reply]:
        """Forward a call to `server`."""
        return self.server.forward(path, *contents, **more)

    async def _wait(self) -> None:
        await asyncio.sleep(0)  # like a real LLM, lets other tasks run
        if self.gate is not None:
            await self.gate.wait()

    def _texts(self, request: GenerationRequest) -> list[str]:
        script = self.answers.get(last_user_text(request), self.default)
        return [script[i % len(script)] for i in range(request.num_samples)]

    def _answer(self, request: GenerationRequest) -> Generation:
        if not self.available:
            raise LLMUnavailable("The LLM is not available.")
        failures = self.fail_questions if request.is_question else self.fail_with
        if failures:
            raise failures.pop(0)
        if request.is_question:
            return self._reply(request, self._yes(request))
        draws = tuple(map(Draw, self._texts(request)))
        usage = Usage(prompt_tokens=8, completion_tokens=sum(len(d.text.split()) for d in draws))
        model = request.model or self.model
        return Generation(draws, model, usage)

    def _yes(self, request: GenerationRequest) -> float | None:
        return self.yes

    def _reply(self, request: GenerationRequest, yes: float | None) -> Generation:
        """Reply to a yes-or-no question."""
        tokens = {"Maybe": -0.1, "Well": -3.0} if yes is None else {"Yes": _log(yes), " no": _log(1 - yes)}
        draw = Draw("Yes" if yes else "Maybe", first_tokens=tokens)
        return Generation((draw,), request.model or self.model, Usage(prompt_tokens=8, completion_tokens=1))


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-9))


class FakeEmbedder:
    """Maps each text to a unit vector drawn from a hash of its casefolded form.

    Different texts are nearly orthogonal (cosine about 0 +- 1/sqrt(dimension)). `vectors` overrides the
    vectors of single texts, and is normalised. `calls` records the texts of each call.
    """

    def __init__(
        self,
        dimension: int = 64,
        *,
        vectors: Mapping[str, Sequence[float]] | None = None,
        gate: asyncio.Event | None = None,
        kernel: Kernel = PAPER,
    ) -> None:
        self.dimension = dimension
        self.kernel: Kernel = kernel
        self.available = True
        self.calls: list[tuple[str, ...]] = []
        self._gate = gate
        self._cache = {text: _unit(np.asarray(v, dtype=np.float64)) for text, v in (vectors or {}).items()}

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the fake's identity."""
        return EmbedderIdentity("fake-embedder", "1", self.dimension, "float32", self.kernel)

    async def start(self) -> None:
        """Nothing to load."""

    async def stop(self) -> None:
        """Nothing to release."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return unit rows, shape (len(texts), dimension), float32."""
        self.calls.append(tuple(texts))
        if self._gate is not None:
            await self._gate.wait()
        await self.check()
        empty = np.empty((0, self.dimension), dtype=np.float32)
        return Embedded(np.stack([self._vector(text) for text in texts]) if texts else empty, self.identity)

    async def check(self) -> None:
        """Raise EmbedderUnavailable while `available` is false."""
        if not self.available:
            raise EmbedderUnavailable("The embedder is not available.")

    def _vector(self, text: str) -> NDArray[np.float32]:
        if text in self._cache:
            return self._cache[text]
        seed = hashlib.sha256(text.casefold().encode()).digest()
        return _unit(np.random.default_rng(list(seed)).standard_normal(self.dimension))


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float32]:
    return (vector / np.linalg.norm(vector)).astype(np.float32)
