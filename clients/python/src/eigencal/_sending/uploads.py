"""Dev data on its way to the service: streamed from disk, and readable again for another attempt."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from eigencal._errors import InvalidSetup
from eigencal._sending.attempts import Attempts
from eigencal._sending.bounded import Bounded, reading

Rows: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Iterable[Mapping[str, Any]]"
"""Dev data: a path (JSONL, JSONL.gz or CSV), an open file of such, or rows as mappings."""
IN_MEMORY_BYTES = 1 << 20  # what is spooled goes to disk beyond this
PIECE_BYTES = 1 << 16


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

    files: Mapping[str, tuple[str, Bounded]]
    fields: Mapping[str, str]

    def parts(self, attempts: Attempts) -> dict[str, Any]:
        """Return httpx's arguments for one attempt: every file from its beginning."""
        for _, file in self.files.values():
            file.begin(attempts)
        return {"files": dict(self.files), "data": dict(self.fields)}


def _opened(data: Rows, name: str, stack: ExitStack) -> tuple[str, Bounded]:
    if isinstance(data, str | os.PathLike):
        return _of_path(Path(data), stack)
    if hasattr(data, "read"):
        return _of_file(cast("IO[bytes] | IO[str]", data), f"{name}.jsonl", stack)
    rows = (_line(row, number) for number, row in enumerate(data, 1))
    return f"{name}.jsonl", Bounded(stack.enter_context(_spooled(rows)))


def _of_path(path: Path, stack: ExitStack) -> tuple[str, Bounded]:
    with reading(path):
        file = stack.enter_context(path.open("rb"))
    return _of_file(file, path.name, stack)


def _of_file(file: IO[bytes] | IO[str], name: str, stack: ExitStack) -> tuple[str, Bounded]:
    told = getattr(file, "name", None)
    # Names of files are bytes, and need not be text; what is sent must be.
    shown = (Path(told).name if isinstance(told, str) else name).encode("utf-8", "replace").decode()
    with reading(shown):
        if _is_rereadable(file):
            return shown, Bounded(cast("IO[bytes]", file), shown)
        # A pipe can be read once, text is not what is sent, and httpx rewinds a file to its very beginning.
        return shown, Bounded(stack.enter_context(_spooled(_pieces(file))))


def _is_rereadable(file: IO[bytes] | IO[str]) -> bool:
    return file.seekable() and file.tell() == 0 and isinstance(file.read(0), bytes)


@contextmanager
def _spooled(pieces: Iterator[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as spool:
        spool.writelines(pieces)
        yield cast("IO[bytes]", spool)


def _pieces(file: IO[bytes] | IO[str]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece.encode() if isinstance(piece, str) else piece


def _line(row: Mapping[str, Any], number: int) -> bytes:
    if not isinstance(row, Mapping):
        raise InvalidSetup(f"A row must be a mapping, not {type(row).__name__}.")
    try:
        return json.dumps(dict(row), ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSetup(f"Row {number} cannot be written as JSON: {error}") from None
