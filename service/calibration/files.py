"""Dev data as CSV, JSON lines or a JSON body. All rows are checked before the first is returned.

A file is read twice: to check every row, and then to yield the rows. Only a hash of each id is kept in
memory, so memory does not grow with the size of the rows.
"""

import codecs
import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from service.calibration.rows import (
    LOGPROB_FIELDS,
    MIN_USABLE_ROWS,
    ROW_FIELDS,
    DevRow,
    RowError,
    check_row,
    listed_texts,
    parse_json,
    unknown_fields,
)
from service.errors import BodyTooLarge, InvalidDevData

EXPECTED = "JSONL or CSV in UTF-8 is expected"
MAX_LISTED = 20  # bad rows
_HEAD = 4096
_BOOLEANS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}
# Cells that spreadsheets write for errors, and pandas for missing values.
_NO_VALUE = re.compile(r"#(?:VALUE!|REF!|NAME\?|DIV/0!|NULL!|NUM!|N/A|SPILL!|CALC!)|nan|NaN|<NA>")
# The names of an index column that pandas writes: none, or this one after a second round.
_INDEX_COLUMN = re.compile(r"|Unnamed: \d+(\.\d+)?")

# A line number and the parsed row, or the RowError from parsing it.
Raw = tuple[int, object]


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """The size limits of an upload.

    `max_row_bytes` includes the line end.
    `max_lines` counts all lines, also empty lines and lines within a quoted field, since each takes time.
    `max_texts` limits the answers and references of all files of a job together. Answers to be drawn are
    included: `num_samples` for a row without answers if the caller gives no number.
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
    """Checked dev data. Each call of `rows` reads the file from the start; the file must still be open.

    num_texts: number of answers, including answers to be drawn, and references.
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
    """Check a seekable binary file of JSONL or CSV and return its rows.

    num_samples: the caller's number of answers; None for the number in `limits`.
    Raises InvalidDevData (`errors` of the first 20 bad rows, `total_bad`) and BodyTooLarge.
    """
    bounds = limits or UploadLimits()
    return _checked(lambda: _file_rows(file, bounds), bounds, ("file",), num_samples)


def read_examples(
    examples: Sequence[object], limits: UploadLimits | None = None, *, num_samples: int | None = None
) -> DevData:
    """Check parsed rows: the `examples` of a JSON body. `line` in errors is the position from 1."""
    loc = ("body", "examples")
    return _checked(lambda: enumerate(examples, start=1), limits or UploadLimits(), loc, num_samples)


def check_size(data: DevData, limits: UploadLimits) -> None:
    """Raise InvalidDevData if the rows contain more texts than `limits` allows."""
    if data.num_texts > limits.max_texts:
        raise InvalidDevData(
            f"{data.num_rows} rows make up to {data.num_texts} answers and references, more than the "
            f"{limits.max_texts} vectors that fit into memory; nothing was stored. Send fewer rows, or ask "
            "for fewer answers with num_samples."
        )


def _checked(
    raw_rows: Callable[[], Iterable[Raw]], limits: UploadLimits, loc: tuple[str, ...], num_samples: int | None
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
            num_texts += _num_texts(row, num_samples, limits.num_samples)
    if num_bad:
        bad = "1 row is" if num_bad == 1 else f"{num_bad} rows are"
        first = errors[0]["line"]
        raise InvalidDevData(f"{bad} bad, the first on line {first}; nothing was stored", errors, num_bad)
    if num_rows < limits.min_rows:
        reason = f"only {num_rows} usable rows; at least {limits.min_rows} are needed"
        raise InvalidDevData(reason, [_error(loc, None, None, reason)], 0)
    return DevData(raw_rows, num_rows, num_texts)


def _check_id(row: DevRow, line_of_id: dict[int, int]) -> None:
    # A hash, since ids may be long. Among 100,000 ids two equal hashes do not occur by chance.
    if row.id is not None and (earlier := line_of_id.setdefault(hash(row.id), row.line)) != row.line:
        raise RowError(("id", f"the same id as on line {earlier}"))


def _num_texts(row: DevRow, num_samples: int | None, default: int) -> int:
    # An `answer` counts separately: it may be among the samples, but not among the first `num_samples`.
    others = len(row.references) + (row.answer is not None) + len(row.claims)
    if row.samples is None:
        return others + (num_samples or default)
    return others + min(len(row.samples), num_samples or len(row.samples))


def _error(loc: tuple[str, ...], line: int | None, field: str | None, reason: str) -> dict[str, Any]:
    place = [*loc, *(part for part in (line, field) if part is not None)]
    return {"line": line, "field": field, "reason": reason, "loc": place, "msg": reason}


def _too_large(unit: str, limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The data hold more than {limit} {unit}; send fewer.", **{f"limit_{unit}": limit})


def _file_error(reason: str, line: int | None = None) -> InvalidDevData:
    """Return the error for a file that cannot be read from `line` on; None: not at all."""
    return InvalidDevData(reason, [_error(("file",), line, None, reason)])


def _file_rows(file: BinaryIO, limits: UploadLimits) -> Iterator[Raw]:
    """Yield the rows of a file. The format is detected from the content.

    Raises InvalidDevData if the file is empty or not text, BodyTooLarge at the line that exceeds a limit.
    """
    if file.seek(0, os.SEEK_END) > limits.max_bytes:
        raise _too_large("bytes", limits.max_bytes)
    file.seek(0)
    head = file.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    file.seek(0)
    if not head:
        raise _file_error("the file is empty")
    lines = _lines(file, limits)
    if head.startswith(b"["):
        raise _file_error(
            "the file is one JSON array; in JSONL each row is an object on a line of its own. Convert "
            "the file with `jq -c '.[]' rows.json`, or in pandas with "
            "`to_json(path, orient='records', lines=True)`"
        )
    if head.startswith(b"PK\x03\x04"):
        raise _file_error("the file is a spreadsheet or a ZIP archive; save the sheet as CSV in UTF-8")
    if head.startswith(b"{"):
        yield from _jsonl_rows(lines)
        return
    # Where the comma is a decimal sign, spreadsheets separate columns by semicolons.
    header = head.partition(b"\n")[0].decode("utf-8", "replace")
    delimiter = "," if "," in header else max(";\t", key=header.count)
    yield from _csv_rows(lines, limits.max_row_bytes, delimiter)


def _lines(source: BinaryIO, limits: UploadLimits) -> Iterator[str]:
    """Yield each line, including the line end."""
    # One more byte than allowed, to detect lines that are too long.
    pieces = iter(partial(source.readline, limits.max_row_bytes + 1), b"")
    for number, data in enumerate(pieces, start=1):
        if number > limits.max_lines:
            raise _too_large("lines", limits.max_lines)
        if len(data) > limits.max_row_bytes:
            raise _file_error(f"line {number} is longer than {limits.max_row_bytes} bytes", number)
        try:
            yield data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"line {number} is not UTF-8: byte 0x{data[error.start]:02X}; {EXPECTED}"
            raise _file_error(reason, number) from None


def _jsonl_rows(lines: Iterable[str]) -> Iterator[Raw]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                yield number, RowError((None, f"{error}; each line must hold a whole row"))


def _csv_rows(lines: Iterable[str], max_row_bytes: int, delimiter: str) -> Iterator[Raw]:
    """Yield the first line number of each row, and its fields by name."""
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))  # the limit is global to the process
    size = 0  # bytes of the current record

    def measured() -> Iterator[str]:
        nonlocal size
        for number, line in enumerate(lines, start=1):
            size += len(line.encode())
            if size > max_row_bytes:
                reason = f"line {number}: the row is longer than {max_row_bytes} bytes (a quote left open?)"
                raise _file_error(reason, number)
            yield line

    reader = csv.reader(measured(), delimiter=delimiter, strict=True)
    try:
        header = _check_header(next(filter(None, reader), []))
        begin, size = reader.line_num + 1, 0
        for record in reader:
            if record:
                yield begin, _csv_row(header, record)
            begin, size = reader.line_num + 1, 0
    except csv.Error as error:
        reason = f"line {reader.line_num} is no valid CSV: {error}"
        raise _file_error(reason, reader.line_num) from None


def _check_header(record: list[str]) -> list[str]:
    names = ["" if _INDEX_COLUMN.fullmatch(name.strip()) else name.strip() for name in record]
    fields = [name for name in names if name]
    if unknown := [name for name in fields if name not in ROW_FIELDS]:
        raise _file_error(f"the header: {unknown_fields(unknown)}")
    if len(set(fields)) < len(fields):
        raise _file_error("the header names a column twice")
    if not {"reference", "claims", "correct"} & set(names) or not {"prompt", "messages"} & set(names):
        raise _file_error(
            "the header must name the columns prompt (or messages) and reference (or claims, or answer and "
            "correct)"
        )
    return names


def _csv_row(header: list[str], record: list[str]) -> dict[str, Any] | RowError:
    if len(record) != len(header):
        return RowError((None, f"has {len(record)} fields, the header has {len(header)}"))
    row: dict[str, Any] = {}
    for name, cell in zip(header, record, strict=True):
        if not name:
            if cell.strip() and not cell.strip().isdecimal():
                return RowError((None, "the column without a name is no index of row numbers; name it"))
        elif cell.strip() or (cell and name == "answer"):
            try:
                row[name] = _cell(name, cell)
            except ValueError as error:
                return RowError((name, str(error)))
    return row


def _cell(name: str, cell: str) -> object:
    if name != "id" and _NO_VALUE.fullmatch(cell.strip()):
        raise ValueError(
            f"{cell.strip()!r} is an error of a spreadsheet or a missing value; correct it, leave it empty, "
            "or send JSONL if this is the text"
        )
    if name in ("samples", "messages", "claims", *LOGPROB_FIELDS):
        try:
            return parse_json(cell)
        except ValueError as error:
            raise ValueError(f'{error}; write a list as JSON, such as ["Paris", "Lyon"]') from None
    if name == "reference" and "|" in cell and isinstance(listed_texts(cell), str):
        raise ValueError(
            'contains |: write several references as a JSON list, such as ["Paris", "Lyon"], and a text that '
            'contains | as a list of one, such as ["a|b"]'
        )
    if name == "answer_logprob":
        return parse_json(cell)
    if name == "correct":
        return _BOOLEANS.get(cell.strip().lower(), cell)
    return cell
