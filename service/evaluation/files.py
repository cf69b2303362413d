"""A file of an evaluation: checked rows, and what it has recorded beside their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from service.calibration.files import UploadLimits, read_file
from service.calibration.rows import DevRow, check_row
from service.errors import InvalidDevData


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
    recorded: Mapping[int, Recorded]
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
    rows, recorded = [], {}
    for line, raw in islice(data.raw_rows(), limit):
        row = check_row(line, raw)
        rows.append(row)
        tokens = raw.get("tokens") if isinstance(raw, dict) else None
        # Rounding may have put a logarithm above 0.
        recorded[line] = Recorded(tuple(min(one, 0.0) for one in row.logprobs or ()), _counts(tokens))
    return EvaluationFile(rows, recorded, data.num_rows)


def _counts(values: object) -> Sequence[float]:
    """Return a list of numbers from 1 on; nothing unless every one is."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 1 for v in values)
    return tuple(float(v) for v in values) if good else ()
