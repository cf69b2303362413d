"""Scoring a file of questions. Each gets one line of results, even if the command is killed and run again.

A line is `{"line", "id", "request", "result"}`, or has an `error` instead of the result. `request` is a
hash of the request, which detects changed questions.
"""

import codecs
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from eigencal import APIConnectionError, Client, EigencalError, InvalidSetupError, RateLimitError
from eigencal._exceptions import error_of_problem
from eigencal._progress import ProgressLine
from eigencal.cli.output import as_json
from eigencal.resources.scores import item_body
from eigencal.types import Problem

Format = Literal["auto", "lines", "jsonl"]
JSONL = {".jsonl", ".ndjson"}
FIRST_LINE_BYTES = b'{"line": '  # start of each line of results
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


class Question(NamedTuple):
    """One question of a file: its line, from 1, its id, the fields of POST /score, and their hash."""

    line: int
    id: Any
    request: Mapping[str, Any]
    hash: str


def numbered_lines(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not empty. Raises InvalidSetupError if not UTF-8."""
    for number, raw in enumerate(data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise InvalidSetupError(f"{name}: line {number}: it is not UTF-8. Nothing was sent.") from None
        if line:
            yield number, line


def read_questions(name: str, data: bytes, options: Mapping[str, Any], form: Format) -> list[Question]:
    """Return the questions of a file: plain lines, or JSON Lines of score requests.

    Args:
        name: Name of the file. With `form` "auto", the suffixes .jsonl and .ndjson mean JSON Lines.
        data: Content of the file.
        options: Default fields of the requests.
        form: Format of the file.

    Raises:
        InvalidSetupError: a line is invalid, or the file is empty.
    """
    is_jsonl = form == "jsonl" or (form == "auto" and Path(name).suffix.lower() in JSONL)
    questions = []
    for number, line in numbered_lines(name, data):
        try:
            fields = json.loads(line) if is_jsonl else line
            fields = {"prompt": fields} if isinstance(fields, str) else dict(fields)
            identity = fields.pop("id", None)
            request = item_body(fields, options)
            text = json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidSetupError(
                f"{name}: line {number} is no request: {error}. Nothing was sent."
            ) from None
        hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
        questions.append(Question(number, identity, request, hashed))
    if not questions:
        raise InvalidSetupError(f"{name} holds no question.")
    return questions


@dataclass
class Results:
    """Results, written to a file or to stdout (None). `done`: whether each answered line is an error."""

    file: IO[bytes] | None
    done: dict[int, bool]

    @property
    def num_failed(self) -> int:
        """Number of lines with errors."""
        return sum(self.done.values())

    def add(self, question: Question, outcome: Mapping[str, Any]) -> None:
        """Write the line of a question. `outcome` has its `result` or `error`."""
        line = as_json({"line": question.line, "id": question.id, "request": question.hash, **outcome})
        if self.file is None:
            print(line, flush=True)
        else:
            self.file.write(line.encode("utf-8", "replace") + b"\n")
            self.file.flush()  # handed to the operating system: it survives a kill of this process
        self.done[question.line] = "error" in outcome


@contextmanager
def results_at(path: Path | None, questions: Sequence[Question], *, retry_errors: bool) -> Iterator[Results]:
    """Yield the results of a file, open for more.

    A line that an earlier command left incomplete is removed; with `retry_errors`, so are errors.

    Raises:
        InvalidSetupError: The file does not hold results, or holds those of other questions.
    """
    if path is None:
        yield Results(None, {})
        return
    path = path.resolve()  # keeps a symbolic link
    path.open("ab").close()
    lines = path.read_bytes().splitlines(keepends=True)
    done = _checked(path, lines, questions)
    kept = [number for number, (_, failed) in enumerate(done) if not (failed and retry_errors)]
    if len(kept) < len(lines):
        # The file is replaced atomically: if the command is killed, one of the two is complete.
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(b"".join(lines[number] for number in kept))
        part.replace(path)
    with path.open("ab") as file:
        yield Results(file, dict(done[number] for number in kept))


def _checked(path: Path, lines: Sequence[bytes], questions: Sequence[Question]) -> list[tuple[int, bool]]:
    """Return each line's question and whether it is an error. An incomplete last line is left out."""
    hash_by_line = {question.line: question.hash for question in questions}
    checked = []
    for number, raw in enumerate(lines, 1):
        if not raw.endswith(b"\n") and FIRST_LINE_BYTES.startswith(raw[: len(FIRST_LINE_BYTES)]):
            break
        try:
            fields = json.loads(raw)
            line, hashed, failed = int(fields["line"]), fields["request"], "error" in fields
        except (ValueError, KeyError, TypeError):
            raise InvalidSetupError(
                f"{path} is no file of results: line {number} is none. Nothing was changed."
            ) from None
        if hash_by_line.pop(line, None) != hashed:
            raise InvalidSetupError(
                f"{path} answers line {line}, which is gone, or is another question now, or the same "
                "with other options: give another --out, or delete it. Nothing was changed."
            )
        checked.append((line, failed))
    return checked


def is_away(error: EigencalError) -> bool:
    """Return True for errors that concern all questions: no connection, overload, a part is down."""
    return isinstance(error, APIConnectionError | RateLimitError) or error.status in (502, 503, 504)


def ask(
    url: str | None,
    questions: Sequence[Question],
    results: Results,
    note: Callable[[str], None],
    *,
    patience_s: float,
) -> None:
    """Ask the questions without a line, and retry those with transient errors.

    Lines are written in the order in which the results arrive.

    Raises:
        EigencalError: Nothing was scored for `patience_s`, or the key is refused.
    """
    progress, num_before, is_noted = ProgressLine(), len(results.done), False
    ends_at, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
    with Client(url, retries=0) as client:
        while left := [question for question in questions if question.line not in results.done]:
            num_done, refused, away = len(results.done), dict[int, Problem](), None
            try:
                for item in client.score_batch([question.request for question in left]):
                    question = left[item.index]
                    if item.error is not None and item.error.retryable and item.error.status in (429, 503):
                        refused[question.line] = item.error
                        continue
                    results.add(question, {"error": item.error} if item.error else {"result": item.result})
                    progress(len(results.done), len(questions), "scored")
            except EigencalError as error:
                if not is_away(error):
                    raise
                away = error
            if not refused and not away:
                return
            why = away or error_of_problem(503, next(iter(refused.values())).model_dump(mode="json"))
            if not is_noted:
                note(f"eigencal: {why.detail.rstrip('. ')}. Waiting for it, {patience_s:g} s at most")
                is_noted = True
            if len(results.done) > num_done:
                ends_at, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
            elif time.monotonic() >= ends_at:
                # If others were scored, the cause is these questions, not the service.
                if away or len(results.done) == num_before:
                    raise why
                for question in left:
                    results.add(question, {"error": refused[question.line]})
                return
            time.sleep(min(max(pause_s, why.retry_after_s or 0.0), patience_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
