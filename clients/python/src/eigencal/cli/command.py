"""What all commands have in common: their options, and what becomes of errors."""

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from eigencal import (
    ApiError,
    AsyncClient,
    BadKey,
    Client,
    ConnectionFailed,
    EigencalError,
    JobEnded,
    MissingKey,
    UnexpectedAnswer,
)
from eigencal.cli.exit_codes import ExitCode, code_of
from eigencal.cli.output import Output, as_json, harmless, one_line
from eigencal.cli.target import Target, target

MOST_SHOWN = 20  # of the things that are wrong with one request
HINTS: dict[type[EigencalError], str] = {
    ConnectionFailed: "is it running? --url or EIGENCAL_URL names another",
    UnexpectedAnswer: "--url or EIGENCAL_URL names the service",
}
# The service speaks of headers, which nobody types here.
OWN_WORDS: dict[type[EigencalError], str] = {
    MissingKey: "the service wants a key: eigencal login remembers one, EIGENCAL_KEY gives one",
    BadKey: "this key opens nothing there: eigencal login remembers another, EIGENCAL_KEY gives one",
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the command: where it writes, and which service it asks."""

    out: Output
    url: str | None
    profile: str | None

    @property
    def target(self) -> Target:
        """The service to ask. Raises InvalidSetup."""
        return target(self.url, self.profile)

    def client(self, **setup: Any) -> Client:
        """Return a client of that service."""
        to = self.target
        return Client(to.url, key=to.key or "", **setup)

    def async_client(self, **setup: Any) -> AsyncClient:
        """Return a client of that service that is awaited."""
        to = self.target
        return AsyncClient(to.url, key=to.key or "", **setup)


# A type is told to typer apart from what it holds, for a decorator adds these to every command.
_SHARED: dict[str, Any] = {
    "url": Annotated[
        str | None, typer.Option("--url", help="Where the service is.  [EIGENCAL_URL, or the profile]")
    ],
    "profile": Annotated[
        str | None,
        typer.Option("--profile", help="Profile to use: a name, or a file.  [EIGENCAL_PROFILE, or default]"),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Write JSON, and nothing else, on stdout.")],
    "verbose": Annotated[
        bool, typer.Option("--verbose", "-v", help="Of an error: everything that is known.")
    ],
}
OF_ALL = {"--url", "--profile", "--json", "--verbose", "-v"}
_DEFAULTS = {"url": None, "profile": None, "json": False, "verbose": False}


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
        def run(context: typer.Context, **given: Any) -> None:
            if context.invoked_subcommand is not None:
                return
            out = Output(given.pop("json"), given.pop("verbose"))
            invocation = Invocation(out, given.pop("url"), given.pop("profile"))
            raise typer.Exit(guarded(out, lambda: function(invocation, **given)))

        own = inspect.signature(function, eval_str=True)
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[key], annotation=kind)
            for key, kind in _SHARED.items()
        ]
        context = inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        parameters = [context, *list(own.parameters.values())[1:], *shared]
        vars(run)["__signature__"] = own.replace(parameters=parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        register(run)
        return function

    return add


def guarded(out: Output, work: Callable[[], object]) -> int:
    """Do the work of a command and return its exit code; an error is told in one line."""
    try:
        code = work()
        sys.stdout.flush()
    except typer.Exit as ended:
        code = ended.exit_code
    except (KeyboardInterrupt, typer.Abort):  # the second: at a question
        out.note("eigencal: stopped")
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        code = pipe_closed()
    except EigencalError as error:
        tell(out, error)
        code = code_of(error)
    except OSError as error:
        out.note(f"eigencal: {error.filename or 'the output'}: {error.strerror or error}")
        _trace(out)
        code = ExitCode.FAILED
    except Exception as error:
        out.note(f"eigencal: a fault of the command: {type(error).__name__}: {error} (--verbose says where)")
        _trace(out)
        code = ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE


def tell(out: Output, error: EigencalError) -> None:
    """Say in one line what went wrong; with `--verbose`, everything that is known about it."""
    wrong = getattr(error, "errors", ())
    rows = [each for each in wrong if each.get("line") is not None]
    if rows:
        _tell_rows(out, error, rows)
        return
    first = f": {_place(wrong[0])}" if wrong and str(wrong[0].get("msg", "")) not in error.detail else ""
    more = f" (and {len(wrong) - 1} more: --verbose)" if len(wrong) > 1 and not out.verbose else ""
    named = f" (request {error.request_id})" if error.request_id else ""
    hint = next((f" ({said})" for kind, said in HINTS.items() if isinstance(error, kind)), "")
    detail = OWN_WORDS.get(type(error), error.detail)
    out.note(f"eigencal: {_code(error)}{detail}{first}{more}{hint}{named}")
    if not out.verbose:
        return
    for each in wrong[1:MOST_SHOWN]:
        out.note(f"  {_place(each)}")
    if isinstance(error, ApiError) and error.problem:
        out.note(f"  {as_json({'status': error.status, **error.problem})}")
    _trace(out)


def _tell_rows(out: Output, error: EigencalError, rows: list[dict[str, Any]]) -> None:
    """Say what is wrong with dev data: the first bad rows, each on a line of its own."""
    named = f" (request {error.request_id})" if error.request_id else ""
    out.note(f"eigencal: {_code(error)}{error.detail}{named}")
    for each in rows:
        out.note(f"  {_place(each)}")
    total = error.problem.get("total_bad", 0) if isinstance(error, ApiError) else 0
    lines = len({str([each["line"], _loc(each)[:1]]) for each in rows})
    if isinstance(total, int) and total > lines:
        out.note(f"  and {total - lines} more rows")
    if out.verbose and isinstance(error, ApiError) and error.problem:
        out.note(f"  {as_json({'status': error.status, **error.problem})}")
        _trace(out)


def _code(error: EigencalError) -> str:
    return f"{error.code}: " if isinstance(error, ApiError | JobEnded) else ""


def _place(wrong: dict[str, Any]) -> str:
    """Return one thing that is wrong with a request, or with a row of dev data."""
    if wrong.get("line") is not None:
        file, *_ = [*_loc(wrong), "file"]
        named = "" if file == "file" else f"{file}, "  # an evaluation has two files
        field = f", {wrong['field']}" if wrong.get("field") else ""
        return one_line(f"{named}line {wrong['line']}{field}: {wrong.get('msg', '')}")
    where = ".".join(_loc(wrong))
    return one_line(f"{where}: {wrong.get('msg', '')}" if where else str(wrong.get("msg", wrong)))


def _loc(wrong: dict[str, Any]) -> list[str]:
    # Of a server that is not ours it may be anything.
    found = wrong.get("loc")
    return list(map(str, found)) if isinstance(found, list) else []


def _trace(out: Output) -> None:
    if out.verbose:
        print(harmless(traceback.format_exc()), file=sys.stderr, end="")


def pipe_closed() -> int:
    """Write nowhere from now on: whatever is left in the buffer would be told as an error at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.PIPE_CLOSED
