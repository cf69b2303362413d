"""What a command writes: JSON or text on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import typer
from pydantic import TypeAdapter

# A text of a model may hold sequences that move the cursor, or worse; tabs and line ends are harmless.
_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"
}
# JSON leaves these in a string as they are; outside of strings it has none of them.
_CONTROL_IN_JSON = {code: f"\\u{code:04x}" for code in range(127, 160)}
_ANY = TypeAdapter[Any](Any)
INDENT = "    "  # of the further lines of one text


def prepare() -> None:
    """Make stdout and stderr write any text: what an encoding does not know becomes a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if hasattr(sys.stdin, "reconfigure") and not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # of a pipe: not the console's code page


def harmless(text: str) -> str:
    """Return a text without characters that control a terminal."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(harmless(text).split())


def as_json(value: Any, *, indent: int | None = None, encoding: str = "utf-8") -> str:
    """Return results of the client, with the fields that the service sent, as JSON for this encoding."""
    plain = _ANY.dump_python(value, mode="json", exclude_unset=True, by_alias=True)
    text = json.dumps(plain, ensure_ascii=False, indent=indent).translate(_CONTROL_IN_JSON)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # a code page, or half of a surrogate pair
        return json.dumps(plain, indent=indent)
    return text


class Coloured(NamedTuple):
    """A line that a terminal shows in a colour, unless NO_COLOR is set."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command writes; with `json`, stdout holds JSON alone."""

    json: bool
    verbose: bool

    def show(self, value: Any, lines: Iterable[str | Coloured]) -> None:
        """Write a result: as JSON, or as lines for a person."""
        if self.json:
            self.line_of_json(value, indent=2 if sys.stdout.isatty() else None)
        else:
            self.lines(lines)

    def lines(self, lines: Iterable[str | Coloured]) -> None:
        """Write lines for a person.

        What follows a line end in one of them is indented, so that no text of a model looks like ours.
        """
        takes_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in lines:
            text = line.text if isinstance(line, Coloured) else line
            text = harmless(text).replace("\n", f"\n{INDENT}")
            print(typer.style(text, fg=line.colour) if takes_colour and isinstance(line, Coloured) else text)

    def line_of_json(self, value: Any, *, indent: int | None = None) -> None:
        """Write a value as JSON, at once."""
        print(as_json(value, indent=indent, encoding=sys.stdout.encoding or "utf-8"), flush=True)

    def note(self, text: str) -> None:
        """Say something on stderr, in one line."""
        print(one_line(text), file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows under their heads, in columns as wide as they must be; nothing is cut."""
    cells = [list(head), *([one_line(format_cell(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def format_cell(value: object) -> str:
    """Return a cell: `-` for what there is not, three digits of a number, times to the second."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return value.isoformat(sep=" ", timespec="seconds") if hasattr(value, "isoformat") else str(value)
