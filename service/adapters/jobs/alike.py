"""Refusing rows that cannot share a calibration, while they are taken in."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from service.adapters.store.submission import each
from service.domain.errors import InvalidDevData
from service.domain.jobs.model import CalibrateOptions, DevRow


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
