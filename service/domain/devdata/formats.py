"""The formats of a row: strict JSON, and CSV by the csv module over bounded lines, with line numbers."""

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from service.domain.devdata.bytes import Line, encoding_problem, whole_file
from service.domain.devdata.row import LOGPROB_FIELDS, ROW_FIELDS
from service.domain.devdata.row_check import RowError, meant, printable

MAX_FIELDS = 64  # no header names as many
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class _JsonError(ValueError):
    pass


def parse_json(text: str) -> object:
    """Parse strict JSON: no NaN or Infinity, no key twice, no nesting without end. Raises ValueError."""
    try:
        # Without the line's end: what breaks off there would be told of a column of the next line.
        return json.loads(
            text.rstrip("\r\n"), parse_constant=_refuse_constant, object_pairs_hook=_unique_keys
        )
    except json.JSONDecodeError as error:
        raise _JsonError(f"is no valid JSON: {error.msg} (column {error.colno})") from error
    except _JsonError:
        raise
    except ValueError as error:  # the interpreter's bound on the digits of an integer
        raise _JsonError("holds a number of too many digits") from error
    except RecursionError as error:
        raise _JsonError("is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise _JsonError(f"holds {name}, which is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # The json module keeps the last of equal keys, and says nothing.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _JsonError("gives a key twice")
    return found


def refuse_other_separators(head: bytes) -> None:
    """Raise InvalidDevData where the columns of a header are separated by other than commas."""
    first = head.partition(b"\n")[0].decode("utf-8", "replace")
    for sign, name in _SEPARATORS.items():
        names = {part.strip().strip('"') for part in first.split(sign)[: MAX_FIELDS + 1]}
        if sign in first and not names.isdisjoint(ROW_FIELDS):
            raise whole_file(f"the columns are separated by {name}; a CSV file has commas between them")


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
    """Yield each record that is not blank, and where it begins.

    Each has a csv.reader of its own, so that a bad record does not spoil the next.
    """
    # The csv module bounds a field by one number for the whole process; here its lines bound a record.
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))
    source = _RecordLines(lines, max_row_bytes)
    while source.begin():
        record = _record(source)
        if record not in ([], [""]):  # a blank line
            yield source.start, record


def _record(source: "_RecordLines") -> list[str] | RowError:
    try:
        fields = next(csv.reader(source, strict=True))
    except (csv.Error, StopIteration):
        return RowError((None, source.cut or "text after a closing quote, or a lone carriage return"))
    if source.no_text:
        return RowError((None, source.no_text))
    return fields if len(fields) <= MAX_FIELDS else RowError((None, f"has more than {MAX_FIELDS} fields"))


class _RecordLines:
    """The lines of one record after another, for a csv.reader: it takes another only while a quote is open.

    start: the line on which the record begins. cut: why it was ended early, no_text: why it is not UTF-8.
    """

    def __init__(self, lines: Iterable[Line], max_row_bytes: int) -> None:
        self._lines = iter(lines)
        self._max_row_bytes = max_row_bytes
        self._first: Line | None = None
        self._size = self.start = 0
        self._over = False
        self.cut: str | None = None
        self.no_text: str | None = None

    def begin(self) -> bool:
        """Turn to the next record; return whether there is one, and where it begins can be known."""
        self._first = None if self._over else next(self._lines, None)
        self._size, self.cut, self.no_text = 0, None, None
        self.start = self._first.number if self._first else 0
        return self._first is not None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line with its end."""
        continued = self._first is None
        line, self._first = self._first or next(self._lines, None), None
        if line is None:
            self._cut("a quote is left open at the end of the file")
        self._size += len(line.data or b"")
        if line.data is None or self._size > self._max_row_bytes:
            self._over = continued  # within quotes: the next record may begin anywhere
            self._cut(f"is longer than {self._max_row_bytes} bytes (a quote left open?)")
        self.no_text = self.no_text or encoding_problem(line.data)
        return line.data.decode("utf-8", "replace")

    def _cut(self, reason: str) -> NoReturn:
        self.cut = reason
        raise StopIteration


def _check_header(record: list[str] | RowError) -> list[str]:
    if isinstance(record, RowError):
        raise whole_file(f"the header cannot be read: it {record}")
    names = [name.strip() for name in record]
    if unknown := [name for name in names if name not in ROW_FIELDS]:
        shown = ", ".join(repr(printable(name)) + meant(name) for name in unknown[:5])
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
    if name in ("samples", "messages", *LOGPROB_FIELDS):
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
