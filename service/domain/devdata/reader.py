"""Dev data, uploaded or a file of an evaluation: checked whole before a row is given out, in flat memory.

A file is read twice, first to check every row, then to yield them; what is kept between is one short hash per
row, to find an id given twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from service.domain.devdata.bytes import Line, NumberedLines, UploadLimits, encoding_problem
from service.domain.devdata.file_check import FileCheck, TextCount
from service.domain.devdata.formats import csv_rows, parse_json, refuse_other_separators
from service.domain.devdata.row_check import RowError, check_row
from service.domain.jobs.model import DevRow

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
