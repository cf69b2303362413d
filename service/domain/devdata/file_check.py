"""The rows of an upload as a whole: every fault told, enough rows, no id twice, not too many texts."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from service.domain.devdata.bytes import UploadLimits
from service.domain.devdata.row_check import RowError, check_row
from service.domain.errors import BodyTooLarge, InvalidDevData
from service.domain.jobs.model import DevRow

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
            "with num_samples; whoever runs the service may raise EIGENCAL_MAX_CALIBRATION_TEXTS."
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
