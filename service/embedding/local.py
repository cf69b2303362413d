"""The embedder in this process: where a sentence-transformers model comes from, its loading, its calls."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.embedding.cache import VectorCache, Vectors, unit_rows
from service.embedding.port import FAILED, Embedded, EmbedderIdentity, EmptyAnswers
from service.errors import EmbedderUnavailable
from service.llm.weights import MINILM, MPNET, TABLE, Packaged, WeightsError, digest, find, hashes, packaged

logger = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16", "float16"]

TRAINING_NOTE = "data_config.json"  # what a model was trained on: decides nothing
HUB_TIMEOUT_S = 10.0  # of the one request that tells whether the model hub answers
# Of a text, before the model itself cuts it: else all of it is tokenized, and most dropped. English has four
# or five characters a token.
MAX_CHARS_PER_TOKEN = 32
MAX_CHUNK_TEXTS = 64
# Tokens of a chunk, padding counted. On two CPU cores all-mpnet-base-v2 works on these for a second or two;
# accelerators are far faster, and want more at once.
MAX_CHUNK_TOKENS = {"cpu": 1024}
MAX_CHUNK_TOKENS_ELSEWHERE = 32_768
BYTES_PER_TOKEN = 3  # English has 4, Chinese 3, code and digits fewer
DECIDING_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model"}


class Model(Protocol):
    """What is used of a SentenceTransformer."""

    def encode(
        self, sentences: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> NDArray[np.generic]:
        """Return one vector per sentence."""

    def __getitem__(self, index: int) -> object:
        """Return a module of the pipeline; the first holds the transformer."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is loaded from: a folder, or a name on the model hub with the `commit` to take.

    `revision` stands for its content; `local`: nothing is asked of the hub.
    """

    location: str
    name: str
    revision: str
    local: bool
    commit: str | None = None


Load = Callable[[ModelSource, Precision], Model]


def resolve(wanted: str, cache_dir: Path) -> ModelSource:
    """Return the source for a folder, a name of packaged weights, or else a hub name.

    A hub name is one that sentence-transformers takes, bare or with its publisher. Packaged weights that are
    not here are looked for on the hub only under their full name there (publisher/name). Raises WeightsError,
    which names what is wrong, when a model cannot be had or packaged weights are not the published ones.
    """
    if _is_folder(wanted):
        return _of_folder(Path(wanted), cache_dir)
    entry = packaged(wanted)
    if entry is None:
        return _of_hub(wanted)
    folder = find(entry, cache_dir)
    if folder is not None:
        return ModelSource(str(folder), entry.name, _revision(entry), local=True)
    if wanted == entry.name:
        raise WeightsError(
            f"The weights {wanted} are not here. To fetch them: python -m service weights fetch {wanted}. "
            f"To take them from the model hub, give their full name there (publisher/{wanted})."
        )
    return replace(_of_hub(wanted), name=entry.name)


def load_model(source: ModelSource, precision: Precision) -> Model:
    """Return the model, loaded by sentence-transformers. Raises WeightsError when it cannot be had."""
    # Seconds of imports: not where a module is imported that only may need them.
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # else one is drawn into the log at every start
    try:
        model: Model = SentenceTransformer(
            source.location,
            revision=source.commit,
            local_files_only=source.local,
            # Said, because the library's default is what the file was saved in.
            model_kwargs={"dtype": getattr(torch, precision)},
        )
    except Exception as error:
        # The hub client and the readers of weights raise errors of many libraries.
        raise WeightsError(_cannot_load(source, error)) from error
    else:
        return model


def _is_folder(wanted: str) -> bool:
    try:
        return bool(wanted) and Path(wanted).is_dir()  # Path("") is the working directory
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a folder that may not be looked at is told as it is
            raise
        return False


def _of_hub(wanted: str) -> ModelSource:
    """Return a model of the hub at its newest commit, or at the one last fetched where no hub answers.

    One request tells whether it does: without a network, the library itself would try each file of the model
    for half a minute.
    """
    from huggingface_hub import model_info, resolve_revision, try_to_load_from_cache

    name, cache = _full_name(wanted), os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    try:
        model_info(name, timeout=HUB_TIMEOUT_S)
        commit = resolve_revision(name, cache_dir=cache).resolved
    except Exception as error:  # of several libraries: no such model, no access, no network
        why = error
    else:
        return ModelSource(name, name, commit, local=False, commit=commit)
    try:
        commit = resolve_revision(name, cache_dir=cache, local_files_only=True).resolved
    except Exception:
        raise WeightsError(_cannot_be_had(name, why)) from why
    # A model whose modules are not known to the cache would be loaded as a bare transformer: other vectors.
    if try_to_load_from_cache(name, "modules.json", cache_dir=cache, revision=commit) is None:
        raise WeightsError(_cannot_be_had(name, why)) from why
    logger.warning("%s not from the model hub (%s), but as last fetched: %s", name, _one_line(why), commit)
    return ModelSource(name, name, commit, local=True, commit=commit)


def _full_name(wanted: str) -> str:
    """Return the name on the hub that sentence-transformers looks for."""
    from sentence_transformers import util

    if "/" in wanted or wanted.lower() in util.ORIGINAL_TRANSFORMER_MODELS:
        return wanted
    return f"sentence-transformers/{wanted}"


def _of_folder(folder: Path, cache_dir: Path) -> ModelSource:
    """Name a folder; one that holds published weights is named as they are, so that calibrations fit both."""
    found = hashes(folder, _deciding_files(folder), cache_dir / ".verified" / f"{folder.resolve().name}.json")
    for entry in TABLE.values():
        if entry.sha256.items() <= found.items():
            return ModelSource(str(folder), entry.name, _revision(entry), local=True)
    return ModelSource(str(folder), folder.resolve().name, f"sha256:{digest(found)}", local=True)


def _revision(entry: Packaged) -> str:
    return f"sha256:{entry.sha256[entry.weights][:16]}"


def _deciding_files(folder: Path) -> list[str]:
    """Return the files that decide the vectors: weights, configuration, vocabulary; two levels deep."""
    files = [*folder.glob("*"), *folder.glob("[0-9]*_*/*")]
    chosen = (f for f in files if f.is_file() and f.suffix in DECIDING_SUFFIXES and f.name != TRAINING_NOTE)
    return sorted(f.relative_to(folder).as_posix() for f in chosen)


def _cannot_be_had(name: str, error: Exception) -> str:
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if isinstance(error, HFValidationError):  # a path, mostly
        why = f"There is no folder {name}, and no model of the hub has such a name."
    elif isinstance(error, RepositoryNotFoundError):
        why = f"The model hub knows no {name}, or shows it to others only (HF_TOKEN)."
    else:
        why = f"The model hub does not answer ({_one_line(error)}), and {name} is not in its cache."
    return f"{why} {_instead(name)}"


def _cannot_load(source: ModelSource, error: Exception) -> str:
    why = f"The embedding model {source.name} cannot be loaded ({_one_line(error)})."
    return why if source.commit is None else f"{why} {_instead(source.name)}"


def _instead(name: str) -> str:
    entry = packaged(name)
    if entry is not None:
        return f"Its weights come as a package: python -m service weights fetch {entry.name}"
    return f"Name a folder that holds it, or weights that come as a package: {MPNET}, {MINILM}"


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class SentenceTransformerEmbedder:
    """Texts to unit vectors, on one worker thread beside the event loop.

    `name_or_folder` is a folder in the sentence-transformers layout, the name of packaged weights (in
    `cache_dir` or installed), or a name on the model hub (HF_HUB_OFFLINE is respected). A text longer than
    the model's `max_seq_length` is cut by the model. Vectors do not depend on what else is embedded at the
    time, up to float32 rounding (about 1e-6). A call of many texts is cut into chunks, between which those of
    other calls take their turns.

    `cache_size`: vectors kept (mpnet: 3 KB each). `max_queue`: calls waiting or at work before Overloaded.
    `precision` is the model's; the vectors are float32 always. `load` stands for sentence-transformers in
    tests.
    """

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        cache_dir: Path,
        precision: Precision = "float32",
        cache_size: int = 20_000,
        max_queue: int = 256,
        empty_answers: EmptyAnswers = FAILED,
        load: Load = load_model,
    ) -> None:
        self._wanted = str(name_or_folder)
        self.empty_answers: EmptyAnswers = empty_answers
        self._cache_dir = cache_dir
        self._precision: Precision = precision
        self._load_model = load
        self._vectors = VectorCache(self._compute, max_entries=cache_size, max_queue=max_queue)
        self._worker: ThreadPoolExecutor | None = None
        self._turn = asyncio.Lock()
        self._identity: EmbedderIdentity | None = None
        self._model: Model | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        """Return name, revision (`sha256:` and 16 hex digits, or a hub commit), dimension and precision."""
        if self._identity is None:
            raise EmbedderUnavailable("The embedder is not loaded.")
        return self._identity

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
        for chunk in chunks(texts, max_tokens, budget):
            async with self._turn:
                model = self._model
                if model is None:
                    raise EmbedderUnavailable("The embedder has been stopped.")
                loop, given = asyncio.get_running_loop(), [texts[i] for i in chunk]
                rows[chunk] = await loop.run_in_executor(self._worker, _encode, model, given)
        return rows

    def _load(self) -> None:
        source = resolve(self._wanted, self._cache_dir)
        model = self._load_model(source, self._precision)
        # Only a vector tells the dimension for sure; and the first call, the slow one, is nobody's request.
        dimension = _encode(model, ["warm up"]).shape[1]
        self._identity = EmbedderIdentity(
            source.name, source.revision, dimension, self._precision, self.empty_answers
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


def _encode(model: Model, texts: list[str]) -> Vectors:
    try:
        raw: Any = model.encode(
            texts, batch_size=MAX_CHUNK_TEXTS, show_progress_bar=False, convert_to_numpy=True
        )
    except Exception as error:
        # Whatever the model raised (out of memory, a device gone): its text is not for the caller.
        raise EmbedderUnavailable(f"The embedder failed ({type(error).__name__}).") from error
    return unit_rows(np.asarray(raw), len(texts))
