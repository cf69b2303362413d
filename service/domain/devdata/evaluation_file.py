"""The rows of one file of an evaluation, with what was recorded beside the answers where it has it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from service.domain.devdata.bytes import NumberedLines
from service.domain.devdata.reader import UploadLimits, read_file
from service.domain.devdata.strict_json import parse_json
from service.domain.jobs.model import DevRow


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a row says of its answers, in their order; empty where it says nothing that can be used."""

    logprob: Sequence[float] = ()
    tokens: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """rows: checked; total: rows in the file.

    recorded: by line, one number per answer: `logprob` of the whole answer in nats, `tokens` in it.
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
    """Return the first `limit` rows. Raises InvalidDevData and BodyTooLarge as `devdata.read_file` does."""
    bounds = limits or UploadLimits()
    data = read_file(file, bounds)
    rows = list(islice(data.rows(), limit))
    return EvaluationFile(rows, _recorded(file, bounds, {row.line for row in rows}), data.num_rows)


def _recorded(file: BinaryIO, limits: UploadLimits, wanted: set[int]) -> dict[int, Recorded]:
    """Return the `logprob` and `tokens` lists of JSONL rows; a CSV file has none."""
    lines = NumberedLines(file, limits)
    if lines.head.lstrip()[:1] != b"{":
        return {}
    parsed = ((line.number, line.data) for line in lines if line.data and line.number in wanted)
    rows = ((number, parse_json(data.decode())) for number, data in parsed if data.strip())
    return {number: _of_row(row) for number, row in rows if isinstance(row, dict)}


def _of_row(row: Mapping[str, Any]) -> Recorded:
    return Recorded(
        _numbers(row.get("logprob"), lambda value: value <= 0),
        _numbers(row.get("tokens"), lambda value: value >= 1),
    )


def _numbers(values: object, fits: Callable[[float], bool]) -> Sequence[float]:
    """Return a list of numbers; nothing unless every one is a number that fits."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and fits(v) for v in values)
    return tuple(float(v) for v in values) if good else ()
