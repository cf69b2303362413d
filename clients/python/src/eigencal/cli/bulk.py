"""Scoring a file of questions: one line of results each, however often the command is killed and run again.

A line is `{"line", "id", "request", "result"}`, or has an `error` in place of the result; `request` is a
hash of what was asked, by which a changed question is noticed.
"""

import asyncio
import codecs
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import stamina

from eigencal import (
    AsyncClient,
    AuthenticationError,
    EigencalError,
    InvalidSetupError,
    PermissionDeniedError,
    UnexpectedResponseError,
)
from eigencal._base_client import retry_policy
from eigencal._progress import ProgressLine
from eigencal.cli.output import as_json
from eigencal.resources.scores import item_body

Format = Literal["auto", "lines", "jsonl"]
JSONL = {".jsonl", ".ndjson"}
FIRST_LINE_BYTES = b'{"line": '  # as every line of results begins
LONGEST_WAIT_S = 10.0
RETRIES = 4  # of one question that the service answers with errors that may pass


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
    """Tell whether every question fares so for now: nobody listens, no room, a part is down, a proxy."""
    is_proxy = error.status in (502, 504) and not error.problem
    is_full = error.status in (429, 503) and error.retryable
    return is_proxy or is_full or error.code == "connection_failed"


async def ask(
    url: str | None,
    questions: Sequence[Question],
    results: Results,
    note: Callable[[str], None],
    *,
    concurrency: int,
    patience_s: float,
) -> None:
    """Ask the questions without a line, so many at a time; lines are written in the order in which they come.

    Each waits `patience_s` for a service that is away.

    Raises:
        EigencalError: the run is over: the service was away for too long, or refuses the key.
    """
    progress, num_scored, is_noted = ProgressLine(), 0, False
    left = iter([question for question in questions if question.line not in results.done])

    def may_wait(error: EigencalError) -> bool:
        nonlocal is_noted
        if is_away(error) and not is_noted:
            is_noted = True
            note(f"eigencal: {error.detail.rstrip('. ')}. Waiting for it, {patience_s:g} s at most")
        return is_away(error)

    async def outcome(client: AsyncClient, question: Question) -> dict[str, Any]:
        nonlocal num_scored
        scored_before, ends_at = num_scored, time.monotonic() + patience_s
        policy = retry_policy(may_wait, ends_at, attempts=None, longest_wait_s=LONGEST_WAIT_S)
        try:
            async for attempt in stamina.retry_context(**policy):
                with attempt:
                    score = await client.score(**question.request)
        except (AuthenticationError, PermissionDeniedError, UnexpectedResponseError):
            raise  # no question can fare otherwise: the key is refused, or this is not the service
        except EigencalError as error:
            # Where others were scored meanwhile, it is the question, and not the service.
            if is_away(error) and num_scored == scored_before:
                raise
            return {"error": error.problem or {"code": error.code, "detail": error.detail}}
        num_scored += 1
        return {"result": score}

    async def work(client: AsyncClient) -> None:
        # All workers take from one iterator: between taking and asking nothing is awaited.
        for question in left:
            results.add(question, await outcome(client, question))
            progress(len(results.done), len(questions), "scored")

    longest_wait_s = min(LONGEST_WAIT_S, patience_s)
    try:
        async with (
            AsyncClient(url, retries=RETRIES, longest_wait_s=longest_wait_s) as client,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(concurrency):
                group.create_task(work(client))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
