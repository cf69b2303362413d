"""Output of a command: JSON or text on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from pydantic import TypeAdapter

# A model's text may contain control sequences for the terminal; tabs and newlines are harmless.
_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"
}
# The JSON encoder does not escape these in strings; outside of strings they do not occur.
_CONTROL_IN_JSON = {code: f"\\u{code:04x}" for code in range(127, 160)}
_ANY = TypeAdapter[Any](Any)


class Doubtful(str):
    """A line that is coloured on a terminal."""

    __slots__ = ()


def harmless(text: str) -> str:
    """Return the text with terminal control characters replaced."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """Return the text on one line."""
    return " ".join(harmless(text).split())


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return results of the client as JSON, with only the fields that the service sent."""
    plain = _ANY.dump_python(value, mode="json", exclude_unset=True, by_alias=True)
    return json.dumps(plain, ensure_ascii=False, indent=indent).translate(_CONTROL_IN_JSON)


@dataclass(frozen=True, slots=True)
class Output:
    """Writer of a command; with `json`, stdout has only JSON."""

    json: bool
    verbose: bool

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Write a result: as JSON, or as lines for a person."""
        if self.json:
            print(as_json(value, indent=2 if sys.stdout.isatty() else None), flush=True)
        else:
            self.lines(lines)

    def lines(self, lines: Iterable[str]) -> None:
        """Write lines for a person.

        Continuation lines are indented, so that a model's text cannot imitate output of the command.
        """
        takes_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in lines:
            text = harmless(line).replace("\n", "\n    ")
            print(typer.style(text, fg="yellow") if takes_colour and isinstance(line, Doubtful) else text)

    def table(self, rows: Sequence[object], columns: Sequence[str], none: str) -> None:
        """Write results as JSON, or the given fields as a table; without results, write `none`."""
        cells = [[one_line(format_cell(getattr(row, name))) for name in columns] for row in rows]
        cells.insert(0, [name.replace("_", " ") for name in columns])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        self.show(rows, lines if rows else [none])

    def note(self, text: str) -> None:
        """Write a text on stderr, on one line."""
        print(one_line(text), file=sys.stderr, flush=True)


def format_cell(value: object) -> str:
    """Return a table cell: `-` for a missing value, floats with three decimals, times to the second."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return value.isoformat(sep=" ", timespec="seconds") if hasattr(value, "isoformat") else str(value)
