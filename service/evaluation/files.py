"""A file of an evaluation: checked rows, and how many tokens each of their answers had."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from service.calibration.files import UploadLimits, read_file
from service.calibration.rows import DevRow, check_row
from service.errors import InvalidDevData


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """rows: checked; total: rows in the file.

    tokens: by line of a row, the number in each of its answers; empty where the file does not tell.
    """

    rows: Sequence[DevRow]
    tokens: Mapping[int, Sequence[float]]
    total: int

    @property
    def supplied(self) -> bool:
        """Whether the answers came with the file."""
        return all(row.samples is not None for row in self.rows)


def read_evaluation_file(
    file: BinaryIO, limit: int | None = None, limits: UploadLimits | None = None
) -> EvaluationFile:
    """Return the first `limit` rows.

    Raises BodyTooLarge, and InvalidDevData, also when some rows have answers and others have none.
    """
    data = read_file(file, limits)
    if len({row.samples is None for row in data.rows()}) > 1:
        raise InvalidDevData("Some rows carry samples and the rest do not: all must or none.")
    rows, tokens = [], {}
    for line, raw in islice(data.raw_rows(), limit):
        rows.append(check_row(line, raw))
        tokens[line] = _counts(raw.get("tokens") if isinstance(raw, dict) else None)
    return EvaluationFile(rows, tokens, data.num_rows)


def _counts(values: object) -> Sequence[float]:
    """Return a list of numbers from 1 on; nothing unless every one is."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 1 for v in values)
    return tuple(float(v) for v in values) if good else ()
