"""The embedder in process, through sentence-transformers."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from service.adapters.embedder.models import (
    Load,
    LoadOptions,
    Model,
    Precision,
    load_model,
    resolve,
)
from service.adapters.embedder.pieces import (
    MOST_TEXTS,
    FairTurns,
    Share,
    TextCut,
    budget_on,
    chunks,
    cut_of,
    tokens_of,
)
from service.adapters.embedder.vector_cache import Made, Maker, VectorCache, Vectors, unit_rows
from service.domain.errors import EmbedderUnavailable
from service.domain.models import FAILED, EmbedderIdentity, EmptyAnswers
from service.domain.ports import Embedded

Given = TypeVar("Given")
Result = TypeVar("Result")
CHARACTERS_PER_SIZE = 1000  # scanned for a cut in about the time that one token takes to be embedded


class SentenceTransformerEmbedder:
    """Texts to unit vectors, on one worker thread beside the event loop.

    `name_or_folder` is a folder in the sentence-transformers layout, the name of packaged weights (in
    `cache_dir` or installed), or a name on the model hub (HF_HUB_OFFLINE is respected). A text longer than
    the model's `max_seq_length` is cut by the model, and before that, roughly, here. Vectors do not depend on
    what else is embedded at the time, up to float32 rounding (about 1e-6).
    Calls take turns at the worker, small ones first among those that came at once.

    `cache_size`: vectors kept (mpnet: 3 KB each). `max_queue`: calls waiting or at work before Overloaded.
    `threads`: CPU threads of the model; None leaves torch's default. `precision` is the model's; the
    vectors are float32 always. `load` stands for sentence-transformers in tests.
    """

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        cache_dir: Path,
        device: str | None = None,
        precision: Precision = "float32",
        cache_size: int = 20_000,
        max_queue: int = 64,
        threads: int | None = None,
        empty_answers: EmptyAnswers = FAILED,
        load: Load = load_model,
    ) -> None:
        self._wanted = str(name_or_folder)
        self.empty_answers: EmptyAnswers = empty_answers
        self._cache_dir = cache_dir
        self._options = LoadOptions(device, precision, threads)
        self._load_model = load
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=max_queue)
        self._worker: ThreadPoolExecutor | None = None
        self._maker: Maker | None = None
        self._model: Model | None = None
        self._cut: TextCut | None = None
        self._turns = FairTurns()

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (`sha256:` and 16 hex digits, or a hub commit), dimension and precision."""
        return self._require().identity

    @property
    def device(self) -> str:
        """Return the torch device that the model is on; "" before it is loaded."""
        return str(getattr(self._model, "device", ""))

    async def start(self) -> None:
        """Load the model and embed once. Raises WeightsError (for the operator) when it cannot be had."""
        if self._worker is not None:
            return
        # One thread: twenty short texts fill the cores already; a second call would only share them.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._load)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Refuse further texts and wait for the batch at work; idempotent."""
        worker, self._worker, self._model = self._worker, None, None
        if worker is not None:
            await asyncio.to_thread(worker.shutdown, wait=True, cancel_futures=True)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return unit rows, shape (len(texts), dimension). Raises EmbedderUnavailable, Overloaded."""
        await self.check()
        if not texts:
            return Embedded(np.empty((0, self.identity.dimension), dtype=np.float32), self.identity)
        return await self._vectors.rows(texts)

    async def embed_ahead(self, texts: Sequence[str]) -> None:
        """Embed texts before they are asked for, while nobody waits. Raises EmbedderUnavailable."""
        await self.check()
        await self._vectors.ahead(texts)

    async def check(self) -> None:
        """Raise EmbedderUnavailable unless the model is loaded."""
        if self._model is None:
            raise EmbedderUnavailable("The embedder is not loaded.")

    def _require(self) -> Maker:
        if self._maker is None:
            raise EmbedderUnavailable("The embedder is not loaded.")
        return self._maker

    async def _compute(self, texts: list[str]) -> Made:
        """Embed in chunks of like length, so that padding is small and other calls get in between."""
        maker, share = self._require(), Share()
        rows = np.empty((len(texts), maker.identity.dimension), dtype=np.float32)
        texts = [await self._cut_to_fit(text, share) for text in texts]
        longest = getattr(self._model, "max_seq_length", None)  # a bag of words has none
        budget = budget_on(getattr(self._model, "device", "cpu"))
        for chosen in chunks(texts, longest, budget):
            size = len(chosen) * tokens_of(texts[chosen[-1]], longest)  # the longest comes last
            rows[chosen] = await self._in_worker(size, share, _encode, [texts[i] for i in chosen])
        return Made(rows, maker)

    async def _cut_to_fit(self, text: str, share: Share) -> str:
        cut = self._cut
        if cut is None or len(text) <= cut.untouched:
            return text
        size = len(text) / CHARACTERS_PER_SIZE
        return await self._in_worker(size, share, lambda _, text: cut(text), text)

    async def _in_worker(
        self, size: float, share: Share, work: Callable[[Model, Given], Result], given: Given
    ) -> Result:
        """Return what the work makes of the model and of what is given; `size` in tokens embedded."""
        async with self._turns.turn(size, share):
            model = self._model
            if model is None:
                raise EmbedderUnavailable("The embedder has been stopped.")
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, model, given)

    def _load(self) -> None:
        source = resolve(self._wanted, self._cache_dir)
        model = self._load_model(source, self._options)
        # Only a vector tells the dimension for sure; and the first call, the slow one, is nobody's request.
        dimension = _encode(model, ["warm up"]).shape[1]
        precision = self._options.precision
        identity = EmbedderIdentity(source.name, source.revision, dimension, precision, self.empty_answers)
        self._maker = Maker(identity)
        self._cut = cut_of(model)
        self._model = model


def _encode(model: Model, texts: list[str]) -> Vectors:
    try:
        raw = model.encode(texts, batch_size=MOST_TEXTS, show_progress_bar=False, convert_to_numpy=True)
    except Exception as error:
        # Whatever the model raised (out of memory, a device gone): its text is not for the caller.
        raise EmbedderUnavailable(f"The embedder failed ({type(error).__name__}).") from error
    return unit_rows(np.asarray(raw), len(texts))
