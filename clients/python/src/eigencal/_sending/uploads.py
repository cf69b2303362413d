"""Dev data on its way to the service: streamed from disk, and readable again for another attempt."""

import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias, cast

from eigencal._errors import InvalidSetup

Rows: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Iterable[Mapping[str, Any]]"
"""Dev data: a path (JSONL, JSONL.gz or CSV), an open file of such, or rows as mappings."""
IN_MEMORY_BYTES = 1 << 20  # what is spooled goes to disk beyond this


@dataclass(frozen=True, slots=True)
class Upload:
    """Files and form fields of a multipart body."""

    files: Mapping[str, Rows]
    fields: Mapping[str, str]

    @contextmanager
    def opened(self) -> Iterator["OpenUpload"]:
        """Open all files for as long as the call takes. Raises InvalidSetup for one that cannot be read."""
        with ExitStack() as stack:
            files = {name: _opened(data, name, stack) for name, data in self.files.items()}
            yield OpenUpload(files, self.fields)


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload whose files are open: name to file name and file."""

    files: Mapping[str, tuple[str, BinaryIO]]
    fields: Mapping[str, str]

    def parts(self) -> dict[str, Any]:
        """Return httpx's arguments for one attempt: every file from its beginning."""
        for _, file in self.files.values():
            file.seek(0)
        return {"files": dict(self.files), "data": dict(self.fields)}


def _opened(data: Rows, name: str, stack: ExitStack) -> tuple[str, BinaryIO]:
    if isinstance(data, str | os.PathLike):
        return _of_path(Path(data), stack)
    if hasattr(data, "read"):
        return _of_file(cast("IO[bytes] | IO[str]", data), name, stack)
    return f"{name}.jsonl", stack.enter_context(_spooled(_line(row) for row in data))


def _of_path(path: Path, stack: ExitStack) -> tuple[str, BinaryIO]:
    try:
        return path.name, stack.enter_context(path.open("rb"))
    except OSError as error:
        raise InvalidSetup(f"{path} cannot be read: {error.strerror or error}") from None


def _of_file(file: IO[bytes] | IO[str], name: str, stack: ExitStack) -> tuple[str, BinaryIO]:
    told = getattr(file, "name", None)
    shown = Path(told).name if isinstance(told, str) else f"{name}.jsonl"
    if not isinstance(file, io.TextIOBase) and file.seekable() and file.tell() == 0:
        return shown, cast(BinaryIO, file)
    # A pipe can be read once, text is not what is sent, and httpx rewinds a file to its very beginning.
    return shown, stack.enter_context(_spooled(_bytes(piece) for piece in file))


@contextmanager
def _spooled(pieces: Iterator[bytes]) -> Iterator[BinaryIO]:
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as spool:
        spool.writelines(pieces)
        yield cast(BinaryIO, spool)


def _bytes(piece: str | bytes) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece


def _line(row: Mapping[str, Any]) -> bytes:
    if not isinstance(row, Mapping):
        raise InvalidSetup(f"A row must be a mapping, not {type(row).__name__}.")
    return json.dumps(dict(row), ensure_ascii=False).encode() + b"\n"
