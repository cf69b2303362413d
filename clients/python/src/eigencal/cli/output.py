"""What a command writes: JSON or text on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eigencal import Result

# A text of a model may hold sequences that move the cursor, or worse; tabs and line ends are harmless.
_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n"
}
# JSON leaves these in a string as they are; outside of strings it has none of them.
_CONTROL_IN_JSON = {code: f"\\u{code:04x}" for code in range(127, 160)}
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
    """Return a value as JSON that this encoding can write."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent).translate(_CONTROL_IN_JSON)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # a code page, or half of a surrogate pair
        return json.dumps(plain(value), indent=indent)
    return text


def plain(value: Any) -> Any:
    """Return a result of the client as what JSON is made of, with the fields that the service sent."""
    if isinstance(value, Result):
        return value.model_dump(mode="json", exclude_unset=True, by_alias=True)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command writes; with `json`, stdout holds JSON alone."""

    json: bool
    verbose: bool

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Write a result: as JSON, or as lines for a person.

        What follows a line end in one of the lines is indented, so that no text of a model looks like ours.
        """
        if self.json:
            self.line_of_json(value, indent=2 if sys.stdout.isatty() else None)
            return
        for line in lines:
            print(harmless(line).replace("\n", f"\n{INDENT}"))

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
