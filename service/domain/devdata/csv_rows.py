"""CSV as in RFC 4180: records over several lines, read incrementally, bounded, with line numbers.

The csv module is not used: it bounds a field by one number for the whole process, and an open quote would
make it swallow the rest of the file.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from service.domain.devdata.bytes import Line, encoding_problem, whole_file
from service.domain.devdata.row import ROW_FIELDS
from service.domain.devdata.row_check import RowError, printable
from service.domain.devdata.strict_json import parse_json

MAX_FIELDS = 64  # no header names as many
_QUOTED = re.compile(r'[^"]*+(?:""[^"]*+)*+')
_BARE = re.compile(r"[^,\r\n]*+")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class CsvSyntaxError(ValueError):
    """The text breaks the rules of CSV."""


class Record:
    """One record, fed line by line until it is complete. Each character is looked at once."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self._quoted: list[str] | None = None

    def feed(self, line: str) -> bool:
        """Take a line with its end; return whether the record is complete. Raises CsvSyntaxError."""
        at = 0
        while True:
            if len(self.fields) > MAX_FIELDS:
                raise CsvSyntaxError(f"has more than {MAX_FIELDS} fields")
            at = self._field(line, at)
            if self._quoted is not None:
                return False
            if line[at:] in ("", "\n", "\r\n"):
                return True
            if line[at] != ",":
                raise CsvSyntaxError("text after a closing quote, or a lone carriage return")
            at += 1

    def _field(self, line: str, at: int) -> int:
        if self._quoted is None and line.startswith('"', at):
            self._quoted, at = [], at + 1
        return (
            self._bare_field(line, at) if self._quoted is None else self._quoted_field(line, at, self._quoted)
        )

    def _bare_field(self, line: str, at: int) -> int:
        found = _BARE.match(line, at)
        assert found is not None  # it matches the empty string
        self.fields.append(found.group())
        return found.end()

    def _quoted_field(self, line: str, at: int, parts: list[str]) -> int:
        found = _QUOTED.match(line, at)
        assert found is not None  # it matches the empty string
        parts.append(found.group().replace('""', '"'))
        if found.end() < len(line):  # stopped by the closing quote
            self.fields.append("".join(parts))
            self._quoted = None
            return found.end() + 1
        return found.end()


def csv_rows(lines: Iterable[Line], max_row_bytes: int) -> Iterator[tuple[int, object]]:
    """Yield the line on which each row begins and its fields by name, or a RowError in their place.

    The first record is the header. Raises InvalidDevData when the header does not fit.
    """
    header: list[str] | None = None
    for number, record in _records(lines, max_row_bytes):
        if header is None:
            header = _check_header(record)
        else:
            yield number, record if isinstance(record, RowError) else _row(header, record)


def _records(lines: Iterable[Line], max_row_bytes: int) -> Iterator[tuple[int, list[str] | RowError]]:
    pending = _Pending()
    too_long = RowError((None, f"is longer than {max_row_bytes} bytes (a quote left open?)"))
    for line in lines:
        if pending.add(line, max_row_bytes):
            yield pending.start, too_long
            if pending.in_quotes:
                return  # where the next record begins cannot be known
            pending = _Pending()
        elif (done := pending.feed(line)) is not None:
            if done != [""]:  # a blank line
                yield pending.start, done
            pending = _Pending()
    if pending.in_quotes:
        yield pending.start, RowError((None, "a quote is left open at the end of the file"))


class _Pending:
    """The record being read: where it began, how long it is, what was wrong with it."""

    def __init__(self) -> None:
        self.start = self._size = 0
        self.in_quotes = False
        self._record = Record()
        self._problem: str | None = None

    def add(self, line: Line, max_row_bytes: int) -> bool:
        """Count a line and return whether the record is too long now."""
        self.start = self.start or line.number
        self._size += len(line.data or b"")
        return line.data is None or self._size > max_row_bytes

    def feed(self, line: Line) -> list[str] | RowError | None:
        """Return the fields once they are complete, a RowError if they cannot be read, None to go on."""
        data = line.data or b""
        self._problem = self._problem or encoding_problem(data)
        try:
            self.in_quotes = not self._record.feed(data.decode("utf-8", "replace"))
        except CsvSyntaxError as error:
            return RowError((None, str(error)))
        if self.in_quotes:
            return None
        return RowError((None, self._problem)) if self._problem else self._record.fields


def _check_header(record: list[str] | RowError) -> list[str]:
    if isinstance(record, RowError):
        raise whole_file(f"the header cannot be read: it {record}")
    names = [name.strip() for name in record]
    if unknown := [name for name in names if name not in ROW_FIELDS]:
        shown = ", ".join(repr(printable(name)) for name in unknown[:5])
        raise whole_file(f"unknown columns {shown} in the header; known are {', '.join(ROW_FIELDS)}")
    if len(set(names)) < len(names):
        raise whole_file("the header names a column twice")
    if "reference" not in names or not {"prompt", "messages"} & set(names):
        raise whole_file("the header must name the columns prompt (or messages) and reference")
    return names


def _row(header: list[str], record: list[str]) -> dict[str, Any] | RowError:
    if len(record) != len(header):
        return RowError((None, f"has {len(record)} fields, the header has {len(header)}"))
    row: dict[str, Any] = {}
    for name, cell in zip(header, record, strict=True):
        if cell.strip() or (cell and name == "answer"):
            try:
                row[name] = _cell(name, cell)
            except ValueError as error:
                return RowError((name, str(error)))
    return row


def _cell(name: str, cell: str) -> object:
    if name in ("samples", "messages"):
        return parse_json(cell)
    if name == "reference":
        return _reference(cell)
    if name == "correct":
        return _boolean(cell)
    return cell


def _reference(cell: str) -> object:
    """Return the list that a JSON list holds, and anything else as it is: `[sic] Churchill` is a string."""
    if not cell.startswith("["):
        return cell
    try:
        return parse_json(cell)
    except ValueError:
        return cell


def _boolean(cell: str) -> bool:
    try:
        return _BOOLEANS[cell.strip().lower()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(_BOOLEANS)}") from None
