"""What an evaluation keeps in its folder: answers drawn, vectors, results; each whole or not at all."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.calibration.material import check_made_by
from service.calibration.rows import draws_from_json, draws_to_json
from service.embedding.cache import Vectors
from service.embedding.port import Embedder, EmbedderIdentity
from service.errors import Conflict
from service.evaluation.results import Results
from service.llm.port import Draw

SHARD = 128  # texts lost at most when a run is killed
CHUNK = 64  # texts between two moves of the bar


class OutFolderError(Exception):
    """Nothing can be written where the results are to go; the message says why, in one line."""


def make_folder(out: Path) -> None:
    """Make the folder of the results. Raises OutFolderError unless it can be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        what = "it is a file" if out.is_file() else error.strerror or type(error).__name__
        raise OutFolderError(f"--out: cannot write into the folder {out}: {what}.") from None


def write_results(out: Path, results: Results) -> None:
    """Write report.html, results.json, and figures/: a CSV of every experiment, SVGs of those drawn.

    What an evaluation of other files has left there is renamed, so that nothing is lost.
    """
    from service.evaluation.page import evaluation_figures, evaluation_tables, render_evaluation

    # Drawn before anything is touched: should this fail, the old results are still whole.
    figures = evaluation_figures(results)
    page = render_evaluation(results, figures)
    if _of_other_files(out, results):
        # results.json last: without it nothing tells that there is something to rename.
        rename_aside(out / "report.html", out / "figures", out / "results.json")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, svg in (pair for made in figures.values() for pair in made.items()):
        _write_whole(folder / f"{name}.svg", svg)
    for name, rows in evaluation_tables(results).items():
        _write_whole(folder / f"{name}.csv", rows)
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    _write_whole(out / "results.json", f"{text}\n")
    _write_whole(out / "report.html", page)


def _of_other_files(out: Path, results: Results) -> bool:
    path = out / "results.json"
    if not path.exists():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    return bool(found["provenance"]["files"] != results["provenance"]["files"])


def rename_aside(*paths: Path) -> None:
    """Rename those that exist, in this order: results.json becomes results-1.json, and so on."""
    number = 1
    while any(path.with_stem(f"{path.stem}-{number}").exists() for path in paths):
        number += 1
    for path in paths:
        if path.exists():
            path.rename(path.with_stem(f"{path.stem}-{number}"))


def _write_whole(path: Path, text: str) -> None:
    """Write a text so that the file is the old one or the new one, never half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def check_same(known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise Conflict, which says what differs, when answers drawn in two ways would be mixed.

    Compares the parts that both have, and of those the ones that are known.
    """
    differing = [
        f"{name} was {known[name]!r}, now {now[name]!r}"
        for name in known
        if name in now and "" not in (known[name], now[name]) and known[name] != now[name]
    ]
    if differing:
        raise Conflict(
            f"The answers kept in this folder were drawn otherwise: {'; '.join(differing)}. "
            "Give another --out, or --anew to set them aside and draw again."
        )


class AnswerFile:
    """Answers drawn, one line per batch, on the disk before the next is asked for.

    A line cut by a crash is dropped, and with it only that batch. Lines of set-ups stand between: what the
    answers were drawn with, by kind of row, compared before any is given out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, list[Draw]] = {}
        self.model = self.answered_as = ""
        self.setups: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else b""
        complete = data.rfind(b"\n") + 1
        for line in data[:complete].splitlines():
            self._take(json.loads(line))
        if complete < len(data):
            # Else the next batch would be appended to half a line, and neither could be read.
            with path.open("r+b") as file:
                file.truncate(complete)

    def agree(self, model: str, setups: Mapping[str, Mapping[str, Any]]) -> None:
        """Bind the file to a model ("": not known yet) and to set-ups by kind of row.

        Raises Conflict, which says what differs, when its answers were drawn otherwise.
        """
        check_same({"model": self.model}, {"model": model})
        for kind, setup in setups.items():
            check_same(self.setups.get(kind, {}), setup)
        if new := {kind: dict(one) for kind, one in setups.items() if kind not in self.setups}:
            self._append({"setups": new})

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return tuple(self._answers.get(key, ()))

    def add(self, key: str, draws: Sequence[Draw], model: str, answered_as: str) -> None:
        """Append answers. Raises Conflict when the file holds those of another model."""
        known = {"model": self.model, "answered_as": self.answered_as}
        check_same(known, {"model": model, "answered_as": answered_as})
        line = {"key": key, "model": model, "answered_as": answered_as, "draws": draws_to_json(draws)}
        self._append(line)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def _take(self, line: Mapping[str, Any]) -> None:
        if "setups" in line:
            self.setups |= line["setups"]
            return
        self._answers.setdefault(line["key"], []).extend(draws_from_json(line["draws"]))
        self.model = line["model"] or self.model
        self.answered_as = line["answered_as"] or self.answered_as


class KeptVectors:
    """Embeds what is not on disk. A shard's columns: `key` (16 bytes of the text's sha256), `vector`."""

    def __init__(self, embedder: Embedder, folder: Path, *, shard: int = SHARD) -> None:
        self._embedder = embedder
        self._identity = embedder.identity
        self._folder = folder / _identity_key(self._identity)
        self._shard = shard
        # V, not S: numpy drops zero bytes from the end of an S16.
        self._dtype = np.dtype([("key", "V16"), ("vector", "<f4", (self._identity.dimension,))])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[bytes, Vectors] = {}
        for path in sorted(self._folder.glob("*.npy")):
            self._take(np.load(path, allow_pickle=False))  # data only: loading it runs no code

    async def vectors(self, texts: Sequence[str], advance: Callable[[int], None]) -> Vectors:
        """Return unit rows (n, d) of the texts. `advance` takes how many more are there.

        Raises Conflict when the embedder is another by now: its vectors belong elsewhere.
        """
        missing = [text for text in dict.fromkeys(texts) if _text_key(text) not in self._known]
        advance(len(texts) - len(missing))
        for start in range(0, len(missing), self._shard):
            await self._embed(missing[start : start + self._shard], advance)
        empty = np.empty((0, self._identity.dimension), dtype=np.float32)
        return np.stack([self._known[_text_key(text)] for text in texts]) if texts else empty

    async def _embed(self, texts: Sequence[str], advance: Callable[[int], None]) -> None:
        made = np.empty(len(texts), dtype=self._dtype)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            embedded = await self._embedder.embed(chunk)
            check_made_by(self._identity, embedded.made_by)
            made["vector"][start : start + len(chunk)] = embedded.vectors
            made["key"][start : start + len(chunk)] = [_text_key(text) for text in chunk]
            advance(len(chunk))
        self._keep(made)

    def _keep(self, made: NDArray[np.void]) -> None:
        path = self._folder / f"{len(list(self._folder.glob('*.npy'))):05d}.npy"
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


def _text_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _identity_key(identity: EmbedderIdentity) -> str:
    """Return the folder of an embedder: everything that decides its vectors."""
    parts = asdict(identity)
    del parts["empty_answers"]  # which texts are embedded, not how
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
