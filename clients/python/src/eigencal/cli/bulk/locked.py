"""A file that one process at a time may write: two commands on one file would ask every question twice."""

import os
import sys
from pathlib import Path
from typing import IO

from eigencal import InvalidSetup

FAR = 1 << 40  # a byte that no results reach: Windows lets nobody read what is locked


def locked(path: Path) -> IO[bytes]:
    """Open a file to read it and to write at its end, and lock it until it is closed or the process ends.

    It is unbuffered: what is written is the system's at once, and outlives this process.

    Raises:
        InvalidSetup: it is no file, cannot be opened, or another process has it.
    """
    if path.exists() and not path.is_file():
        raise InvalidSetup(f"{path} is no file: results are read again when a command goes on.")
    try:
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise InvalidSetup(f"{path} cannot be written: {error.strerror}") from None
    try:
        _lock(file)
        # Another command may have put a file in its place since it was opened: what is locked then is lost.
        is_there = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        is_there = False
    if not is_there:
        file.close()
        raise InvalidSetup(f"{path} is being written by another command.")
    return file


def put_in_place(beside: Path, new: IO[bytes], path: Path, old: IO[bytes]) -> IO[bytes]:
    """Let a file take the place of another, both locked; return the new one, locked and open."""
    if sys.platform == "win32":  # it replaces no file that is open
        new.close()
        old.close()
        beside.replace(path)
        return locked(path)
    beside.replace(path)
    old.close()
    return new


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
