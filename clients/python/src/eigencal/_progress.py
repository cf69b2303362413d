"""Progress of long calls: one updated line on a terminal, a few lines in a log."""

import sys
from collections.abc import Callable
from typing import TypeAlias

ProgressCallback: TypeAlias = Callable[[int, int | None, str], object]
"""Called with the number of units done, their total (None: unknown) and the name of the stage."""
Progress: TypeAlias = bool | ProgressCallback
"""True: show progress on stderr; False: show nothing; or a callback."""


class ProgressLine:
    """Shows progress on stderr."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Show the current state."""
        is_last = total is not None and done >= total > 0
        line = f"{what}: {done} of {total}" if total else f"{what}: {done}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="\n" if is_last else "", file=sys.stderr, flush=True)
        elif is_last or what != self._stage:
            print(line, file=sys.stderr, flush=True)
        self._stage = what


def as_callback(progress: Progress) -> ProgressCallback:
    """Return the callback for a `Progress`."""
    if callable(progress):
        return progress
    return ProgressLine() if progress else lambda done, total, what: None
