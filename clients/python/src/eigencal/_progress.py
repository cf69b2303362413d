"""Progress of what takes long: a line that is written over on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable
from typing import IO, TypeAlias

ProgressCallback: TypeAlias = Callable[[int, int | None, str], object]
"""Is told units done, units in all (None: not known) and what is done."""
Progress: TypeAlias = bool | ProgressCallback
"""True: shown on stderr; False: not at all; or who is told."""
EVERY_S = {True: 0.1, False: 5.0}  # a terminal shows every change, a log keeps every line
WIDTH = 30


class Shown:
    """Shows progress on a stream; `out` None: stderr."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self._told_at, self._told = -1e9, ("", -1)

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Show where it stands, if that is new and not too soon."""
        now = time.monotonic()
        over = total is not None and done >= total
        new_stage = what != self._told[0]
        if (what, done) == self._told or not (
            over or new_stage or now - self._told_at >= EVERY_S[self._terminal]
        ):
            return
        self._told_at, self._told = now, (what, done)
        # A line that is complete stays; what is written next goes below it.
        end = "\n" if over or not self._terminal else ""
        start = "\r\x1b[K" if self._terminal else ""
        print(f"{start}{line(done, total, what, bar=self._terminal)}", end=end, file=self._out, flush=True)


def line(done: int, total: int | None, what: str, *, bar: bool) -> str:
    """Return the line that tells progress."""
    if total is None:
        return f"{what}: {done}"
    filled = round(WIDTH * done / total) if total else WIDTH
    drawn = f" [{'#' * filled}{'.' * (WIDTH - filled)}]" if bar else ""
    return f"{what}:{drawn} {done} of {total}"


def told(progress: Progress) -> ProgressCallback:
    """Return who is told of progress."""
    if callable(progress):
        return progress
    return Shown() if progress else _nobody


def _nobody(done: int, total: int | None, what: str) -> None:
    pass
