"""A file as it is when its upload begins."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from eigencal._errors import InvalidSetup, TimedOut
from eigencal._sending.attempts import Attempts


class Bounded:
    """A file of which as many bytes are sent as there are now, whatever is written to it meanwhile.

    The length is told before the bytes follow, and must be theirs: not that of a packed file on disk which is
    unpacked as it is read, and not that of a file that grows. httpx takes the length from `seek`.

    Args:
        file: What is read, in bytes; it can be rewound.
        shown: Its name for a person.
    """

    def __init__(self, file: IO[bytes], shown: str = "The rows") -> None:
        self._file, self._shown = file, shown
        self._length = file.seek(0, os.SEEK_END)
        self._at = 0
        self._attempts: Attempts | None = None

    def begin(self, attempts: Attempts) -> None:
        """Rewind for another attempt of these."""
        self._attempts = attempts
        self.seek(0)

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset from the beginning, or from the end as it was, and return where that is."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence] + offset
        with reading(self._shown):
            self._file.seek(self._at)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises InvalidSetup where there are fewer than before, TimedOut."""
        if self._attempts is not None and self._attempts.over:
            raise TimedOut(f"{self._shown} could not be sent in the time given.")
        left = self._length - self._at
        with reading(self._shown):
            piece = self._file.read(left if size < 0 else min(size, left))
        if left and not piece:
            raise InvalidSetup(f"{self._shown} became shorter while it was sent.")
        self._at += len(piece)
        return piece


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Raise InvalidSetup where the block cannot read: no such file, a closed one, no text."""
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidSetup(f"{what} cannot be read: {why}") from None
