"""The command that fetches weights, with its progress shown on stderr."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.adapters.weights.fetch import OnStep, WeightsError, fetch, packaged
from service.adapters.weights.table import TABLE

__all__ = ["fetch_command", "shown_progress"]


def fetch_command(names: Sequence[str], cache_dir: Path) -> int:
    """Fetch each of the weights named (none named: all) into the cache; return the exit status."""
    status = 0
    for name in names or list(TABLE):
        try:
            with shown_progress(name) as progress:
                folder = fetch(name, cache_dir, progress)
        except (WeightsError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{name}: {folder}")
    return status


@contextlib.contextmanager
def shown_progress(name: str) -> Iterator[OnStep]:
    """Yield a progress callback: a bar where stderr is a terminal, else a line per tenth."""
    entry = packaged(name)
    label = name if entry is None else entry.name
    if sys.stderr.isatty():
        with _bar(label) as progress:
            yield progress
    else:
        yield _Lines(label)


@contextlib.contextmanager
def _bar(label: str) -> Iterator[OnStep]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, int] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = int(bar.add_task(f"{label} {step}", total=total))
            bar.update(bar.task_ids[tasks[step]], completed=done)

        yield progress


class _Lines:
    def __init__(self, label: str) -> None:
        self._label = label
        self._said = ""

    def __call__(self, step: str, done: int, total: int) -> None:
        line = f"{self._label} {step} {10 * (10 * done // max(total, 1))}% of {total / 1e6:.0f} MB"
        if line != self._said:
            print(line, file=sys.stderr, flush=True)
            self._said = line
