"""Vectors on disk: shards of .npy by embedder, so that a text is embedded once whatever happens."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.adapters.embedder.vector_cache import Vectors
from service.domain.calibrating.material import check_made_by
from service.domain.models import EmbedderIdentity
from service.domain.ports import Embedder

SHARD = 128  # texts lost at most when a run is killed
CHUNK = 64


class KeptVectors:
    """Embeds what is not on disk. A shard's columns: `key` (16 bytes of the text's sha256), `vector`."""

    def __init__(self, embedder: Embedder, folder: Path, *, shard: int = SHARD) -> None:
        self._embedder = embedder
        self._identity = embedder.identity
        self._folder = folder / identity_key(self._identity)
        self._shard = shard
        self._dtype = shard_type(self._identity.dimension)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[bytes, Vectors] = {}
        self._load()

    async def vectors(self, texts: Sequence[str], advance: Callable[[int], None]) -> Vectors:
        """Return unit rows (n, d) of the texts. `advance` is told how many more are there.

        Raises Conflict when the embedder is another by now: its vectors belong elsewhere.
        """
        missing = [text for text in dict.fromkeys(texts) if text_key(text) not in self._known]
        advance(len(texts) - len(missing))
        for start in range(0, len(missing), self._shard):
            await self._embed(missing[start : start + self._shard], advance)
        empty = np.empty((0, self._identity.dimension), dtype=np.float32)
        return np.stack([self._known[text_key(text)] for text in texts]) if texts else empty

    async def _embed(self, texts: Sequence[str], advance: Callable[[int], None]) -> None:
        made = np.empty(len(texts), dtype=self._dtype)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            embedded = await self._embedder.embed(chunk)
            check_made_by(self._identity, embedded.made_by)
            made["vector"][start : start + len(chunk)] = embedded.vectors
            made["key"][start : start + len(chunk)] = [text_key(text) for text in chunk]
            advance(len(chunk))
        self._keep(made)

    def _keep(self, made: NDArray[np.void]) -> None:
        number = len(list(self._folder.glob("*.npy")))
        while (path := self._folder / f"{number:05d}.npy").exists():
            number += 1
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, made, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        self._take(made)

    def _take(self, made: NDArray[np.void]) -> None:
        self._known.update(zip(made["key"].tolist(), made["vector"], strict=True))

    def _load(self) -> None:
        for path in sorted(self._folder.glob("*.npy")):
            made = np.load(path, allow_pickle=False)
            if made.dtype == self._dtype:
                self._take(made)


def shard_type(dimension: int) -> np.dtype[np.void]:
    """Return the columns of a shard."""
    return np.dtype([("key", "V16"), ("vector", "<f4", (dimension,))])


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def identity_key(identity: EmbedderIdentity) -> str:
    """Return the folder of an embedder: everything that decides its vectors."""
    parts = asdict(identity)
    del parts["embeds_empty"]  # which texts are embedded, not how
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
