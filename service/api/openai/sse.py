"""Server-sent events, taken apart without changing a byte of them."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its very bytes, the blank line that ends it included, and its data."""

    raw: bytes
    data: str

    def chunk(self) -> dict[str, Any] | None:
        """Return the JSON object that the data are; None where they are none."""
        if not self.data.startswith("{"):
            return None
        try:
            found: dict[str, Any] = json.loads(self.data)
        except (ValueError, RecursionError):
            return None
        return found

    @property
    def is_last(self) -> bool:
        """Tell whether it says that the stream is over."""
        return self.data == "[DONE]"


class Events:
    """Cuts a stream of bytes into events, wherever its pieces begin and end. Lines end with LF or CRLF."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []  # of the event that comes, their ends included
        self._line: list[bytes] = []  # pieces of the line that comes

    def feed(self, piece: bytes) -> list[Event]:
        """Take a piece; return the events that it completes. Linear in the bytes, however they are cut."""
        *ended, rest = piece.split(b"\n")
        events: list[Event] = []
        for end in ended:
            self._line.append(end + b"\n")
            events += self._end_line()
        self._line.append(rest)
        return events

    def rest(self) -> bytes:
        """Return what has come of an event that never ended."""
        return b"".join([*self._lines, *self._line])

    def _end_line(self) -> list[Event]:
        line = b"".join(self._line)
        self._line.clear()
        self._lines.append(line)
        if line.strip(b"\r\n"):
            return []
        event = Event(b"".join(self._lines), _data(self._lines))
        self._lines.clear()
        return [event]


def _data(lines: list[bytes]) -> str:
    found = [line[5:].rstrip(b"\r\n").removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(found).decode("utf-8", "replace")


def comment(said: str) -> bytes:
    """Return a comment: clients pass over it, and the connection is seen to live."""
    return f": {said}\n\n".encode()


def event_of(payload: dict[str, Any]) -> bytes:
    """Return an event whose data are this object."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"
