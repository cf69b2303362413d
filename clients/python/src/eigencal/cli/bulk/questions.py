"""Questions: plain lines, or JSON Lines of score requests."""

import codecs
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from eigencal import InvalidSetup, ScoreOptions

Format = Literal["auto", "lines", "jsonl"]
JSONL = {".jsonl", ".ndjson"}
TABLES = {".csv", ".tsv"}  # their heads and columns would be asked as questions
ASKS = ("prompt", "messages", "samples")
# `return` is the field's own name; Python needs `return_`.
HOW_MANY = {"effort", "num_samples"}
FIELDS = {"id", "prompt", "return", *ScoreOptions.__annotations__} - {"return_"}
MOST_TOLD = 5  # bad lines


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a file."""

    line: int
    """Its line, from 1."""
    id: Any
    """The id that the file gives it, or None."""
    request: Mapping[str, Any]
    """The fields of POST /score."""

    @property
    def mark(self) -> str:
        """16 hex digits of a hash of the request: another request has another mark."""
        text = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class BadLine(ValueError):
    """A line that holds no question; its text says why."""


class Questions:
    """The questions of an open file, which can be gone through more than once.

    Args:
        file: Where they are, in UTF-8.
        name: Its name, for people; with `form` "auto", .jsonl and .ndjson say that it is JSON Lines.
        options: Fields of every request that does not set them itself.
        form: How they are written.

    Raises:
        InvalidSetup: The name is that of a table, and nothing is said of how it is written.
    """

    def __init__(self, file: BinaryIO, name: str, options: Mapping[str, Any], form: Format = "auto") -> None:
        if form == "auto" and Path(name).suffix.lower() in TABLES:
            raise InvalidSetup(
                f"{name} is a table, and questions are plain lines or JSON Lines: write them so, or say "
                "--format lines, to ask every line as it is. Nothing was sent."
            )
        self._file, self._name, self._options = file, name, dict(options)
        self._known = form != "auto" or Path(name).suffix.lower() in JSONL
        self._jsonl = form == "jsonl" or (form == "auto" and self._known)

    def __iter__(self) -> Iterator[Question]:
        """Yield the questions from the first one on. Raises BadLine, which names the line."""
        for number, raw in self._lines():
            try:
                yield self._question(number, raw)
            except BadLine as error:
                raise BadLine(f"{self._name} has changed: line {number}: {error}") from None

    def are_in(self, path: Path) -> bool:
        """Tell whether this is the file that they are in, by whatever name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        except OSError:  # there is no such file, or they are in none
            return False

    def check(self) -> int:
        """Return how many questions there are. Raises InvalidSetup that names the bad lines."""
        count, bad = 0, list[str]()
        for number, raw in self._lines():
            count += 1
            try:
                self._question(number, raw)
            except BadLine as error:
                bad.append(f"line {number}: {error}")
        if bad:
            more = f"; and {len(bad) - MOST_TOLD} more" if len(bad) > MOST_TOLD else ""
            raise InvalidSetup(f"{self._name}: {'; '.join(bad[:MOST_TOLD])}{more}. Nothing was sent.")
        if not count:
            raise InvalidSetup(f"{self._name} holds no question.")
        return count

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        for number, raw in enumerate(self._file, 1):
            text = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            if text.strip():
                yield number, text.strip()

    def _question(self, number: int, raw: bytes) -> Question:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise BadLine("it is not UTF-8") from None
        if not self._jsonl:
            if not self._known and _is_request(text):
                raise BadLine("it looks like a request: say --format jsonl, or --format lines")
            return _sendable(Question(number, None, {**self._options, "prompt": text}))
        given = _request(text)
        fields = {name: value for name, value in given.items() if name != "id"}
        return _sendable(Question(number, given.get("id"), {**self._filled(fields), **fields}))

    def _filled(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that a request takes: how many answers is one choice, made by `samples`, too."""
        chosen = HOW_MANY if fields.keys() & {*HOW_MANY, "samples"} else set[str]()
        return {name: value for name, value in self._options.items() if name not in chosen}


def _sendable(question: Question) -> Question:
    """Return a question that JSON can say. Raises BadLine."""
    try:
        json.dumps([question.id, question.request], allow_nan=False)
    except ValueError:
        raise BadLine("it has a number that JSON has not: NaN, or an infinite one") from None
    except RecursionError:
        raise BadLine("it is nested too deeply") from None
    return question


def _is_request(text: str) -> bool:
    try:
        return text.startswith("{") and bool(_request(text))
    except BadLine:
        return False


def _request(text: str) -> dict[str, Any]:
    """Return the fields of a line: a request, or a JSON string that is the prompt."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadLine(f"it is no JSON ({error})") from None
    except RecursionError:
        raise BadLine("it is nested too deeply") from None
    if isinstance(given, str):
        given = {"prompt": given}
    if not isinstance(given, dict):
        raise BadLine("it is neither an object nor a string")
    if unknown := sorted(given.keys() - FIELDS):
        raise BadLine(f"{', '.join(unknown)}: no field of a request")
    if all(given.get(name) is None for name in ASKS):
        raise BadLine(f"it has none of {', '.join(ASKS)}")
    return given
