"""The file of a SQLite database: whether it is still the one that was opened, and can be written."""

import errno
import os
import tempfile
import time
from pathlib import Path

_HEADER = b"SQLite format 3\0"
_PROBE_BYTES = 64 << 10


class DatabaseFile:
    """A file by path. Connections go on with a deleted file as if nothing were: what they write is lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._opened: tuple[int, int] | None = None
        self._gone = False  # for good: a later file may get the same number

    def opened(self) -> None:
        """Remember the file that is there now as the one that connections have."""
        self._opened, self._gone = self._identity(), False

    def lost(self) -> bool:
        """Tell whether the path no longer leads to the file that was opened."""
        self._gone = self._gone or (self._opened is not None and self._identity() != self._opened)
        return self._gone

    def usable(self, *, settled_s: float = 1.0) -> bool:
        """Tell whether a database is there that nobody is still copying: unchanged for `settled_s`."""
        try:
            with self._path.open("rb") as file:
                head = file.read(len(_HEADER))
            return head == _HEADER and time.time() - self._path.stat().st_mtime >= settled_s
        except OSError:
            return False

    def probe(self) -> None:
        """Write a little beside the database and take it away again; raise OSError where that fails."""
        with tempfile.TemporaryFile(dir=self._path.parent) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error of SQLite, or of the system, says that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
