"""Progress of what takes long: a line that is written over on a terminal, few lines in a log."""

import sys
from collections.abc import Callable
from typing import TypeAlias

ProgressCallback: TypeAlias = Callable[[int, int | None, str], object]
"""Is called with units done, units in all (None: not known) and what is done."""
Progress: TypeAlias = bool | ProgressCallback
"""True: shown on stderr; False: not at all; or a callback."""


class ProgressLine:
    """Shows progress on stderr."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Show where it stands."""
        is_last = total is not None and done >= total > 0
        line = f"{what}: {done} of {total}" if total else f"{what}: {done}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="\n" if is_last else "", file=sys.stderr, flush=True)
        elif is_last or what != self._stage:
            print(line, file=sys.stderr, flush=True)
        self._stage = what


def as_callback(progress: Progress) -> ProgressCallback:
    """Return the callback that is told of progress."""
    if callable(progress):
        return progress
    return ProgressLine() if progress else lambda done, total, what: None
