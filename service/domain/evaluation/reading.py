"""The rows of one file of an evaluation, with recorded log-probabilities where it has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from service.domain.devdata import UploadLimits, parse_json, read_file
from service.domain.devdata_bytes import NumberedLines
from service.domain.jobs import DevRow


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """rows: checked; logprobs: by line, of whole answers in nats; total: rows in the file."""

    rows: Sequence[DevRow]
    logprobs: Mapping[int, Sequence[float]]
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
    return EvaluationFile(rows, _logprobs(file, bounds, {row.line for row in rows}), data.num_rows)


def _logprobs(file: BinaryIO, limits: UploadLimits, wanted: set[int]) -> dict[int, Sequence[float]]:
    """Return the `logprob` lists of JSONL rows; a CSV file has none."""
    lines = NumberedLines(file, limits)
    if lines.head.lstrip()[:1] != b"{":
        return {}
    parsed = ((line.number, line.data) for line in lines if line.data and line.number in wanted)
    found = {number: _numbers(parse_json(data.decode())) for number, data in parsed if data.strip()}
    return {number: values for number, values in found.items() if values}


def _numbers(row: object) -> Sequence[float]:
    """Return the row's log-probabilities; nothing unless every one is a number up to 0."""
    values = row.get("logprob") if isinstance(row, dict) else None
    if not isinstance(values, list):
        return ()
    fit = all(isinstance(v, int | float) and not isinstance(v, bool) and v <= 0 for v in values)
    return tuple(float(v) for v in values) if fit else ()
