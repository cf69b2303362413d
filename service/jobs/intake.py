"""What is counted and checked of dev rows while they are taken in, before any job exists."""

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from service.errors import InvalidDevData
from service.jobs.model import MIN_USABLE_ROWS, CalibrateOptions, DevRow


async def each(rows: AsyncIterable[DevRow] | Iterable[DevRow]) -> AsyncIterator[DevRow]:
    """Yield rows from either kind of iterable."""
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


class Tally:
    """What is known of an upload once its rows have been read: how many, of which kind, and their hash."""

    def __init__(self, options: CalibrateOptions) -> None:
        self._options = options
        self._hash = hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode())
        self.rows = self.supplied = self.silent = 0
        self._usable: set[int] = set()

    @property
    def usable(self) -> int:
        """Return how many questions have a usable row: copies of one count once."""
        return len(self._usable)

    def add(self, row: DevRow) -> None:
        """Count a row."""
        content = asdict(row)
        del content["verdict"]  # of a calibration: no part of an upload
        if row.logprobs is None:
            # left out, so that an upload repeated under its key is the one that an earlier release took
            del content["logprobs"]
        self._hash.update(json.dumps(content, sort_keys=True).encode() + b"\n")
        self.rows += 1
        self.supplied += row.samples is not None
        if row.usable() and self._enough(row):
            self._usable.add(hash(row.wording))  # of thousands of rows no two hashes are equal by chance
        self.silent += row.samples is not None and row.logprobs is None

    def _enough(self, row: DevRow) -> bool:
        asked = self._options.num_samples
        return row.samples is None or asked is None or len(row.samples) >= asked

    def digest(self) -> str:
        """Return the hash of options and rows."""
        return self._hash.hexdigest()

    def check(self) -> None:
        """Raise InvalidDevData unless a calibration can be fitted on these rows."""
        if self.usable < MIN_USABLE_ROWS:
            raise InvalidDevData(
                f"{self.usable} of {self.rows} rows are usable (a reference, and at least as many samples as "
                "asked for where samples are given; copies of a question count once); a fit needs at least "
                f"{MIN_USABLE_ROWS}."
            )
        if 0 < self.supplied < self.rows and self._options.drawn_by != "service":
            raise InvalidDevData(
                f"{self.supplied} of {self.rows} rows carry samples and the rest do not: that needs "
                "`drawn_by` to be `service`, since answers of two sources cannot share a calibration."
            )
        if self._options.method == "evidence" and self.silent:
            raise InvalidDevData(
                f"{self.silent} of {self.supplied} rows with samples lack `logprobs`, which the method "
                "`evidence` needs; `auto` does without."
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


class Alike:
    """Passes rows on, and raises InvalidDevData after the last if they are drawn in more than one way.

    `way` returns equal values for rows whose answers the service would draw alike. Rows whose answers a
    caller has drawn do not count.
    """

    def __init__(self, way: Callable[[DevRow], Hashable]) -> None:
        self._way = way

    async def __call__(
        self, rows: AsyncIterable[DevRow] | Iterable[DevRow], options: CalibrateOptions
    ) -> AsyncIterator[DevRow]:
        """Yield the rows."""
        kinds: dict[Hashable, _Kind] = {}
        async for row in each(rows):
            if row.samples is None or options.drawn_by == "service":
                kinds.setdefault(self._way(row), _Kind(row)).rows += 1
            yield row
        if len(kinds) > 1:
            raise _refusal(list(kinds.values()), options.dev_rows)


def _refusal(kinds: list[_Kind], dev_rows: int | None) -> InvalidDevData:
    named = [f"{kind.rows} {kind.name()} (the first on {_place(kind, dev_rows)})" for kind in kinds]
    reason = (
        f"The rows would be drawn in {len(kinds)} ways, but answers of one calibration must all be drawn "
        f"alike: {', '.join(named)}. Post each kind by itself."
    )
    return InvalidDevData(reason, [_error(kind, dev_rows) for kind in kinds])


def _position(kind: _Kind, dev_rows: int | None) -> tuple[str, int]:
    """Return the part and the number in it; rows of an evaluation are counted through both of its files."""
    line = kind.first.line
    if dev_rows is None:
        return "line", line
    return ("dev", line) if line <= dev_rows else ("test", line - dev_rows)


def _place(kind: _Kind, dev_rows: int | None) -> str:
    part, number = _position(kind, dev_rows)
    return f"line {number}" if part == "line" else f"row {number} of {part}"


def _error(kind: _Kind, dev_rows: int | None) -> dict[str, Any]:
    part, number = _position(kind, dev_rows)
    field = "prompt" if kind.first.messages is None else "messages"
    reason = f"the first of {kind.rows} {kind.name()}"
    return {"line": number, "field": field, "reason": reason, "loc": [part, number, field], "msg": reason}
