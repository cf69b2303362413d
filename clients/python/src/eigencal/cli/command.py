"""Shared parts of all commands: options, exit codes and error handling."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Self

import typer

from eigencal import (
    APIConnectionError,
    APIStatusError,
    AuthenticationError,
    Client,
    EigencalError,
    InvalidSetupError,
    JobEndedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    ServerError,
    UnexpectedResponseError,
)
from eigencal.cli.output import Output, as_json


class ExitCode(IntEnum):
    """Exit codes and their meaning in the help."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Create a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    DONE = 0, "done"
    FAILED = 1, "failed in a way that no other code names (a fault of the command, a full disk)"
    USAGE = 2, "wrong arguments, or a file or folder that cannot be used; nothing was sent"
    NO_ANSWER = 3, "the service does not answer, or what answers is not the service"
    KEY = 4, "the service wants a key, or another one (401, 403)"
    NOT_FOUND = 5, "there is no such calibration, job, key or model (404)"
    REFUSED = 6, "the service refused the request: its data or options are at fault (other 4xx)"
    TROUBLE = 7, "the service, its LLM or its embedder has trouble: try again later (429, 5xx)"
    SOME_FAILED = 8, "score --file: every question has its line, and some lines are errors"
    JOB_ENDED = 9, "the job that was waited for failed or was cancelled"
    INTERRUPTED = 130, "stopped by Ctrl-C"
    PIPE_CLOSED = 141, "the reader of the output has closed it, as `head` does"


_HINTS = {
    ExitCode.NO_ANSWER: " (--url or EIGENCAL_URL names the service)",
    ExitCode.KEY: " (EIGENCAL_KEY gives the key)",
}
_BY_ERROR = {
    InvalidSetupError: ExitCode.USAGE,
    APIConnectionError: ExitCode.NO_ANSWER,
    UnexpectedResponseError: ExitCode.NO_ANSWER,
    JobEndedError: ExitCode.JOB_ENDED,
    AuthenticationError: ExitCode.KEY,
    PermissionDeniedError: ExitCode.KEY,
    NotFoundError: ExitCode.NOT_FOUND,
    RateLimitError: ExitCode.TROUBLE,
    ServerError: ExitCode.TROUBLE,
    APIStatusError: ExitCode.REFUSED,
}


def code_of(error: EigencalError) -> ExitCode:
    """Return the exit code for an error, by its most specific class."""
    return next((_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR), ExitCode.FAILED)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the command: its output and the URL of the service (None: EIGENCAL_URL)."""

    out: Output
    url: str | None

    def client(self) -> Client:
        """Return a client of the service."""
        return Client(self.url)


def _invocation(
    *,
    url: Annotated[str | None, typer.Option("--url", help="URL of the service.  [EIGENCAL_URL]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write only JSON on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all details of an error.")] = False,
) -> Invocation:
    """Return the invocation for the options of all commands."""
    return Invocation(Output(json, verbose), url)


_SHARED = inspect.signature(_invocation).parameters


def add_command(register: Callable[[Callable[..., Any]], object], function: Callable[..., object]) -> None:
    """Register a function as a command. Its first argument is an `Invocation`; it may return an exit code.

    The command has the function's other parameters and the options of all commands.
    """

    @functools.wraps(function)
    def run(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            invocation = _invocation(**{name: options.pop(name) for name in _SHARED})
            raise typer.Exit(_guarded(invocation.out, lambda: function(invocation, **options)))

    signature = inspect.signature(function, eval_str=True)
    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *list(signature.parameters.values())[1:],
        *_SHARED.values(),
    ]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    register(run)


def _guarded(out: Output, work: Callable[[], object]) -> int:
    """Run a command and return its exit code; an error is shown on one line."""
    try:
        code = work()
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):  # typer.Abort: Ctrl-C at a prompt
        out.note("eigencal: stopped")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Otherwise flushing the rest of the buffer at exit would report another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.PIPE_CLOSED
    except EigencalError as error:
        show_error(out, error)
        return code_of(error)
    except OSError as error:
        out.note(f"eigencal: {error.filename or 'the output'}: {error.strerror or error}")
        # Errors of opening have a file name; errors of writing, as on a full disk, do not.
        return ExitCode.USAGE if error.filename else ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def show_error(out: Output, error: EigencalError) -> None:
    """Show an error on one line; with `--verbose`, also the whole problem document.

    The message of the LLM server and each invalid row of dev data get a further line.
    """
    code = f"{error.code}: " if isinstance(error, APIStatusError | JobEndedError) else ""
    request = f" (request {error.request_id})" if error.request_id else ""
    out.note(f"eigencal: {code}{error.detail}{_HINTS.get(code_of(error), '')}{request}")
    if said := error.problem.get("llm_message"):
        out.note(f"  The LLM server says: {said}")
    for row in error.errors:
        if row.get("line") is not None:
            place = (row.get("loc") or ["file"])[0]
            file = "" if place == "file" else f"{place}, "  # one of two files
            field = f", {row['field']}" if row.get("field") else ""
            out.note(f"  {file}line {row['line']}{field}: {row.get('msg', '')}")
    if out.verbose and error.problem:
        out.note(f"  {as_json({'status': error.status, **error.problem})}")
