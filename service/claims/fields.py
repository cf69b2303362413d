"""The fields of an answer in JSON: each value is a claim of its own, named by its path."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_COMMAS = 100_000  # of an answer that is parsed
MAX_PATH_CHARS = 200  # names are the model's, and there may be as many paths as values
_FENCED = re.compile(r"\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
_json: Any = json  # the standard library's parser in Python, whose parts have no types
Scan = Callable[[str, int], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Field:
    """A value of an answer: text[start:end], quotation marks included.

    `path`: as in `people[0].born`, its last `MAX_PATH_CHARS`.
    """

    path: str
    value: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """Return the claim as text: path and value."""
        return f"{self.path}: {self.value}"


def fields(answer: str) -> list[Field] | None:
    """Return the values of a JSON answer, in order; None if the answer is no JSON object or array.

    A Markdown fence around the answer is ignored. Strings are stripped, and numbers keep their spelling. Of
    two members with the same name the last counts.
    """
    fenced = _FENCED.fullmatch(answer)
    start, end = fenced.span(1) if fenced else (0, len(answer))
    start += len(answer[start:end]) - len(answer[start:end].lstrip())
    if answer[start : start + 1] not in ("{", "[") or answer.count(",") > MAX_COMMAS:
        return None
    try:
        value, over = _Decoder().raw_decode(answer[:end], start)
    except (ValueError, RecursionError):
        return None
    if answer[over:end].strip():
        return None
    return sorted(_fields("", value, answer), key=lambda field: field.start)


@dataclass(frozen=True, slots=True)
class _Scalar:
    value: object
    start: int
    end: int


class _Decoder(json.JSONDecoder):
    """Reads scalars with their places."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_object: Any = lambda at, strict, scan, *more: _json.decoder.JSONObject(
            at, strict, _placed(scan), *more
        )
        self.parse_array: Any = lambda at, scan: _json.decoder.JSONArray(at, _placed(scan))
        self.scan_once: Scan = _json.scanner.py_make_scanner(self)


def _placed(scan: Scan) -> Scan:
    def scan_once(text: str, at: int) -> tuple[Any, int]:
        value, end = scan(text, at)
        return (value if isinstance(value, dict | list) else _Scalar(value, at, end)), end

    return scan_once


def _fields(path: str, value: Any, answer: str) -> Iterator[Field]:
    path = path[-MAX_PATH_CHARS:]
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _fields(f"{path}.{name}" if path else name, inner, answer)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fields(f"{path}[{index}]", inner, answer)
    else:
        start, end = value.start, value.end
        text = value.value.strip() if isinstance(value.value, str) else answer[start:end]
        yield Field(path, text, start, end)
