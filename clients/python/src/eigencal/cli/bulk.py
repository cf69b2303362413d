"""Scoring a file of questions: one line of results each, however often the command is killed and run again.

A line is `{"line", "id", "request", "result"}`, or has an `error` in place of the result; `request` is a
hash of what was asked, by which a changed question is noticed.
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
FIRST_LINE_BYTES = b'{"line": '  # as every line of results begins
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


class Question(NamedTuple):
    """One question of a file: its line, from 1, its id in the file, the fields of POST /score, their hash."""

    line: int
    id: Any
    request: Mapping[str, Any]
    hash: str


def numbered_lines(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text in UTF-8 that hold something, numbered. Raises InvalidSetupError."""
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
        name: Its name, for people; with `form` "auto", .jsonl and .ndjson say that it is JSON Lines.
        data: What it holds.
        options: Fields of every request that does not set them itself.
        form: How it is written.

    Raises:
        InvalidSetupError: a line is bad, or there is none.
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
    """Results on their way to a file, or to stdout (None). `done`: lines answered, and which are errors."""

    file: IO[bytes] | None
    done: dict[int, bool]

    @property
    def num_failed(self) -> int:
        """How many lines are errors."""
        return sum(self.done.values())

    def add(self, question: Question, outcome: Mapping[str, Any]) -> None:
        """Write the line of a question; `outcome` is its `result` or `error`."""
        line = as_json({"line": question.line, "id": question.id, "request": question.hash, **outcome})
        if self.file is None:
            print(line, flush=True)
        else:
            self.file.write(line.encode("utf-8", "replace") + b"\n")
            self.file.flush()  # the system's now: it outlives this process
        self.done[question.line] = "error" in outcome


@contextmanager
def results_at(path: Path | None, questions: Sequence[Question], *, retry_errors: bool) -> Iterator[Results]:
    """Yield the results in a file: those that are there, and room for more.

    A line in which an earlier command was killed is taken out; with `retry_errors`, so are errors.

    Raises:
        InvalidSetupError: it is no file of results, or answers other questions.
    """
    if path is None:
        yield Results(None, {})
        return
    path = path.resolve()  # a link stays one
    path.open("ab").close()
    held = path.read_bytes().splitlines(keepends=True)
    done = _checked(path, held, questions)
    kept = [number for number, (_, failed) in enumerate(done) if not (failed and retry_errors)]
    if len(kept) < len(held):
        # A file beside it takes its place in one step: whenever this is killed, one is complete.
        beside = path.with_name(f"{path.name}.part")
        beside.write_bytes(b"".join(held[number] for number in kept))
        beside.replace(path)
    with path.open("ab") as file:
        yield Results(file, dict(done[number] for number in kept))


def _checked(path: Path, held: Sequence[bytes], questions: Sequence[Question]) -> list[tuple[int, bool]]:
    """Return the question that each line answers, and whether by an error; not of a last one that was cut."""
    asked = {question.line: question.hash for question in questions}
    found = []
    for number, raw in enumerate(held, 1):
        if not raw.endswith(b"\n") and FIRST_LINE_BYTES.startswith(raw[: len(FIRST_LINE_BYTES)]):
            break
        try:
            fields = json.loads(raw)
            line, hashed, failed = int(fields["line"]), fields["request"], "error" in fields
        except (ValueError, KeyError, TypeError):
            raise InvalidSetupError(
                f"{path} is no file of results: line {number} is none. Nothing was changed."
            ) from None
        if asked.pop(line, None) != hashed:
            raise InvalidSetupError(
                f"{path} answers line {line}, which is gone, or is another question now, or the same "
                "with other options: give another --out, or delete it. Nothing was changed."
            )
        found.append((line, failed))
    return found


def is_away(error: EigencalError) -> bool:
    """Tell whether every question fares so for now: nobody answers, no room, a part is down."""
    return isinstance(error, APIConnectionError | RateLimitError) or error.status in (502, 503, 504)


def ask(
    url: str | None,
    questions: Sequence[Question],
    results: Results,
    note: Callable[[str], None],
    *,
    patience_s: float,
) -> None:
    """Ask the questions without a line, and those again that fail in a way that may pass.

    Lines are written in the order in which they come.

    Raises:
        EigencalError: the run is over: nothing was scored for `patience_s`, or the key is refused.
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
                # Where others were scored, it is these questions, and not the service.
                if away or len(results.done) == num_before:
                    raise why
                for question in left:
                    results.add(question, {"error": refused[question.line]})
                return
            time.sleep(min(max(pause_s, why.retry_after_s or 0.0), patience_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
