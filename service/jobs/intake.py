"""What is counted and checked of dev rows while they are stored: whether they make one calibration."""

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from service.calibration.rows import MIN_USABLE_ROWS, DevRow
from service.calibration.store import encode_row
from service.errors import InvalidDevData
from service.jobs.model import JobOptions

# Equal values for rows whose answers the service would draw alike.
GenerationKey = Callable[[DevRow], Hashable]


@dataclass(slots=True)
class _Kind:
    """Rows that are alike: the first of them, and how many there are."""

    first: DevRow
    rows: int = 0

    def name(self) -> str:
        if self.first.messages is None:
            return "prompts"
        own = any(message.role == "system" for message in self.first.messages)
        return f"conversations {'with' if own else 'without'} a system message"


class Intake:
    """The rows of a job on their way into the store: how many, of which kinds, and their hash."""

    def __init__(self, options: JobOptions, generation_key: GenerationKey) -> None:
        self._options = options
        self._generation_key = generation_key
        self._hash = hashlib.sha256(json.dumps(options.model_dump(), sort_keys=True).encode())
        self._usable: set[int] = set()
        self._without_logprobs = 0
        self._sources: dict[bool, _Kind] = {}  # by whether the answers came with the row
        self._drawn_alike: dict[Hashable, _Kind] = {}

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(kind.rows for kind in self._sources.values())

    @property
    def draws(self) -> bool:
        """Whether the LLM is asked: for answers that are missing, or who it was that drew those there are."""
        return False in self._sources or self._options.drawn_by == "service"

    def digest(self) -> str:
        """Return the hash of options and rows: under one idempotency key, another is another upload."""
        return self._hash.hexdigest()

    def columns(self, rows: Iterator[DevRow], most: int) -> list[dict[str, Any]]:
        """Return the columns of the next rows, none after the last; they are read and hashed meanwhile."""
        return [self._columns(row) for row in islice(rows, most)]

    def _columns(self, row: DevRow) -> dict[str, Any]:
        supplied, columns = row.samples is not None, encode_row(row)
        self._hash.update(json.dumps(columns, sort_keys=True).encode() + b"\n")
        self._sources.setdefault(supplied, _Kind(row)).rows += 1
        self._without_logprobs += supplied and row.logprobs is None
        if not supplied or self._options.drawn_by == "service":
            self._drawn_alike.setdefault(self._generation_key(row), _Kind(row)).rows += 1
        if row.usable() and (row.samples is None or len(row.samples) >= (self._options.num_samples or 0)):
            # Copies of a question count once; of thousands of rows no two hashes are equal by chance.
            self._usable.add(hash(row.wording))
        return columns

    def check(self) -> None:
        """Raise InvalidDevData unless one calibration can be fitted on these rows."""
        options, usable = self._options, len(self._usable)
        if usable < MIN_USABLE_ROWS:
            raise InvalidDevData(
                f"{usable} of {self.num_rows} rows are usable (a reference, and at least as many samples as "
                "asked for where samples are given; copies of a question count once); a fit needs at least "
                f"{MIN_USABLE_ROWS}."
            )
        if len(self._sources) == 2 and options.drawn_by != "service":
            supplied, drawn = self._sources[True], self._sources[False]
            # An evaluation has no `drawn_by`.
            unless = "" if options.dev_rows is not None else ", unless `drawn_by` is `service`"
            reason = (
                f"{supplied.rows} rows carry samples (the first on {self._place(supplied)}), {drawn.rows} do "
                f"not (the first on {self._place(drawn)}): all must or none{unless}, since answers of two "
                "sources cannot share a calibration"
            )
            later = max(supplied.first, drawn.first, key=lambda row: row.line)
            fewer = min(supplied.rows, drawn.rows)
            raise InvalidDevData(reason, [self._error(later, "samples", reason)], fewer)
        if options.method == "evidence" and self._without_logprobs:
            raise InvalidDevData(
                f"{self._without_logprobs} of {self._sources[True].rows} rows with samples lack `logprobs`, "
                "which the method `evidence` needs; `auto` does without."
            )
        if len(self._drawn_alike) > 1:
            raise self._drawn_otherwise(list(self._drawn_alike.values()))

    def _drawn_otherwise(self, kinds: list[_Kind]) -> InvalidDevData:
        errors = []
        for kind in kinds:
            field = "prompt" if kind.first.messages is None else "messages"
            errors.append(self._error(kind.first, field, f"the first of {kind.rows} {kind.name()}"))
        names = ", ".join(f"{kind.rows} {kind.name()} (the first on {self._place(kind)})" for kind in kinds)
        return InvalidDevData(
            f"The rows would be drawn in {len(kinds)} ways, but answers of one calibration must all be drawn "
            f"alike: {names}. Post each kind by itself.",
            errors,
        )

    def _position(self, row: DevRow) -> tuple[str, int]:
        """Return the part and the number in it; rows of an evaluation are counted through both its files."""
        dev_rows = self._options.dev_rows
        if dev_rows is None:
            return "line", row.line
        return ("dev", row.line) if row.line <= dev_rows else ("test", row.line - dev_rows)

    def _place(self, kind: _Kind) -> str:
        part, number = self._position(kind.first)
        return f"line {number}" if part == "line" else f"row {number} of {part}"

    def _error(self, row: DevRow, field: str, reason: str) -> dict[str, Any]:
        part, number = self._position(row)
        loc = ["file" if part == "line" else part, number, field]
        return {"line": number, "field": field, "reason": reason, "loc": loc, "msg": reason}
