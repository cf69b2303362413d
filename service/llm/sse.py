"""Server-sent events of an LLM server, for sampling and for the drop-in."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from service.errors import LLMBadResponse

_END_OF_EVENT = re.compile(rb"\n\r?\n|\r\r")
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_MAX_BEGINNING_BYTES = 256
# Commas in JSON that is parsed: a parser cannot be interrupted, and takes up to a microsecond per value.
MAX_VALUES = 200_000  # of a request
MAX_ANSWER_VALUES = 500_000  # of an answer: 3,500 tokens with 20 alternatives each


class Event:
    """One event: its bytes (`raw`), with the blank line that ends it, and its data."""

    __slots__ = ("data", "raw")

    def __init__(self, raw: bytes) -> None:
        lines = _END_OF_LINE.split(raw.removeprefix(BOM_UTF8)) if b"data:" in raw else ()  # else a comment
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        self.raw, self.data = raw, data.decode("utf-8", "replace").strip()

    def chunk(self) -> dict[str, Any] | None:
        """Return the data as a JSON object, or None if they are not one."""
        return parse_object(self.data) if self.data.startswith("{") else None

    @property
    def is_last(self) -> bool:
        """Return True for the event that ends a stream."""
        return self.data == "[DONE]"


async def find_events(
    content_type: str, body: AsyncIterator[bytes], *, stream_requested: bool
) -> tuple[bool, AsyncIterator[bytes]]:
    """Return True if the body is a stream of events, and the body.

    Without the content type text/event-stream, the beginning of the body decides, if a stream was requested:
    servers and gateways send streams with any content type, and complete answers without one.
    """
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        return True, body
    if not stream_requested:
        return False, body
    begun = b""
    async for piece in body:
        begun += piece
        if b":" in piece or len(begun) > _MAX_BEGINNING_BYTES:
            break
    return _BEGINNING.match(begun) is not None, prepend(begun, body)


async def prepend(begun: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the bytes that were read already, then the rest of the body."""
    yield begun
    async for piece in pieces:
        yield piece


async def events(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[Event]:
    """Yield the events of a stream. Bytes at the end without a blank line count as an event.

    Raises LLMBadResponse for an event of more than `max_bytes`.
    """
    buffer = bytearray()
    async for piece in pieces:
        start, begin = max(len(buffer) - 2, 0), 0
        buffer += piece
        for end in [match.end() for match in _END_OF_EVENT.finditer(buffer, start)]:
            yield Event(bytes(buffer[begin:end]))
            begin = end
        del buffer[:begin]
        if len(buffer) > max_bytes:
            raise too_long()
    if buffer:
        yield Event(bytes(buffer))


def parse_object(content: str | bytes, max_values: int = MAX_ANSWER_VALUES) -> dict[str, Any] | None:
    """Return the JSON object. None for other content, bytes that are not UTF-8, or too many commas."""
    try:
        text = content if isinstance(content, str) else content.decode()
        value = json.loads(text) if text.count(",") <= max_values else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def too_long() -> LLMBadResponse:
    """Return the error for an answer that exceeds a limit."""
    return LLMBadResponse("The LLM server's answer is longer than the service accepts.")
