"""Progress of what takes long: a line that is written over on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable
from typing import IO, TypeAlias

ProgressCallback: TypeAlias = Callable[[int, int | None, str], object]
"""Is called with units done, units in all (None: not known) and what is done."""
Progress: TypeAlias = bool | ProgressCallback
"""True: shown on stderr; False: not at all; or a callback."""


class ProgressLine:
    """Shows progress on a stream; `out` None: stderr."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._interval_s = 0.1 if self._is_terminal else 5.0  # a log keeps every line
        self._shown_at, self._shown = -1e9, ("", -1)

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Show where it stands, if that is new and not too soon."""
        now = time.monotonic()
        is_last = total is not None and done >= total
        is_due = is_last or what != self._shown[0] or now - self._shown_at >= self._interval_s
        if (what, done) == self._shown or not is_due:
            return
        self._shown_at, self._shown = now, (what, done)
        line = f"{what}: {done}" if total is None else f"{what}: {done} of {total}"
        # A line that is complete stays; what is written next goes below it.
        start, end = ("\r\x1b[K", "\n" if is_last else "") if self._is_terminal else ("", "\n")
        print(f"{start}{line}", end=end, file=self._out, flush=True)


def as_callback(progress: Progress) -> ProgressCallback:
    """Return the callback that is told of progress."""
    if callable(progress):
        return progress
    return ProgressLine() if progress else lambda done, total, what: None
