"""Files of dev data, CSV or JSON lines: numbered lines, unpacked, bounded, refused early if no UTF-8.

Memory stays flat whatever the file holds: a line is read up to `max_row_bytes` and skipped beyond.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO, NoReturn

from service.calibration.rows import LOGPROB_FIELDS, ROW_FIELDS, DevRow, RowError, check_row, meant, printable
from service.errors import BodyTooLarge, InvalidDevData

EXPECTED = "JSONL, JSONL.gz or CSV in UTF-8 is expected"
_HEAD = 4096
_BLOCK = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"
_KNOWN_FORMATS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive (Excel workbooks are ZIP archives too)"),
    (b"PAR1", "Parquet"),
    (b"\xff\xfe", "UTF-16 or UTF-32 text"),
    (b"\xfe\xff", "UTF-16 or UTF-32 text"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may hold.

    `max_bytes` bounds the file as it came and again as unpacked; `max_row_bytes` counts the line end.
    `max_lines` counts every line, also empty ones and those within a quoted field: each takes its time.
    `max_texts` bounds the answers and references of all files of a job together, those to be drawn included:
    `num_samples` for a row without answers where the caller names no number.
    """

    max_bytes: int = 256 << 20
    max_rows: int = 100_000
    max_lines: int = 500_000
    max_row_bytes: int = 1 << 20
    min_rows: int = 30
    max_texts: int = 250_000
    num_samples: int = 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its number from 1; `data` has its line end, and is None when the line is over the limit."""

    number: int
    data: bytes | None


def too_many_bytes(max_bytes: int) -> BodyTooLarge:
    """Return the error for a file that is over the limit, packed or unpacked."""
    return BodyTooLarge(f"the file has more than {max_bytes} bytes", limit_bytes=max_bytes)


def too_many_lines(max_lines: int) -> BodyTooLarge:
    """Return the error for a file that has too many lines, whether they hold rows or not."""
    return BodyTooLarge(f"the file has more than {max_lines} lines", limit_lines=max_lines)


def file_error(reason: str) -> InvalidDevData:
    """Return the error for a file that cannot be read at all."""
    problem = {"line": None, "field": None, "reason": reason, "loc": ["file"], "msg": reason}
    return InvalidDevData(reason, [problem])


def encoding_problem(data: bytes) -> str | None:
    """Return what keeps a line from being UTF-8 text, or None."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte 0x{data[error.start]:02X} at position {error.start + 1} (Latin-1?)"
    return None


class NumberedLines:
    """The lines of a seekable file from its start, unpacked if it is gzip, without a byte order mark.

    Creating it raises InvalidDevData when the file is empty or no UTF-8 text, BodyTooLarge when it is over
    the limit; an unpacked file over the limit raises on the line that goes over it. Iterate it once.
    """

    def __init__(self, file: BinaryIO, limits: UploadLimits) -> None:
        if file.seek(0, os.SEEK_END) > limits.max_bytes:
            raise too_many_bytes(limits.max_bytes)
        file.seek(0)
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        self._source = _unpacked(file) if packed else file
        self._limits = limits
        self._seen = 0
        with _unpacking_errors():
            self.head = self._read_head()

    def _read_head(self) -> bytes:
        head = self._source.read(_HEAD)
        bom = len(_UTF8_BOM) if head.startswith(_UTF8_BOM) else 0
        self._source.seek(bom)
        _check_head(head[bom:])
        return head[bom:]

    def check_size(self) -> None:
        """Read to the end; raise BodyTooLarge for too many bytes or lines.

        Quick whatever the file holds: a line that is looked at takes a hundred times as long as one counted.
        """
        lines = 0
        with _unpacking_errors():
            while block := self._source.read(_BLOCK):
                self._count(block)
                lines += block.count(b"\n")
                if lines > self._limits.max_lines:
                    raise too_many_lines(self._limits.max_lines)

    def __iter__(self) -> Iterator[Line]:
        number = 0
        with _unpacking_errors():
            while data := self._readline():
                number += 1
                if len(data) <= self._limits.max_row_bytes:
                    yield Line(number, data)
                else:
                    self._skip_rest(data)
                    yield Line(number, None)

    def _readline(self) -> bytes:
        # One more byte than allowed tells a line that is too long from one that just fits.
        data = self._source.readline(self._limits.max_row_bytes + 1)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self._seen += len(data)
        if self._seen > self._limits.max_bytes:
            raise too_many_bytes(self._limits.max_bytes)

    def _skip_rest(self, data: bytes) -> None:
        while data and not data.endswith(b"\n"):
            data = self._readline()


def _unpacked(file: BinaryIO) -> io.BufferedReader:
    """Return the file unpacked: closed without closing it. The reader around it is quick with short lines."""
    return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), _BLOCK)


@contextmanager
def _unpacking_errors() -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise file_error("the gzip data ends too early: the file was cut") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise file_error("the gzip data is damaged") from error


def _check_head(head: bytes) -> None:
    if not head.strip():
        raise file_error("the file is empty")
    for magic, found in _KNOWN_FORMATS:
        if head.startswith(magic):
            raise file_error(f"the file holds {found}; {EXPECTED}")
    if _CONTROLS.search(head):
        raise file_error(f"the file holds binary data; {EXPECTED}")


# The rows of an upload as a whole: every fault told, enough rows, no id twice, not too many texts.

MAX_LISTED = 20


@dataclass(slots=True)
class TextCount:
    """Rows by the number of samples that they carry (0: answers are drawn for them), and their other texts.

    others: references, and each `answer`: it may be among the samples, but not among those that are used.
    """

    others: int = 0
    rows: Counter[int] = field(default_factory=Counter)

    def add(self, row: DevRow) -> None:
        """Count a row."""
        self.others += len(row.references) + (row.answer is not None)
        self.rows[len(row.samples or ())] += 1

    def total(self, asked: int | None, drawn: int) -> int:
        """Return answers and references. `asked`: of every row; `drawn`: for rows without, if not asked."""
        return self.others + sum(n * _answers(have, asked, drawn) for have, n in self.rows.items())


def _answers(have: int, asked: int | None, drawn: int) -> int:
    if not have:
        return asked or drawn
    return min(have, asked or have)


def check_size(files: Sequence[TextCount], asked: int | None, limits: UploadLimits) -> None:
    """Raise InvalidDevData when the files of one job hold more texts than `limits` allows together."""
    texts = sum(one.total(asked, limits.num_samples) for one in files)
    if texts > limits.max_texts:
        rows = sum(one.rows.total() for one in files)
        raise InvalidDevData(
            f"{rows} rows make up to {texts} answers and references, more than the {limits.max_texts} whose "
            "vectors may be held in memory; nothing was stored. Send fewer rows, or ask for fewer answers "
            "with num_samples."
        )


class FileCheck:
    """Counts rows and collects what is wrong with them. `loc`: where a row is, before its line."""

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
            # 16 bytes for an id of any length: what is kept of 100,000 rows stays a few megabytes.
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


# The formats of a row: strict JSON, and CSV by the csv module over bounded lines, with line numbers.

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
            raise file_error(f"the columns are separated by {name}; a CSV file has commas between them")


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
        raise file_error(f"the header cannot be read: it {record}")
    names = [name.strip() for name in record]
    if unknown := [name for name in names if name not in ROW_FIELDS]:
        shown = ", ".join(repr(printable(name)) + meant(name) for name in unknown[:5])
        raise file_error(f"unknown columns {shown} in the header; known are {', '.join(ROW_FIELDS)}")
    if len(set(names)) < len(names):
        raise file_error("the header names a column twice")
    if "reference" not in names or not {"prompt", "messages"} & set(names):
        raise file_error("the header must name the columns prompt (or messages) and reference")
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


# Dev data, uploaded or a file of an evaluation: checked whole before a row is given out, in flat memory.
#
# A file is read twice, first to check every row, then to yield them; what is kept between is one short hash
# per
# row, to find an id given twice.

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


def _file_rows(file: BinaryIO, limits: UploadLimits) -> Iterator[Raw]:
    lines = NumberedLines(file, limits)
    # A bracket opens no row of JSONL, but the error of its first line says more than a CSV header's.
    if lines.head.lstrip()[:1] in (b"{", b"["):
        return _jsonl_rows(lines, limits.max_row_bytes)
    refuse_other_separators(lines.head)
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
    check = FileCheck(limits, loc)
    for line, raw in read():
        check.add(line, raw)
    check.finish(mixed)
    return DevData(read, check.texts)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a row says of its answers, in their order; empty where it says nothing that can be used."""

    logprob: Sequence[float] = ()
    tokens: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """rows: checked; total: rows in the file.

    recorded: by line, one number per answer: `logprobs` of the whole answer in nats, `tokens` in it.
    """

    rows: Sequence[DevRow]
    recorded: Mapping[int, "Recorded"]
    total: int

    @property
    def supplied(self) -> bool:
        """Whether the answers came with the file."""
        return all(row.samples is not None for row in self.rows)


def read_evaluation_file(
    file: BinaryIO, limit: int | None = None, limits: UploadLimits | None = None
) -> EvaluationFile:
    """Return the first `limit` rows. Raises InvalidDevData and BodyTooLarge as `read_file` does."""
    bounds = limits or UploadLimits()
    data = read_file(file, bounds)
    rows = list(islice(data.rows(), limit))
    tokens = _tokens(file, bounds, {row.line for row in rows})
    recorded = {row.line: Recorded(_at_most_0(row.logprobs), tokens.get(row.line, ())) for row in rows}
    return EvaluationFile(rows, recorded, data.num_rows)


def _at_most_0(logprobs: Sequence[float] | None) -> tuple[float, ...]:
    """Return log-probabilities without what rounding put above 0."""
    return tuple(min(one, 0.0) for one in logprobs or ())


def _tokens(file: BinaryIO, limits: UploadLimits, wanted: set[int]) -> dict[int, Sequence[float]]:
    """Return the `tokens` lists of JSONL rows; a CSV file has none."""
    lines = NumberedLines(file, limits)
    if lines.head.lstrip()[:1] != b"{":
        return {}
    parsed = ((line.number, line.data) for line in lines if line.data and line.number in wanted)
    rows = ((number, parse_json(data.decode())) for number, data in parsed if data.strip())
    return {number: _counts(row.get("tokens")) for number, row in rows if isinstance(row, dict)}


def _counts(values: object) -> Sequence[float]:
    """Return a list of numbers from 1 on; nothing unless every one is."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 1 for v in values)
    return tuple(float(v) for v in values) if good else ()
