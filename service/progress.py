"""Progress of a long command: a bar where it is a terminal, else a line now and then."""

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


EVERY_S = 5.0


class ShownProgress(AbstractContextManager["ShownProgress"]):
    """Stages one after the other, each of so many units; a context manager. `out`: None for stderr."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name, self._done, self._total, self._told = "", 0, 0, 0.0

    def __enter__(self) -> Self:
        if self._out.isatty():
            self._bar = _bar(self._out)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, total: int) -> None:
        """Begin a stage."""
        self._name, self._done, self._total, self._told = name, 0, total, 0.0
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=total)
        self._tell()

    def advance(self, by: int = 1, what: str = "") -> None:
        """Count units done; `what` names the one that comes, or says what is waited for."""
        self._done += by
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=f"{self._name} {what}".strip())
        elif self._done >= self._total or time.monotonic() - self._told >= EVERY_S:
            self._tell(what)

    def finish(self) -> None:
        """Count all units of the stage as done, also those that were never reported."""
        if self._done < self._total:
            self.advance(self._total - self._done)

    def _tell(self, what: str = "") -> None:
        if self._bar is None:
            self._told = time.monotonic()
            note = f" ({what})" if what else ""
            print(f"{self._name}: {self._done} of {self._total}{note}", file=self._out, flush=True)


def _bar(out: IO[str]) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(file=out))
