"""What all commands have in common: their options, their exit codes, and what becomes of errors."""

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

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
from eigencal.cli.output import Output, as_json, harmless, one_line

MAX_SHOWN = 20  # of the things that are wrong with one request


class ExitCode(IntEnum):
    """What became of a command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_ANSWER = 3
    KEY = 4
    NOT_FOUND = 5
    REFUSED = 6
    TROUBLE = 7
    SOME_FAILED = 8
    JOB_ENDED = 9
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed in a way that no other code names (a fault of the command, a full disk)",
    ExitCode.USAGE: "wrong arguments, or a file or folder that cannot be used; nothing was sent",
    ExitCode.NO_ANSWER: "the service does not answer, or what answers is not the service",
    ExitCode.KEY: "the service wants a key, or another one (401, 403)",
    ExitCode.NOT_FOUND: "there is no such calibration, job, key or model (404)",
    ExitCode.REFUSED: "the service refused the request: its data or options are at fault (other 4xx)",
    ExitCode.TROUBLE: "the service, its LLM or its embedder has trouble: try again later (429, 5xx)",
    ExitCode.SOME_FAILED: "score --file: every question has its line, and some lines are errors",
    ExitCode.JOB_ENDED: "the job that was waited for failed or was cancelled",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
    ExitCode.PIPE_CLOSED: "the reader of the output has closed it, as `head` does",
}
# The first that fits counts: the narrow classes stand before those they belong to.
_BY_ERROR: tuple[tuple[type[EigencalError], ExitCode], ...] = (
    (InvalidSetupError, ExitCode.USAGE),
    (APIConnectionError, ExitCode.NO_ANSWER),
    (UnexpectedResponseError, ExitCode.NO_ANSWER),
    (JobEndedError, ExitCode.JOB_ENDED),
    (AuthenticationError, ExitCode.KEY),
    (PermissionDeniedError, ExitCode.KEY),
    (NotFoundError, ExitCode.NOT_FOUND),
    (RateLimitError, ExitCode.TROUBLE),
    (ServerError, ExitCode.TROUBLE),
    (APIStatusError, ExitCode.REFUSED),
)
_HINTS = {
    "connection_failed": " (is it running? --url or EIGENCAL_URL names another)",
    "unexpected_response": " (--url or EIGENCAL_URL names the service)",
}
# The service speaks of headers, which nobody types here.
_DETAILS = {
    "missing_key": "the service wants a key: EIGENCAL_KEY gives one",
    "bad_key": "this key opens nothing there: EIGENCAL_KEY gives another",
}


def code_of(error: EigencalError) -> ExitCode:
    """Return the exit code of a command that ended with this error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the command: where it writes, and which service it asks (None: that of EIGENCAL_URL)."""

    out: Output
    url: str | None

    def client(self) -> Client:
        """Return a client of that service."""
        return Client(self.url)


# A type is told to typer apart from its default, for a decorator adds these to every command.
_SHARED: dict[str, tuple[Any, Any]] = {
    "url": (
        Annotated[str | None, typer.Option("--url", help="Where the service is.  [EIGENCAL_URL]")],
        None,
    ),
    "json": (
        Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, on stdout.")],
        False,
    ),
    "verbose": (
        Annotated[bool, typer.Option("--verbose", "-v", help="Of an error: everything that is known.")],
        False,
    ),
}


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Add a function as a command: it is handed an `Invocation` first, and may return an exit code.

    The command has the function's other parameters, and the options of all commands.
    """
    return _adding(app.command(name))


def group(app: typer.Typer) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Have a function be what a group of commands does where none of them is named, as `command` has it."""
    return _adding(app.callback(invoke_without_command=True))


def _adding(
    register: Callable[[Callable[..., Any]], object],
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def add(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def run(context: typer.Context, **options: Any) -> None:
            if context.invoked_subcommand is not None:
                return
            out = Output(options.pop("json"), options.pop("verbose"))
            invocation = Invocation(out, options.pop("url"))
            raise typer.Exit(guarded(out, lambda: function(invocation, **options)))

        own = inspect.signature(function, eval_str=True)
        parameters = [
            inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *list(own.parameters.values())[1:],
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in _SHARED.items()
            ),
        ]
        vars(run)["__signature__"] = own.replace(parameters=parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        register(run)
        return function

    return add


def guarded(out: Output, work: Callable[[], object]) -> int:
    """Do the work of a command and return its exit code; an error is shown in one line."""
    try:
        code = work()
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):  # the second: at a question
        out.note("eigencal: stopped")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whatever is left in the buffer would be told as an error at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.PIPE_CLOSED
    except EigencalError as error:
        show_error(out, error)
        return code_of(error)
    except OSError as error:
        out.note(f"eigencal: {error.filename or 'the output'}: {error.strerror or error}")
        _show_traceback(out)
        return ExitCode.FAILED
    except Exception as error:
        out.note(f"eigencal: a fault of the command: {type(error).__name__}: {error} (--verbose says where)")
        _show_traceback(out)
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def show_error(out: Output, error: EigencalError) -> None:
    """Say in one line what went wrong; with `--verbose`, everything that is known about it.

    Bad rows of dev data have a line each.
    """
    code = f"{error.code}: " if isinstance(error, APIStatusError | JobEndedError) else ""
    request = f" (request {error.request_id})" if error.request_id else ""
    detail = _DETAILS.get(error.code, error.detail) + _HINTS.get(error.code, "")
    out.note(f"eigencal: {code}{detail}{request}")
    rows = [each for each in error.errors if each.get("line") is not None]
    for each in rows or (error.errors[:MAX_SHOWN] if out.verbose else ()):
        out.note(f"  {_place(each)}")
    total, listed = error.problem.get("total_bad", 0), {str([row["line"], _loc(row)[:1]]) for row in rows}
    if isinstance(total, int) and rows and total > len(listed):
        out.note(f"  and {total - len(listed)} more rows")
    if out.verbose and error.problem:
        out.note(f"  {as_json({'status': error.status, **error.problem})}")
    _show_traceback(out)


def _place(wrong: dict[str, Any]) -> str:
    """Return one thing that is wrong with a request, or with a row of dev data."""
    if wrong.get("line") is not None:
        file = next(iter(_loc(wrong)), "file")
        named = "" if file == "file" else f"{file}, "  # an evaluation has two files
        field = f", {wrong['field']}" if wrong.get("field") else ""
        return one_line(f"{named}line {wrong['line']}{field}: {wrong.get('msg', '')}")
    where = ".".join(_loc(wrong))
    return one_line(f"{where}: {wrong.get('msg', '')}" if where else str(wrong.get("msg", wrong)))


def _loc(wrong: dict[str, Any]) -> list[str]:
    # Of a server that is not ours it may be anything.
    loc = wrong.get("loc")
    return list(map(str, loc)) if isinstance(loc, list) else []


def _show_traceback(out: Output) -> None:
    if out.verbose:
        print(harmless(traceback.format_exc()), file=sys.stderr, end="")
