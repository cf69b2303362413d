"""A file of an evaluation: checked rows, and how many tokens each of their answers had."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

from service.calibration.files import UploadLimits, read_file
from service.calibration.rows import StoredRow, check_row
from service.embedding.outcomes import supplied_draws
from service.errors import InvalidDevData


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """rows: checked, with the answers that they came with; total: rows in the file."""

    rows: Sequence[StoredRow]
    total: int

    @property
    def supplied(self) -> bool:
        """Whether the answers came with the file."""
        return all(one.row.samples is not None for one in self.rows)


def read_evaluation_file(
    file: BinaryIO, limit: int | None = None, limits: UploadLimits | None = None
) -> EvaluationFile:
    """Return the first `limit` rows.

    Raises BodyTooLarge, and InvalidDevData, also when some rows have answers and others have none.
    """
    data = read_file(file, limits)
    if len({row.samples is None for row in data.rows()}) > 1:
        raise InvalidDevData("Some rows carry samples and the rest do not: all must or none.")
    rows = []
    for line, raw in islice(data.raw_rows(), limit):
        row = check_row(line, raw)
        draws = supplied_draws(row.samples or (), row.logprobs)
        tokens = _counts(raw.get("tokens") if isinstance(raw, dict) else None)
        if len(tokens) == len(draws):
            draws = tuple(replace(one, num_tokens=n) for one, n in zip(draws, tokens, strict=True))
        rows.append(StoredRow(row, draws, complete=True))
    return EvaluationFile(rows, data.num_rows)


def _counts(values: object) -> Sequence[int]:
    """Return numbers of tokens, from 1 on; nothing unless every one is."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 1 for v in values)
    return tuple(int(v) for v in values) if good else ()
