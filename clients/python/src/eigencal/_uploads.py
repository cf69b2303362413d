"""Dev data on its way to the service: copied once to a temporary file, which each attempt sends anew.

The length is told before the bytes, and a file may grow, be packed or be a pipe: what is sent is what was
read once. It is never held in memory.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from eigencal._exceptions import InvalidSetupError

Rows: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Iterable[Mapping[str, Any]]"
"""Dev data: a path (JSONL, JSONL.gz or CSV), an open file of such, or rows as mappings."""
PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Upload:
    """Files, by name, and form fields of a multipart body."""

    files: Mapping[str, Any]
    fields: Mapping[str, str]

    @contextmanager
    def copied(self) -> Iterator["Upload"]:
        """Yield it with copies of its data, each a name and a file, for as long as the call takes.

        Raises InvalidSetupError for unreadable ones.
        """
        with ExitStack() as stack:
            yield Upload({name: _copied(data, name, stack) for name, data in self.files.items()}, self.fields)

    def parts(self) -> dict[str, Any]:
        """Return httpx's arguments for one attempt with the copies: every file from its beginning."""
        for _, file in self.files.values():
            file.seek(0)
        return {"files": dict(self.files), "data": dict(self.fields)}


def _copied(data: Rows, name: str, stack: ExitStack) -> tuple[str, IO[bytes]]:
    """Return the name that is sent with the data, and a copy of them."""
    if isinstance(data, str | os.PathLike):
        with _reading(data):
            data = stack.enter_context(Path(data).open("rb"))  # noqa: SIM115
    if hasattr(data, "read"):
        file = cast("IO[bytes] | IO[str]", data)
        path = getattr(file, "name", None)
        # Names of files are bytes, and need not be text; what is sent must be.
        name = Path(path).name if isinstance(path, str) else f"{name}.jsonl"
        name = name.encode("utf-8", "replace").decode()
        pieces = _pieces(file, name)
    else:
        name, pieces = f"{name}.jsonl", (_line(row, number) for number, row in enumerate(data, 1))
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    copy.writelines(pieces)
    return name, copy


def _pieces(file: IO[bytes] | IO[str], name: str) -> Iterator[bytes]:
    while True:
        with _reading(name):
            piece = file.read(PIECE_BYTES)
            data = piece.encode() if isinstance(piece, str) else piece
        if not data:
            return
        yield data


def _line(row: Mapping[str, Any], number: int) -> bytes:
    if not isinstance(row, Mapping):
        raise InvalidSetupError(f"A row must be a mapping, not {type(row).__name__}.")
    try:
        return json.dumps(dict(row), ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSetupError(f"Row {number} cannot be written as JSON: {error}") from None


@contextmanager
def _reading(name: object) -> Iterator[None]:
    """Raise InvalidSetupError where the block cannot read: no such file, a closed one, no text."""
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidSetupError(f"{name} cannot be read: {why}") from None
