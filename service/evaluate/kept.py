"""What is kept on the way: drawn answers and vectors, on the disk before anything counts on them."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.adapters.embedder.vector_cache import Vectors
from service.adapters.store.codec import decode_draws, encode_draws
from service.domain.calibrating.material import check_made_by
from service.domain.models import Draw, EmbedderIdentity
from service.domain.ports import Embedder
from service.evaluate.answers import check_same
from service.evaluate.files import write_whole

SHARD = 128  # texts lost at most when a run is killed
CHUNK = 64  # texts between two moves of the bar


class AnswerFile:
    """One line per batch of answers. A line cut by a crash is dropped, and with it only that batch.

    What they were drawn with stands beside them, in a file of the same name that ends in .json, and is
    compared before any is given out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._manifest = path.with_suffix(".json")
        self._found: dict[str, list[Draw]] = {}
        self.model = self.answered_as = ""
        self.setups: dict[str, dict[str, Any]] = {}
        self._load()

    def agree(self, model: str, setups: Mapping[str, Mapping[str, Any]]) -> None:
        """Bind the file to a model ("": not known yet) and to set-ups by kind of row.

        Raises Conflict, which says what differs, when its answers were drawn otherwise.
        """
        check_same(_named(model=self.model), _named(model=model))
        for kind, setup in setups.items():
            check_same(self.setups.get(kind, {}), setup)
        if any(kind not in self.setups for kind in setups):
            self.setups = {**{kind: dict(one) for kind, one in setups.items()}, **self.setups}
            write_whole(self._manifest, json.dumps({"version": 1, "setups": self.setups}, indent=1) + "\n")

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return tuple(self._found.get(key, ()))

    def add(self, key: str, draws: Sequence[Draw], drawn_by: Mapping[str, Any], answered_as: str) -> None:
        """Append answers. Raises Conflict when the file holds those of another model."""
        check_same(
            _named(model=self.model, answered_as=self.answered_as),
            _named(model=drawn_by["model"], answered_as=answered_as),
        )
        said = {"answered_as": answered_as, "draws": encode_draws(draws)}
        line = {"key": key, "drawn_by": dict(drawn_by), **said}
        self._append(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        self._take(line)

    def _append(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _take(self, line: Mapping[str, Any]) -> None:
        self._found.setdefault(line["key"], []).extend(decode_draws(line["draws"]))
        self.model = line["drawn_by"]["model"] or self.model
        # Lines of before it was kept have none.
        self.answered_as = line.get("answered_as") or self.answered_as

    def _load(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._take(json.loads(line))
        if whole < len(data):
            # Else the next batch would be appended to half a line, and neither could be read.
            with self._path.open("r+b") as file:
                file.truncate(whole)
        if self._found and self._manifest.exists():
            self.setups = json.loads(self._manifest.read_text(encoding="utf-8"))["setups"]


def _named(**names: str) -> dict[str, str]:
    """Return the names that are known."""
    return {part: name for part, name in names.items() if name}


def set_aside(path: Path) -> None:
    """Rename kept answers, and what stands beside them, so that drawing begins anew and nothing is lost."""
    number = 1
    kept = (path, path.with_suffix(".json"))
    while any(one.with_stem(f"{one.stem}-{number}").exists() for one in kept):
        number += 1
    # The answers go first: what stands beside them is ignored without them, but answers without it would be
    # taken for drawn under any set-up.
    for one in kept:
        if one.exists():
            one.rename(one.with_stem(f"{one.stem}-{number}"))


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
        # Renamed when it is whole: a shard cut by a crash could not be read.
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
            made = np.load(path, allow_pickle=False)  # data only: loading it runs no code
            if made.dtype == self._dtype:
                self._take(made)


def shard_type(dimension: int) -> np.dtype[np.void]:
    """Return the columns of a shard."""
    # V, not S: numpy drops zero bytes from the end of an S16.
    return np.dtype([("key", "V16"), ("vector", "<f4", (dimension,))])


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def identity_key(identity: EmbedderIdentity) -> str:
    """Return the folder of an embedder: everything that decides its vectors."""
    parts = asdict(identity)
    del parts["empty_answers"]  # which texts are embedded, not how
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
