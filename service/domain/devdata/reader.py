"""Uploaded dev data: checked as a whole before a single row is given out, in flat memory.

A file is read twice, first to check every row, then to yield them; what is kept between is one short hash per
row, to find an id given twice.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from service.domain.devdata.bytes import Line, NumberedLines, UploadLimits, encoding_problem
from service.domain.devdata.csv_rows import csv_rows
from service.domain.devdata.limits import TextCount, check_size
from service.domain.devdata.row_check import RowError, check_row
from service.domain.devdata.strict_json import parse_json
from service.domain.errors import BodyTooLarge, InvalidDevData
from service.domain.jobs.model import DevRow

__all__ = [
    "DevData",
    "UploadLimits",
    "check_size",
    "read_examples",
    "read_file",
    "write_row",
    "write_rows",
]

MAX_LISTED = 20
Raw = tuple[int, object]  # a line number and the row as parsed, or a RowError in its place


class DevData:
    """Checked dev data. `rows()` reads it again from the start on every call, as long as the file is open."""

    def __init__(self, read: Callable[[], Iterable[Raw]], texts: TextCount) -> None:
        self._read = read
        self.texts = texts
        self.num_rows = texts.rows.total()
        self.num_with_samples = self.num_rows - texts.rows[0]

    def rows(self) -> Iterator[DevRow]:
        """Yield the rows in the order of the file."""
        for line, raw in self._read():
            yield check_row(line, raw)


def read_file(file: BinaryIO, limits: UploadLimits | None = None, *, mixed_ok: bool = False) -> DevData:
    """Check a seekable binary file of JSONL or CSV, packed with gzip or not, and return its rows.

    The format is told by the content: JSONL begins with a brace. `mixed_ok` lets rows with and without
    samples stand together.
    Raises InvalidDevData (`errors` of the first 20 bad rows, `total_bad`) and BodyTooLarge.
    """
    bounds = limits or UploadLimits()
    NumberedLines(file, bounds).check_size()
    return _checked(lambda: _file_rows(file, bounds), bounds, ("file",), mixed_ok)


def read_examples(
    examples: Sequence[object], limits: UploadLimits | None = None, *, mixed_ok: bool = False
) -> DevData:
    """Check rows that came parsed, as `examples` of a JSON body; `line` in errors counts them from 1."""
    return _checked(
        lambda: enumerate(examples, start=1), limits or UploadLimits(), ("body", "examples"), mixed_ok
    )


def write_rows(rows: Iterable[DevRow]) -> Iterator[bytes]:
    """Yield each usable row as a line of JSONL that may be uploaded again.

    A row with fewer than two answers took part in no fit and would be refused.
    """
    return (write_row(row) for row in rows if row.usable())


def write_row(row: DevRow) -> bytes:
    """Return a row as a line of JSONL. Half a surrogate pair, which an LLM may answer, becomes "?"."""
    return json.dumps(_exported(row), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _exported(row: DevRow) -> dict[str, Any]:
    messages = row.messages and [{"role": m.role, "content": m.content} for m in row.messages]
    reference = row.references[0] if len(row.references) == 1 else list(row.references)
    exported = {
        "id": row.id,
        "prompt": row.prompt,
        "messages": messages,
        "reference": reference,
        "samples": None if row.samples is None else list(row.samples),
        "answer": row.answer,
        "correct": row.correct,
    }
    return {name: value for name, value in exported.items() if value is not None}


def _file_rows(file: BinaryIO, limits: UploadLimits) -> Iterator[Raw]:
    lines = NumberedLines(file, limits)
    if lines.head.lstrip()[:1] in (b"{", b"["):
        return _jsonl_rows(lines, limits.max_row_bytes)
    return csv_rows(lines, limits.max_row_bytes)


def _jsonl_rows(lines: Iterable[Line], max_row_bytes: int) -> Iterator[Raw]:
    for line in lines:
        if line.data is None:
            yield line.number, RowError((None, f"is longer than {max_row_bytes} bytes"))
        elif line.data.strip():
            yield line.number, _parsed(line.data)


def _parsed(data: bytes) -> object:
    if problem := encoding_problem(data):
        return RowError((None, problem))
    try:
        return parse_json(data.decode())
    except ValueError as error:
        return RowError((None, str(error)))


def _checked(
    read: Callable[[], Iterable[Raw]], limits: UploadLimits, loc: tuple[str, ...], mixed: bool
) -> DevData:
    check = _Check(limits, loc)
    for line, raw in read():
        check.add(line, raw)
    check.finish(mixed)
    return DevData(read, check.texts)


class _Check:
    """Counts rows and collects what is wrong with them."""

    def __init__(self, limits: UploadLimits, loc: tuple[str, ...]) -> None:
        self._limits, self._loc = limits, loc
        self._line_of_id: dict[bytes, int] = {}
        self._errors: list[dict[str, Any]] = []
        self._first_with = self._first_without = 0
        self.num_rows = self.num_with_samples = self.num_bad = 0
        self.texts = TextCount()

    def add(self, line: int, raw: object) -> None:
        """Take one row, good or bad; raise BodyTooLarge when there are too many."""
        if self.num_rows + self.num_bad == self._limits.max_rows:
            raise BodyTooLarge(
                f"The data hold more than {self._limits.max_rows} rows; send fewer.",
                limit_rows=self._limits.max_rows,
            )
        try:
            if isinstance(raw, RowError):
                raise raw
            self._count(check_row(line, raw))
        except RowError as error:
            self._refuse(line, error)

    def _count(self, row: DevRow) -> None:
        if row.id is not None:
            digest = hashlib.blake2b(row.id.encode(), digest_size=16).digest()
            if (earlier := self._line_of_id.setdefault(digest, row.line)) != row.line:
                raise RowError(("id", f"the same id as on line {earlier}"))
        self.num_rows += 1
        self.texts.add(row)
        if row.samples is None:
            self._first_without = self._first_without or row.line
        else:
            self.num_with_samples += 1
            self._first_with = self._first_with or row.line

    def _refuse(self, line: int, error: RowError) -> None:
        self.num_bad += 1
        if self.num_bad <= MAX_LISTED:
            self._errors += [self._error(line, field, reason) for field, reason in error.problems]

    def _error(self, line: int | None, field: str | None, reason: str) -> dict[str, Any]:
        loc = [*self._loc, *(part for part in (line, field) if part is not None)]
        return {"line": line, "field": field, "reason": reason, "loc": loc, "msg": reason}

    def finish(self, mixed_ok: bool) -> None:
        """Raise InvalidDevData unless every row is good, there are enough, and they fit together."""
        if self.num_bad:
            rows = "1 row is" if self.num_bad == 1 else f"{self.num_bad} rows are"
            detail = f"{rows} bad, the first on line {self._errors[0]['line']}; nothing was stored"
            raise InvalidDevData(detail, self._errors, self.num_bad)
        if self.num_rows < self._limits.min_rows:
            self._refuse_all(f"only {self.num_rows} usable rows; at least {self._limits.min_rows} are needed")
        if self._first_with and self._first_without and not mixed_ok:
            self._refuse_mixture()

    def _refuse_mixture(self) -> None:
        without = self.num_rows - self.num_with_samples
        reason = (
            f"{self.num_with_samples} rows carry samples (the first on line {self._first_with}), "
            f"{without} do not (the first on line {self._first_without}): all must or none"
        )
        first = max(self._first_with, self._first_without)
        raise InvalidDevData(
            reason, [self._error(first, "samples", reason)], min(self.num_with_samples, without)
        )

    def _refuse_all(self, reason: str) -> None:
        raise InvalidDevData(reason, [self._error(None, None, reason)], 0)
