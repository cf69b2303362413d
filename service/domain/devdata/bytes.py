"""Numbered lines of an uploaded file: unpacked, bounded, refused early when it is no UTF-8 text.

Memory stays flat whatever the file holds: a line is read up to `max_row_bytes` and skipped beyond.
"""

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from service.domain.errors import BodyTooLarge, InvalidDevData

EXPECTED = "JSONL, JSONL.gz or CSV in UTF-8 is expected"
_HEAD = 4096
_BLOCK = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"
# The longer mark first: UTF-32 LE begins with the mark of UTF-16 LE.
_FOUND_BY_MAGIC: tuple[tuple[bytes, str], ...] = (
    (_GZIP_MAGIC, "gzip inside gzip"),
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\x00\x00\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"PK\x03\x04", "a ZIP archive (Excel workbooks are ZIP archives too)"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"%PDF", "PDF"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89PNG", "a PNG image"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may hold.

    `max_bytes` bounds the file as it came and again as unpacked; `max_row_bytes` counts the line end.
    `max_lines` counts every line, also empty ones and those within a quoted field: each takes its time.
    `max_texts` bounds the answers and references of all files of a job together, those to be drawn included:
    `num_samples` for a row without answers where the caller names no number.
    """

    max_bytes: int = 256 << 20
    max_rows: int = 100_000
    max_lines: int = 500_000
    max_row_bytes: int = 1 << 20
    min_rows: int = 30
    max_texts: int = 250_000
    num_samples: int = 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its number from 1; `data` has its line end, and is None when the line is over the limit."""

    number: int
    data: bytes | None


def too_many_bytes(max_bytes: int) -> BodyTooLarge:
    """Return the error for a file that is over the limit, packed or unpacked."""
    return BodyTooLarge(f"the file has more than {max_bytes} bytes", limit_bytes=max_bytes)


def too_many_lines(max_lines: int) -> BodyTooLarge:
    """Return the error for a file that has too many lines, whether they hold rows or not."""
    return BodyTooLarge(f"the file has more than {max_lines} lines", limit_lines=max_lines)


def whole_file(reason: str) -> InvalidDevData:
    """Return the error for a file that cannot be read at all."""
    problem = {"line": None, "field": None, "reason": reason, "loc": ["file"], "msg": reason}
    return InvalidDevData(reason, [problem])


def encoding_problem(data: bytes) -> str | None:
    """Return what keeps a line from being UTF-8 text, or None."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte 0x{data[error.start]:02X} at position {error.start + 1} (Latin-1?)"
    return None


class NumberedLines:
    """The lines of a seekable file from its start, unpacked if it is gzip, without a byte order mark.

    Creating it raises InvalidDevData when the file is empty or no UTF-8 text, BodyTooLarge when it is over
    the limit; an unpacked file over the limit raises on the line that goes over it. Iterate it once.
    """

    def __init__(self, file: BinaryIO, limits: UploadLimits) -> None:
        if file.seek(0, os.SEEK_END) > limits.max_bytes:
            raise too_many_bytes(limits.max_bytes)
        file.seek(0)
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        self._source = _unpacked(file) if packed else file
        self._limits = limits
        self._seen = 0
        with _unpacking_errors():
            self.head = self._read_head()

    def _read_head(self) -> bytes:
        head = self._source.read(_HEAD)
        bom = len(_UTF8_BOM) if head.startswith(_UTF8_BOM) else 0
        self._source.seek(bom)
        _check_head(head[bom:])
        return head[bom:]

    def check_size(self) -> None:
        """Read to the end; raise BodyTooLarge for too many bytes or lines.

        Quick whatever the file holds: a line that is looked at takes a hundred times as long as one counted.
        """
        lines = 0
        with _unpacking_errors():
            while block := self._source.read(_BLOCK):
                self._count(block)
                lines += block.count(b"\n")
                if lines > self._limits.max_lines:
                    raise too_many_lines(self._limits.max_lines)

    def __iter__(self) -> Iterator[Line]:
        number = 0
        with _unpacking_errors():
            while data := self._readline():
                number += 1
                if len(data) <= self._limits.max_row_bytes:
                    yield Line(number, data)
                else:
                    self._skip_rest(data)
                    yield Line(number, None)

    def _readline(self) -> bytes:
        # One more byte than allowed tells a line that is too long from one that just fits.
        data = self._source.readline(self._limits.max_row_bytes + 1)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self._seen += len(data)
        if self._seen > self._limits.max_bytes:
            raise too_many_bytes(self._limits.max_bytes)

    def _skip_rest(self, data: bytes) -> None:
        while data and not data.endswith(b"\n"):
            data = self._readline()


def _unpacked(file: BinaryIO) -> io.BufferedReader:
    """Return the file unpacked: closed without closing it. The reader around it is quick with short lines."""
    return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), _BLOCK)


@contextmanager
def _unpacking_errors() -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise whole_file("the gzip data ends too early: the file was cut") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise whole_file("the gzip data is damaged") from error


def _check_head(head: bytes) -> None:
    if not head.strip():
        raise whole_file("the file is empty")
    for magic, found in _FOUND_BY_MAGIC:
        if head.startswith(magic):
            raise whole_file(f"the file holds {found}; {EXPECTED}")
    # Without a mark: of Latin text every second byte in UTF-16, three of four in UTF-32 are zero.
    if head.count(0) * 4 > len(head):
        raise whole_file(f"the file looks like UTF-16 or UTF-32 text (many zero bytes); {EXPECTED}")
    if _CONTROLS.search(head):
        raise whole_file(f"the file holds binary data; {EXPECTED}")
