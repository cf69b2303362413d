"""Drawn answers in a JSONL file: on the disk before anything counts on them, read back after a stop."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.domain.evaluation.answers import check_one_model
from service.domain.models import Draw


class AnswerFile:
    """One line per batch of answers. A line cut by a crash is dropped, and with it only that batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, list[Draw]] = {}
        self._drawn_by: Mapping[str, Any] | None = None
        self._load()

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return tuple(self._found.get(key, ()))

    def add(self, key: str, draws: Sequence[Draw], drawn_by: Mapping[str, Any]) -> None:
        """Append answers. Raises Conflict when the file holds those of another model."""
        check_one_model(self._drawn_by, drawn_by)
        said = [[d.text, d.truncated, d.logprob] for d in draws]
        line = {"key": key, "drawn_by": dict(drawn_by), "draws": said}
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
        self._drawn_by = line["drawn_by"]

    def _load(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._take(json.loads(line))
        if whole < len(data):
            with self._path.open("r+b") as file:
                file.truncate(whole)
