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
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

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
from eigencal._progress import ProgressLine
from eigencal.cli.output import Output, as_json
from eigencal.resources.scores import item_body

Format = Literal["auto", "lines", "jsonl"]
JSONL = {".jsonl", ".ndjson"}
TABLES = {".csv", ".tsv"}  # their heads and columns would be asked as questions
CONTENT = ("prompt", "messages", "samples")
# `return` is the field's own name; Python needs `return_`.
FIELDS = {"id", "prompt", "return", *ScoreOptions.__annotations__} - {"return_"}
FIRST_LINE_BYTES = b'{"line": '  # as every line of results begins
LONGEST_WAIT_S = 10.0
MAX_ATTEMPTS = 5  # at one question that the service answers with errors that may pass


class Question(NamedTuple):
    """One question of a file."""

    line: int
    """Its line, from 1."""
    id: Any
    """The id that the file gives it, or None."""
    request: Mapping[str, Any]
    """The fields of POST /score."""
    hash: str
    """16 hex digits of a hash of the request."""


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
        InvalidSetupError: a line is bad, there is none, or it is a table.
    """
    suffix = Path(name).suffix.lower()
    if form == "auto" and suffix in TABLES:
        raise InvalidSetupError(
            f"{name} is a table, and questions are plain lines or JSON Lines: write them so, or say "
            "--format lines, to ask every line as it is. Nothing was sent."
        )
    is_jsonl = form == "jsonl" or (form == "auto" and suffix in JSONL)
    questions = []
    for number, line in numbered_lines(name, data):
        if form == "auto" and not is_jsonl and line.startswith("{"):
            hint = "it looks like a request: say --format jsonl, or --format lines"
            raise InvalidSetupError(f"{name}: line {number}: {hint}. Nothing was sent.")
        try:
            fields = _request(line) if is_jsonl else {"prompt": line}
            identity = fields.pop("id", None)
            request = item_body(fields, options)
            text = json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (InvalidSetupError, ValueError, RecursionError) as error:
            raise InvalidSetupError(f"{name}: line {number}: {error}. Nothing was sent.") from None
        hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
        questions.append(Question(number, identity, request, hashed))
    if not questions:
        raise InvalidSetupError(f"{name} holds no question.")
    return questions


def _request(line: str) -> dict[str, Any]:
    """Return the fields of a line: a request, or a JSON string that is the prompt."""
    fields = json.loads(line)
    if isinstance(fields, str):
        fields = {"prompt": fields}
    if not isinstance(fields, dict):
        raise InvalidSetupError("it is neither an object nor a string")
    if unknown := sorted(fields.keys() - FIELDS):
        raise InvalidSetupError(f"{', '.join(unknown)}: no field of a request")
    if all(fields.get(name) is None for name in CONTENT):
        raise InvalidSetupError(f"it has none of {', '.join(CONTENT)}")
    return fields


class Results:
    """Results on their way to a file, or to stdout (None). `done`: lines answered, and which are errors."""

    def __init__(self, file: IO[bytes] | None, done: dict[int, bool]) -> None:
        self._file, self.done = file, done

    @property
    def num_failed(self) -> int:
        """How many lines are errors."""
        return sum(self.done.values())

    def add(self, question: Question, outcome: Mapping[str, Any]) -> None:
        """Write the line of a question; `outcome` is its `result` or `error`."""
        fields = {"line": question.line, "id": question.id, "request": question.hash, **outcome}
        if self._file is None:
            print(as_json(fields, encoding=sys.stdout.encoding or "utf-8"), flush=True)
        else:
            self._file.write(as_json(fields).encode() + b"\n")
            self._file.flush()  # the system's now: it outlives this process
        self.done[question.line] = "error" in outcome


@contextmanager
def results_at(path: Path | None, questions: Iterable[Question], *, retry_errors: bool) -> Iterator[Results]:
    """Yield the results in a file, which this process alone writes until then.

    A line in which an earlier command was killed is taken out; with `retry_errors`, so are errors.

    Raises:
        InvalidSetupError: it is no file of results, answers other questions, or another command writes it.
    """
    if path is None:
        yield Results(None, {})
        return
    path = path.resolve()  # a link stays one
    # A device would be read for ever, and the lock would make the folder.
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InvalidSetupError(f"{path} is no file: results are read again when a command goes on.")
    with ExitStack() as stack:
        try:
            # Two commands on one file would ask every question twice.
            stack.enter_context(FileLock(f"{path}.lock", timeout=0))
        except Timeout:
            raise InvalidSetupError(f"{path} is being written by another command.") from None
        path.touch()
        found = list(_parsed(path))
        _check(path, found, questions)
        keep = [each is not None and not (each.failed and retry_errors) for each in found]
        if not all(keep):
            # A file beside it takes its place in one step: whenever this is killed, one of them is complete.
            beside = path.with_name(f"{path.name}.part")
            with path.open("rb") as file, beside.open("wb") as kept:
                kept.writelines(itertools.compress(file, keep))
            shutil.copymode(path, beside)
            beside.replace(path)
        done = {each.line: each.failed for each in itertools.compress(found, keep) if each}
        yield Results(stack.enter_context(path.open("ab")), done)


class _Done(NamedTuple):
    line: int
    hash: str
    failed: bool


def _parsed(path: Path) -> Iterator[_Done | None]:
    """Yield what each line of the results says; None for one that was cut. Raises InvalidSetupError."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n") and (
                raw.startswith(FIRST_LINE_BYTES) or FIRST_LINE_BYTES.startswith(raw)
            ):
                yield None
                return
            try:
                fields = json.loads(raw)
                yield _Done(int(fields["line"]), str(fields["request"]), "error" in fields)
            except (ValueError, KeyError, TypeError):
                raise InvalidSetupError(
                    f"{path} is no file of results: line {number} is none. Nothing was changed."
                ) from None


def _check(path: Path, found: Iterable[_Done | None], questions: Iterable[Question]) -> None:
    """Raise InvalidSetupError where the file answers other questions than these."""
    asked = {question.line: question.hash for question in questions}
    for each in found:
        if each and asked.pop(each.line, None) != each.hash:
            raise InvalidSetupError(
                f"{path} answers line {each.line}, which is gone, or is another question now, or the same "
                "with other options: give another --out, or delete it. Nothing was changed."
            )


def is_away(error: EigencalError) -> bool:
    """Tell whether every question fares so for now: nobody listens, no room, a part is down, a proxy."""
    if isinstance(error, APIStatusError):
        is_proxy = not error.problem and error.status in (502, 503, 504)
        return is_proxy or isinstance(error, RateLimitError) or (error.status == 503 and error.retryable)
    return isinstance(error, APIConnectionError) and error.code == "connection_failed"


class Run:
    """Asks questions, several at a time, and writes their lines in the order in which they are done.

    Args:
        out: Where it says that the service is away.
        results: Where the lines go.
        total: How many lines there will be, for people.
        patience_s: Seconds that a question waits for a service that is away.
    """

    def __init__(self, out: Output, results: Results, total: int, patience_s: float) -> None:
        self._out, self._results, self._total, self._patience_s = out, results, total, patience_s
        self._num_scored = 0
        self._is_away = False

    async def ask(self, url: str | None, questions: Iterator[Question], concurrency: int) -> None:
        """Ask these, so many at a time.

        Raises:
            EigencalError: the run is over: the service was away for too long, or refuses the key.
        """
        progress = ProgressLine()

        async def work(client: AsyncClient) -> None:
            # All workers take from one iterator: between taking and asking nothing is awaited.
            for question in questions:
                self._results.add(question, await self._outcome(client, question))
                progress(len(self._results.done), self._total, "scored")

        try:
            async with AsyncClient(url, retries=0) as client, asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work(client))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _outcome(self, client: AsyncClient, question: Question) -> dict[str, Any]:
        """Return what became of a question: its `result` or `error`."""
        scored_before = self._num_scored
        try:
            async for attempt in stamina.retry_context(**self._policy()):
                with attempt:
                    score = await client.score(**question.request)
        except (AuthenticationError, PermissionDeniedError, UnexpectedResponseError):
            raise  # no question can fare otherwise: the key is refused, or this is not the service
        except EigencalError as error:
            # Where others were scored meanwhile, it is the question, and not the service.
            if is_away(error) and self._num_scored == scored_before:
                raise
            return {"error": error.problem or {"code": error.code, "detail": error.detail}}
        self._num_scored += 1
        self._is_away = False
        return {"result": score}

    def _policy(self) -> dict[str, Any]:
        """Return when one question is asked again."""
        failed, ends_at = itertools.count(1), time.monotonic() + self._patience_s

        def may_repeat(error: EigencalError) -> bool:
            if not is_away(error):
                return error.retryable and next(failed) < MAX_ATTEMPTS
            if not self._is_away:
                self._is_away = True
                self._out.note(
                    f"eigencal: {error.detail.rstrip('. ')}. Waiting for it, {self._patience_s:g} s at most"
                )
            return time.monotonic() < ends_at

        return retry_policy(
            may_repeat,
            math.inf,
            attempts=None,
            longest_wait_s=min(LONGEST_WAIT_S, self._patience_s),
            longest_retry_after_s=self._patience_s,
        )
