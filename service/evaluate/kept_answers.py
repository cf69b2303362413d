"""Drawn answers in a JSONL file: on the disk before anything counts on them, read back after a stop."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.domain.models import Draw
from service.evaluate.answers import check_same


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
            _replace(self._manifest, json.dumps({"version": 1, "setups": self.setups}, indent=1) + "\n")

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return tuple(self._found.get(key, ()))

    def add(self, key: str, draws: Sequence[Draw], drawn_by: Mapping[str, Any], answered_as: str) -> None:
        """Append answers. Raises Conflict when the file holds those of another model."""
        check_same(
            _named(model=self.model, answered_as=self.answered_as),
            _named(model=drawn_by["model"], answered_as=answered_as),
        )
        said = [[d.text, d.truncated, d.logprob] for d in draws]
        line = {"key": key, "drawn_by": dict(drawn_by), "answered_as": answered_as, "draws": said}
        self._append(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        self._take(line)

    def _append(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _take(self, line: Mapping[str, Any]) -> None:
        draws = [Draw(text, truncated, logprob) for text, truncated, logprob in line["draws"]]
        self._found.setdefault(line["key"], []).extend(draws)
        self.model = line["drawn_by"]["model"] or self.model
        self.answered_as = (
            line.get("answered_as") or self.answered_as
        )  # lines of before it was kept have none

    def _load(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._take(json.loads(line))
        if whole < len(data):
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
    while path.with_stem(f"{path.stem}-{number}").exists():
        number += 1
    for one in (path, path.with_suffix(".json")):
        if one.exists():
            one.rename(one.with_stem(f"{one.stem}-{number}"))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
