"""Dev data as it comes, CSV, JSON lines or a JSON body: checked row by row before any is given out.

Memory stays flat whatever a file holds. It is read twice, to check every row and then to yield them; a line
is read up to `max_row_bytes` and skipped beyond. What is kept between is a hash of each id.
"""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from service.calibration.rows import (
    LOGPROB_FIELDS,
    MIN_USABLE_ROWS,
    ROW_FIELDS,
    DevRow,
    RowError,
    check_row,
    meant,
    printable,
)
from service.errors import BodyTooLarge, InvalidDevData

EXPECTED = "JSONL, JSONL.gz or CSV in UTF-8 is expected"
MAX_LISTED = 20  # bad rows
_HEAD = 4096
_GZIP_MAGIC = b"\x1f\x8b"
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

# A line number and the row as parsed, or the RowError that came of parsing.
Raw = tuple[int, object]


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may hold.

    `max_bytes` bounds the file as it came and again as unpacked; `max_row_bytes` counts the line end.
    `max_lines` counts every line, also empty ones and those within a quoted field: each takes its time.
    `max_texts` bounds the answers and references of all files of a job together, those to be drawn included:
    `num_samples` for a row without answers where the caller names no number.
    """

    max_bytes: int = 64 << 20
    max_rows: int = 100_000
    max_lines: int = 500_000
    max_row_bytes: int = 1 << 20
    min_rows: int = MIN_USABLE_ROWS
    max_texts: int = 250_000
    num_samples: int = 20


@dataclass(frozen=True, slots=True)
class DevData:
    """Checked dev data, read again from the start by every call, as long as the file is open.

    num_texts: answers, those to be drawn included, and references.
    """

    raw_rows: Callable[[], Iterable[Raw]]
    num_rows: int
    num_texts: int

    def rows(self) -> Iterator[DevRow]:
        """Yield the rows in the order of the file."""
        for line, raw in self.raw_rows():
            yield check_row(line, raw)


def read_file(
    file: BinaryIO, limits: UploadLimits | None = None, *, num_samples: int | None = None
) -> DevData:
    """Check a seekable binary file of JSONL or CSV, packed with gzip or not, and return its rows.

    num_samples: as the caller asks for, None: as `limits` has it.
    Raises InvalidDevData (`errors` of the first 20 bad rows, `total_bad`) and BodyTooLarge.
    """
    bounds = limits or UploadLimits()
    return _checked(lambda: _file_rows(file, bounds), bounds, ("file",), num_samples)


def read_examples(
    examples: Sequence[object], limits: UploadLimits | None = None, *, num_samples: int | None = None
) -> DevData:
    """Check rows that came parsed, as `examples` of a JSON body; `line` in errors counts them from 1."""
    loc = ("body", "examples")
    return _checked(lambda: enumerate(examples, start=1), limits or UploadLimits(), loc, num_samples)


def check_size(files: Sequence[DevData], limits: UploadLimits) -> None:
    """Raise InvalidDevData when the files of one job hold more texts than `limits` allows together."""
    texts, rows = sum(data.num_texts for data in files), sum(data.num_rows for data in files)
    if texts > limits.max_texts:
        raise InvalidDevData(
            f"{rows} rows make up to {texts} answers and references, more than the {limits.max_texts} whose "
            "vectors may be held in memory; nothing was stored. Send fewer rows, or ask for fewer answers "
            "with num_samples."
        )


def _checked(
    raw_rows: Callable[[], Iterable[Raw]], limits: UploadLimits, loc: tuple[str, ...], asked: int | None
) -> DevData:
    errors: list[dict[str, Any]] = []
    line_of_id: dict[int, int] = {}
    num_rows = num_texts = num_bad = 0
    for line, raw in raw_rows():
        if num_rows + num_bad == limits.max_rows:
            raise _too_large("rows", limits.max_rows)
        try:
            row = check_row(line, raw)
            _check_id(row, line_of_id)
        except RowError as error:
            num_bad += 1
            if num_bad <= MAX_LISTED:
                errors += [_error(loc, line, field, reason) for field, reason in error.problems]
        else:
            num_rows += 1
            num_texts += _num_texts(row, asked, limits.num_samples)
    if num_bad:
        bad = "1 row is" if num_bad == 1 else f"{num_bad} rows are"
        first = errors[0]["line"]
        raise InvalidDevData(f"{bad} bad, the first on line {first}; nothing was stored", errors, num_bad)
    if num_rows < limits.min_rows:
        reason = f"only {num_rows} usable rows; at least {limits.min_rows} are needed"
        raise InvalidDevData(reason, [_error(loc, None, None, reason)], 0)
    return DevData(raw_rows, num_rows, num_texts)


def _check_id(row: DevRow, line_of_id: dict[int, int]) -> None:
    # The hash of an id of any length: of 100,000 no two are equal by chance.
    if row.id is not None and (earlier := line_of_id.setdefault(hash(row.id), row.line)) != row.line:
        raise RowError(("id", f"the same id as on line {earlier}"))


def _num_texts(row: DevRow, asked: int | None, drawn: int) -> int:
    # An `answer` may be among the samples, but not among those that are used.
    others = len(row.references) + (row.answer is not None) + len(row.claims)
    if row.samples is None:
        return others + (asked or drawn)
    return others + min(len(row.samples), asked or len(row.samples))


def _error(loc: tuple[str, ...], line: int | None, field: str | None, reason: str) -> dict[str, Any]:
    place = [*loc, *(part for part in (line, field) if part is not None)]
    return {"line": line, "field": field, "reason": reason, "loc": place, "msg": reason}


def _too_large(what: str, limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The data hold more than {limit} {what}; send fewer.", **{f"limit_{what}": limit})


def _file_error(reason: str) -> InvalidDevData:
    """Return the error for a file that cannot be read at all."""
    return InvalidDevData(reason, [_error(("file",), None, None, reason)])


def _file_rows(file: BinaryIO, limits: UploadLimits) -> Iterator[Raw]:
    """Yield the rows of a file, unpacked if it is gzip. The format is told by the content.

    Raises InvalidDevData when it is empty or no text, BodyTooLarge on the line that goes over a limit.
    """
    if file.seek(0, os.SEEK_END) > limits.max_bytes:
        raise _too_large("bytes", limits.max_bytes)
    file.seek(0)
    packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    # The reader around it is quick with short lines, and closing it does not close the file.
    source = io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), 64 << 10) if packed else file
    try:
        head = source.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
        source.seek(0)
        if not head:
            raise _file_error("the file is empty")
        if _CONTROLS.search(head):
            raise _file_error(f"the file holds binary data, or text that is not UTF-8; {EXPECTED}")
        lines = _lines(source, limits)
        # A bracket opens no row of JSONL, but the error of its first line says more than a CSV header's.
        yield from _jsonl_rows(lines) if head[:1] in b"{[" else _csv_rows(lines, limits.max_row_bytes)
    except EOFError as error:
        raise _file_error("the gzip data ends too early: the file was cut") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _file_error("the gzip data is damaged") from error


def _lines(source: BinaryIO, limits: UploadLimits) -> Iterator[tuple[int, str | RowError]]:
    """Yield each line from 1 with its end, or why it is none, with its number."""
    number = size = 0
    # One more byte than allowed tells a line that is too long from one that just fits.
    while data := source.readline(limits.max_row_bytes + 1):
        number += 1
        size += len(data)
        line: str | RowError
        try:
            line = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte, at = data[error.start], error.start + 1
            line = RowError((None, f"is not UTF-8: byte 0x{byte:02X} at position {at} (Latin-1?)"))
        if len(data) > limits.max_row_bytes:
            line = RowError((None, f"is longer than {limits.max_row_bytes} bytes"))
            while data and not data.endswith(b"\n") and size <= limits.max_bytes:
                data = source.readline(limits.max_row_bytes)
                size += len(data)
        if size > limits.max_bytes:
            raise _too_large("bytes", limits.max_bytes)
        if number > limits.max_lines:
            raise _too_large("lines", limits.max_lines)
        yield number, line


# JSON lines: strict JSON.


class _JsonError(ValueError):
    pass


def _jsonl_rows(lines: Iterable[tuple[int, str | RowError]]) -> Iterator[Raw]:
    for number, line in lines:
        if isinstance(line, RowError):
            yield number, line
        elif line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                yield number, RowError((None, str(error)))


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
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise _JsonError("gives a key twice")
    return unique


# CSV by the csv module: a record may take several lines, and a bad one does not spoil the next.


def _csv_rows(lines: Iterable[tuple[int, str | RowError]], max_row_bytes: int) -> Iterator[Raw]:
    """Yield the line on which each row begins and its fields by name, or a RowError in their place.

    The first record is the header. Raises InvalidDevData when the header does not fit.
    """
    # The csv module bounds a field by one number for the whole process; here its lines bound a record.
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))
    last = size = 0

    def text(numbered: tuple[int, str | RowError]) -> str:
        nonlocal last, size
        last, line = numbered
        if isinstance(line, RowError):
            raise line
        size += len(line.encode())
        if size > max_row_bytes:
            raise RowError((None, f"is longer than {max_row_bytes} bytes (a quote left open?)"))
        return line

    # An error in `text` passes through the reader, which then begins its next record at the next line.
    reader = csv.reader(map(text, lines), strict=True)
    header: list[str] | None = None
    while True:
        size, begin = 0, last + 1
        record: list[str] | RowError
        try:
            record = next(reader)
        except StopIteration:
            return
        except RowError as error:
            record = error
        except csv.Error as error:
            record = RowError((None, f"is no valid CSV: {error}"))
        if header is None and record not in ([], [""]):
            header = _check_header(record)
        elif header is not None and record not in ([], [""]):
            yield begin, record if isinstance(record, RowError) else _csv_row(header, record)


def _check_header(record: list[str] | RowError) -> list[str]:
    if isinstance(record, RowError):
        raise _file_error(f"the header cannot be read: it {record}; columns must be separated by commas")
    names = [name.strip() for name in record]
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise _file_error("the columns must be separated by commas")
    if unknown := [name for name in names if name not in ROW_FIELDS]:
        shown = ", ".join(repr(printable(name)) + meant(name) for name in unknown[:5])
        raise _file_error(f"unknown columns {shown} in the header; known are {', '.join(ROW_FIELDS)}")
    if len(set(names)) < len(names):
        raise _file_error("the header names a column twice")
    if not {"reference", "claims"} & set(names) or not {"prompt", "messages"} & set(names):
        raise _file_error("the header must name the columns prompt (or messages) and reference (or claims)")
    return names


def _csv_row(header: list[str], record: list[str]) -> dict[str, Any] | RowError:
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
    if name in ("samples", "messages", "claims", "answer_logprob", *LOGPROB_FIELDS):
        return parse_json(cell)
    if name == "correct":
        if (word := cell.strip().lower()) not in _BOOLEANS:
            raise ValueError(f"must be one of {', '.join(_BOOLEANS)}")
        return _BOOLEANS[word]
    if name == "reference" and cell.startswith("["):
        try:
            return parse_json(cell)
        except ValueError:
            return cell  # `[sic] Churchill` is a string
    return cell
