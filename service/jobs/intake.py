"""What is counted and checked of dev rows while they are taken in, before any job exists."""

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from service.calibration.calibration import CalibrateOptions
from service.calibration.rows import MIN_USABLE_ROWS, DevRow, draws_to_json
from service.embedding.outcomes import supplied_draws
from service.errors import InvalidDevData


async def each(rows: AsyncIterable[DevRow] | Iterable[DevRow]) -> AsyncIterator[DevRow]:
    """Yield rows from either kind of iterable."""
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def row_values(row: DevRow) -> dict[str, Any]:
    """Return what the columns of a new row hold."""
    content = asdict(row)
    for name in ("line", "samples", "logprobs", "verdict"):  # which have columns of their own
        del content[name]
    return {
        "line": row.line,
        "content": content,
        "draws": draws_to_json(supplied_draws(row.samples or (), row.logprobs)),
        "supplied": row.samples is not None,
        "complete": row.samples is not None,
    }


class Tally:
    """What is known of an upload once its rows have been read: how many, of which kind, and their hash."""

    def __init__(self, options: CalibrateOptions) -> None:
        self._options = options
        self._hash = hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode())
        self.rows = self.supplied = self._without_logprobs = 0
        self._usable: set[int] = set()

    def add(self, row: DevRow) -> dict[str, Any]:
        """Count a row; return its `row_values`."""
        values = row_values(row)
        self._hash.update(json.dumps(values, sort_keys=True).encode() + b"\n")
        self.rows += 1
        self.supplied += row.samples is not None
        self._without_logprobs += row.samples is not None and row.logprobs is None
        asked = self._options.num_samples or 0
        if row.usable() and (row.samples is None or len(row.samples) >= asked):
            # Copies of a question count once; of thousands of rows no two hashes are equal by chance.
            self._usable.add(hash(row.wording))
        return values

    def digest(self) -> str:
        """Return the hash of options and rows."""
        return self._hash.hexdigest()

    def check(self) -> None:
        """Raise InvalidDevData unless a calibration can be fitted on these rows."""
        usable = len(self._usable)
        if usable < MIN_USABLE_ROWS:
            raise InvalidDevData(
                f"{usable} of {self.rows} rows are usable (a reference, and at least as many samples as "
                "asked for where samples are given; copies of a question count once); a fit needs at least "
                f"{MIN_USABLE_ROWS}."
            )
        if 0 < self.supplied < self.rows and self._options.drawn_by != "service":
            raise InvalidDevData(
                f"{self.supplied} of {self.rows} rows carry samples and the rest do not: that needs "
                "`drawn_by` to be `service`, since answers of two sources cannot share a calibration."
            )
        if self._options.method == "evidence" and self._without_logprobs:
            raise InvalidDevData(
                f"{self._without_logprobs} of {self.supplied} rows with samples lack `logprobs`, which the "
                "method `evidence` needs; `auto` does without."
            )


async def digest_of(rows: AsyncIterable[DevRow] | Iterable[DevRow], options: CalibrateOptions) -> str:
    """Return the hash of rows and options: under one idempotency key, another hash is another upload."""
    tally = Tally(options)
    async for row in each(rows):
        tally.add(row)
    return tally.digest()


@dataclass(slots=True)
class _Kind:
    """Rows that are drawn in one way: the first of them, and how many there are."""

    first: DevRow
    rows: int = 0

    def name(self) -> str:
        if self.first.messages is None:
            return "prompts"
        own = any(message.role == "system" for message in self.first.messages)
        return f"conversations {'with' if own else 'without'} a system message"


async def check_same_generation(
    rows: AsyncIterable[DevRow] | Iterable[DevRow],
    options: CalibrateOptions,
    generation_key: Callable[[DevRow], Hashable],
) -> AsyncIterator[DevRow]:
    """Yield rows, and raise InvalidDevData after the last if they are drawn in more than one way.

    `generation_key` returns equal values for rows whose answers the service would draw alike. Rows whose
    answers a caller has drawn do not count.
    """
    kinds: dict[Hashable, _Kind] = {}
    async for row in each(rows):
        if row.samples is None or options.drawn_by == "service":
            kinds.setdefault(generation_key(row), _Kind(row)).rows += 1
        yield row
    if len(kinds) > 1:
        raise _refusal(list(kinds.values()), options.dev_rows)


def _refusal(kinds: list[_Kind], dev_rows: int | None) -> InvalidDevData:
    names, errors = [], []
    for kind in kinds:
        part, number = _position(kind.first.line, dev_rows)
        place = f"line {number}" if part == "line" else f"row {number} of {part}"
        names.append(f"{kind.rows} {kind.name()} (the first on {place})")
        field = "prompt" if kind.first.messages is None else "messages"
        reason = f"the first of {kind.rows} {kind.name()}"
        errors.append(
            {"line": number, "field": field, "reason": reason, "loc": [part, number, field], "msg": reason}
        )
    reason = (
        f"The rows would be drawn in {len(kinds)} ways, but answers of one calibration must all be drawn "
        f"alike: {', '.join(names)}. Post each kind by itself."
    )
    return InvalidDevData(reason, errors)


def _position(line: int, dev_rows: int | None) -> tuple[str, int]:
    """Return the part and the number in it; rows of an evaluation are counted through both of its files."""
    if dev_rows is None:
        return "line", line
    return ("dev", line) if line <= dev_rows else ("test", line - dev_rows)
