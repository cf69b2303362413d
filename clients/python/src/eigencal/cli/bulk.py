"""Scoring a file of questions: one line of results each, however often the command is killed and run again.

A line is `{"line", "id", "request", "result"}`, or has an `error` in place of the result; `request` is a
hash of what was asked, by which a changed question is noticed.
"""

import asyncio
import codecs
import hashlib
import itertools
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import stamina
from filelock import FileLock, Timeout

from eigencal import (
    APIConnectionError,
    APIStatusError,
    AsyncClient,
    AuthenticationError,
    EigencalError,
    InvalidSetupError,
    PermissionDeniedError,
    RateLimitError,
    ScoreOptions,
    UnexpectedResponseError,
)
from eigencal._base_client import retry_policy
from eigencal._batches import item_body
from eigencal._progress import ProgressLine
from eigencal.cli.output import as_json

Format = Literal["auto", "lines", "jsonl"]
JSONL = {".jsonl", ".ndjson"}
TABLES = {".csv", ".tsv"}  # their heads and columns would be asked as questions
CONTENT = ("prompt", "messages", "samples")
# `return` is the field's own name; Python needs `return_`.
FIELDS = {"id", "prompt", "return", *ScoreOptions.__annotations__} - {"return_"}
MAX_SHOWN = 5  # bad lines
FIRST_LINE_BYTES = b'{"line": '  # as every line of results begins
LONGEST_WAIT_S = 10.0
MAX_ATTEMPTS = 5  # at one question that the service answers with errors that may pass


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a file."""

    line: int
    """Its line, from 1."""
    id: Any
    """The id that the file gives it, or None."""
    request: Mapping[str, Any]
    """The fields of POST /score."""

    @property
    def hash(self) -> str:
        """16 hex digits of a hash of the request."""
        text = json.dumps(self.request, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_questions(
    lines: Iterable[bytes], name: str, options: Mapping[str, Any], form: Format = "auto"
) -> list[Question]:
    """Return the questions of a file in UTF-8: plain lines, or JSON Lines of score requests.

    Args:
        lines: Its lines.
        name: Its name, for people; with `form` "auto", .jsonl and .ndjson say that it is JSON Lines.
        options: Fields of every request that does not set them itself.
        form: How they are written.

    Raises:
        InvalidSetupError: lines are bad, there are none, or it is a table.
    """
    suffix = Path(name).suffix.lower()
    if form == "auto" and suffix in TABLES:
        raise InvalidSetupError(
            f"{name} is a table, and questions are plain lines or JSON Lines: write them so, or say "
            "--format lines, to ask every line as it is. Nothing was sent."
        )
    is_jsonl = form == "jsonl" or (form == "auto" and suffix in JSONL)
    questions, bad = list[Question](), list[str]()
    for number, raw in enumerate(lines, 1):
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        if not line.strip():
            continue
        try:
            text = line.decode().strip()
            if is_jsonl:
                fields = _parse_request(text)
                identity = fields.pop("id", None)
                questions.append(Question(number, identity, item_body(fields, options)))
            elif form == "auto" and text.startswith("{"):
                bad.append(f"line {number}: it looks like a request: say --format jsonl, or --format lines")
            else:
                questions.append(Question(number, None, item_body(text, options)))
        except UnicodeDecodeError:
            bad.append(f"line {number}: it is not UTF-8")
        except InvalidSetupError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = f"; and {len(bad) - MAX_SHOWN} more" if len(bad) > MAX_SHOWN else ""
        raise InvalidSetupError(f"{name}: {'; '.join(bad[:MAX_SHOWN])}{more}. Nothing was sent.")
    if not questions:
        raise InvalidSetupError(f"{name} holds no question.")
    return questions


def _parse_request(text: str) -> dict[str, Any]:
    """Return the fields of a line: a request, or a JSON string that is the prompt."""
    try:
        fields = json.loads(text)
        json.dumps(fields, allow_nan=False)
    except json.JSONDecodeError as error:
        raise InvalidSetupError(f"it is no JSON ({error})") from None
    except ValueError:
        raise InvalidSetupError("it has a number that JSON has not: NaN, or an infinite one") from None
    except RecursionError:
        raise InvalidSetupError("it is nested too deeply") from None
    if isinstance(fields, str):
        fields = {"prompt": fields}
    if not isinstance(fields, dict):
        raise InvalidSetupError("it is neither an object nor a string")
    if unknown := sorted(fields.keys() - FIELDS):
        raise InvalidSetupError(f"{', '.join(unknown)}: no field of a request")
    if all(fields.get(name) is None for name in CONTENT):
        raise InvalidSetupError(f"it has none of {', '.join(CONTENT)}")
    return fields


@dataclass(frozen=True, slots=True)
class Done:
    """What a line of the results says."""

    hash: str
    failed: bool


class Results:
    """Results on their way to a file that this process alone writes, or to stdout (`path` None)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path.resolve() if path else None  # a link stays one
        self._file: IO[bytes] | None = None
        self._stack = ExitStack()
        self.done: dict[int, Done] = {}

    def __enter__(self) -> Self:
        """Open the file and read what it holds.

        Raises:
            InvalidSetupError: it is no file of results, cannot be opened, or another command writes it.
        """
        if self._path is None:
            return self
        if self._path.exists() and not self._path.is_file():
            raise InvalidSetupError(
                f"{self._path} is no file: results are read again when a command goes on."
            )
        if not self._path.parent.is_dir():  # the lock would make it
            raise InvalidSetupError(f"{self._path} cannot be written: there is no such folder.")
        with ExitStack() as stack:
            try:
                # Two commands on one file would ask every question twice.
                stack.enter_context(FileLock(f"{self._path}.lock", timeout=0))
                # Unbuffered: what is written is the system's at once, and outlives this process.
                self._file = self._path.open("a+b", buffering=0)
                stack.callback(lambda: self._file and self._file.close())
            except Timeout:
                raise InvalidSetupError(f"{self._path} is being written by another command.") from None
            except OSError as error:
                raise InvalidSetupError(f"{self._path} cannot be written: {error.strerror}") from None
            self._read(self._file)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self._file is not None:
                os.fsync(self._file.fileno())

    @property
    def num_failed(self) -> int:
        """How many lines are errors."""
        return sum(done.failed for done in self.done.values())

    def check(self, questions: Iterable[Question]) -> None:
        """Raise InvalidSetupError where the file answers other questions than these."""
        left = dict(self.done)
        for question in questions:
            done = left.pop(question.line, None)
            if done is not None and done.hash != question.hash:
                raise InvalidSetupError(
                    f"{self._path} answers another question, or the same with other options, than line "
                    f"{question.line} asks now: give another --out, or delete it. Nothing was changed."
                )
        if left:
            raise InvalidSetupError(
                f"{self._path} answers line {min(left)}, where there is no question now: give another --out, "
                "or delete it. Nothing was changed."
            )

    def add(self, question: Question, outcome: Mapping[str, Any]) -> None:
        """Write the line of a question; `outcome` is its `result` or `error`."""
        fields = {"line": question.line, "id": question.id, "request": question.hash, **outcome}
        if self._file is None:
            print(as_json(fields, encoding=sys.stdout.encoding or "utf-8"), flush=True)
        else:
            _write(self._file, as_json(fields).encode() + b"\n")
        self.done[question.line] = Done(question.hash, "error" in outcome)

    def drop_errors(self) -> None:
        """Take the lines out that are errors, so that their questions are asked again."""
        if self._file is None or self._path is None or not self.num_failed:
            return
        # A file beside it takes its place in one step: whenever this is killed, one of the two is complete.
        with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as beside:
            for number, raw in _lines_of(self._file):
                if not self._parse(raw, number)[1].failed:
                    beside.write(raw)
            beside.flush()
            os.fsync(beside.fileno())
        shutil.copymode(self._path, beside.name)
        self._file.close()  # Windows replaces no file that is open
        try:
            Path(beside.name).replace(self._path)
        finally:
            Path(beside.name).unlink(missing_ok=True)
            self._file = self._path.open("a+b", buffering=0)
        self.done = {line: done for line, done in self.done.items() if not done.failed}

    def _read(self, file: IO[bytes]) -> None:
        """Learn which questions are done; cut off the line in which an earlier command was killed."""
        length = 0
        for number, raw in _lines_of(file):
            if not raw.endswith(b"\n"):
                if not (raw.startswith(FIRST_LINE_BYTES) or FIRST_LINE_BYTES.startswith(raw)):
                    raise self._foreign(number)
                file.truncate(length)
                break
            line, done = self._parse(raw, number)
            if line in self.done:
                raise InvalidSetupError(f"{self._path} answers line {line} twice. Nothing was changed.")
            self.done[line] = done
            length += len(raw)

    def _parse(self, raw: bytes, number: int) -> tuple[int, Done]:
        """Return which line of the questions this one answers, and how."""
        try:
            fields = json.loads(raw)
            return int(fields["line"]), Done(str(fields["request"]), "error" in fields)
        except (ValueError, KeyError, TypeError):
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> InvalidSetupError:
        return InvalidSetupError(
            f"{self._path} is no file of results: line {number} is none. Nothing was changed."
        )


def _lines_of(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    file.seek(0)
    # Through a buffer: the file itself has none.
    with os.fdopen(os.dup(file.fileno()), "rb") as buffered:
        yield from enumerate(buffered, 1)


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of it, or nothing: an unbuffered write may take a part, as on a disk that is nearly full."""
    before = os.fstat(file.fileno()).st_size
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.truncate(before)  # another question's line may come before the command has ended
        raise


class Patience:
    """How long the service may be away in one piece, seconds; shared by all questions of a run."""

    def __init__(self, limit_s: float, note: Callable[[str], None]) -> None:
        self._limit_s, self._note = limit_s, note
        self._away_since: float | None = None
        self.num_scored = 0

    def scored(self) -> None:
        """Note that a question was scored: the service is there."""
        self.num_scored += 1
        if self._away_since is not None:
            self._note(f"eigencal: the service is back after {time.monotonic() - self._away_since:.0f} s")
        self._away_since = None

    def lasts(self, error: EigencalError) -> bool:
        """Tell whether the service, away by this error, is still waited for."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._note(f"eigencal: {error.detail.rstrip('. ')}. Waiting for it, {self._limit_s:g} s at most")
        return time.monotonic() - self._away_since < self._limit_s

    def policy(self) -> dict[str, Any]:
        """Return when one question is asked again."""
        failed = itertools.count(1)

        def may_repeat(error: EigencalError) -> bool:
            if is_away(error):
                return self.lasts(error)
            return error.retryable and next(failed) < MAX_ATTEMPTS

        longest_wait_s = min(LONGEST_WAIT_S, self._limit_s)
        bounds = {"longest_wait_s": longest_wait_s, "longest_retry_after_s": self._limit_s}
        return retry_policy(may_repeat, math.inf, attempts=None, **bounds)


def is_away(error: EigencalError) -> bool:
    """Tell whether every question fares so for now: nobody listens, no room, a part is down, a proxy."""
    if isinstance(error, APIStatusError):
        is_proxy = not error.problem and error.status in (502, 503, 504)
        return is_proxy or isinstance(error, RateLimitError) or (error.status == 503 and error.retryable)
    return isinstance(error, APIConnectionError) and error.code == "connection_failed"


async def answer_all(
    url: str | None,
    questions: Iterator[Question],
    results: Results,
    *,
    total: int,
    patience: Patience,
    concurrency: int,
) -> None:
    """Ask every question and write its line; lines come in the order in which they are done.

    Args:
        url: Where the service is, as for a client.
        questions: Those to ask.
        results: Where the lines go.
        total: How many lines there will be, for people.
        patience: How long the service may be away.
        concurrency: Questions under way at a time.

    Raises:
        EigencalError: the run is over: the service was away for too long, or refuses the key.
    """
    progress = ProgressLine()

    async def work(client: AsyncClient) -> None:
        # All workers take from one iterator: between taking and asking nothing is awaited.
        for question in questions:
            results.add(question, await _outcome(client, question, patience))
            progress(len(results.done), total, "scored")

    try:
        async with AsyncClient(url, retries=0) as client, asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work(client))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _outcome(client: AsyncClient, question: Question, patience: Patience) -> dict[str, Any]:
    """Return what became of a question: its `result` or `error`."""
    scored_before = patience.num_scored
    try:
        async for attempt in stamina.retry_context(**patience.policy()):
            with attempt:
                score = await client.score(**question.request)
    except (AuthenticationError, PermissionDeniedError, UnexpectedResponseError):
        raise  # no question can fare otherwise: the key is refused, or this is not the service
    except EigencalError as error:
        # Where others were scored meanwhile, it is the question, and not the service.
        if is_away(error) and patience.num_scored == scored_before:
            raise
        return {"error": _problem(error)}
    patience.scored()
    return {"result": score}


def _problem(error: EigencalError) -> dict[str, Any]:
    """Return an error as a line has it: as the service told it, or in its shape."""
    shape = {"code": error.code, "status": error.status, "detail": error.detail, "retryable": error.retryable}
    return error.problem or {**shape, "request_id": error.request_id}
