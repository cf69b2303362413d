"""The file of results: one line for each question, whole lines only, whatever ends the command.

A line is `{"line", "id", "request", "result"}`, or has an `error` in place of the result; `request` is the
mark of what was asked, by which a changed question is noticed.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from eigencal import InvalidSetup
from eigencal.cli.bulk.locked import locked, put_in_place
from eigencal.cli.bulk.questions import Question, Questions
from eigencal.cli.output import as_json

BEGINS = b'{"line": '


@dataclass(frozen=True, slots=True)
class Done:
    """What a line of the results says."""

    mark: str
    failed: bool


class Results:
    """Results on their way to a file that this process alone writes, or to stdout (`path` None)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.done: dict[int, Done] = {}

    def __enter__(self) -> Self:
        """Open the file and read what it holds.

        Raises:
            InvalidSetup: it is no file of results, cannot be opened, or another command writes it.
        """
        if self._path is None:
            return self
        self._file = locked(self._path)
        try:
            self._read(self._file)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()

    @property
    def num_failed(self) -> int:
        """How many lines are errors."""
        return sum(done.failed for done in self.done.values())

    def check(self, questions: Questions) -> None:
        """Raise InvalidSetup where the file answers other questions than these."""
        left = dict(self.done)
        for question in questions:
            done = left.pop(question.line, None)
            if done is not None and done.mark != question.mark:
                raise InvalidSetup(
                    f"{self._path} answers another question, or the same with other options, than line "
                    f"{question.line} asks now: give another --out, or delete it. Nothing was changed."
                )
        if left:
            raise InvalidSetup(
                f"{self._path} answers line {min(left)}, where there is no question now: give another --out, "
                "or delete it. Nothing was changed."
            )

    def add(self, question: Question, outcome: Mapping[str, Any]) -> None:
        """Write the line of a question; `outcome` is its `result` or `error`."""
        said = {"line": question.line, "id": question.id, "request": question.mark, **outcome}
        if self._file is None:
            print(as_json(said, encoding=sys.stdout.encoding or "utf-8"), flush=True)
        else:
            _write(self._file, as_json(said).encode() + b"\n")
        self.done[question.line] = Done(question.mark, "error" in outcome)

    def drop_errors(self) -> None:
        """Take the lines out that are errors, so that their questions are asked again."""
        if self._file is None or self._path is None or not self.num_failed:
            return
        path = self._path.resolve()  # a link stays one
        # A file beside it takes its place in one step: whenever this is killed, one of the two is whole.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
        os.close(descriptor)
        beside = Path(name)
        try:
            with contextlib.ExitStack() as unfinished:
                kept = locked(beside)
                unfinished.callback(kept.close)
                for number, raw in _lines_of(self._file):
                    if not _told(raw, number, self._path)[1].failed:
                        _write(kept, raw)
                os.fsync(kept.fileno())
                shutil.copymode(path, beside)
                self._file = put_in_place(beside, kept, path, self._file)
                unfinished.pop_all()
        finally:
            beside.unlink(missing_ok=True)
        self.done = {line: done for line, done in self.done.items() if not done.failed}

    def _read(self, file: IO[bytes]) -> None:
        """Learn which questions are done; cut off the line in which an earlier command was killed."""
        whole = 0
        for number, raw in _lines_of(file):
            if not raw.endswith(b"\n"):
                if not (raw.startswith(BEGINS) or BEGINS.startswith(raw)):
                    raise _foreign(self._path, number)
                file.truncate(whole)
                break
            line, done = _told(raw, number, self._path)
            if line in self.done:
                raise InvalidSetup(f"{self._path} answers line {line} twice. Nothing was changed.")
            self.done[line] = done
            whole += len(raw)


def _lines_of(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    file.seek(0)
    # Through a buffer: the file itself has none.
    with os.fdopen(os.dup(file.fileno()), "rb") as buffered:
        yield from enumerate(buffered, 1)


def _told(raw: bytes, number: int, path: Path | None) -> tuple[int, Done]:
    """Return which line of the questions this one answers, and how."""
    try:
        said = json.loads(raw)
        return int(said["line"]), Done(str(said["request"]), "error" in said)
    except (ValueError, KeyError, TypeError):
        raise _foreign(path, number) from None


def _foreign(path: Path | None, number: int) -> InvalidSetup:
    return InvalidSetup(f"{path} is no file of results: line {number} is none. Nothing was changed.")


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of it, or nothing: an unbuffered write may take a part, as on a disk that is nearly full."""
    before = os.fstat(file.fileno()).st_size
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.truncate(before)  # another question's line may come before the command has ended
        raise
