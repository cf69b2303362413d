"""The command: its commands, and how it begins and ends."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from eigencal import InvalidSetup, __version__
from eigencal.cli import calibrations, chat, jobs, keys, login, score
from eigencal.cli.command import OF_ALL, command, group, guarded, tell
from eigencal.cli.exit_codes import ExitCode, table
from eigencal.cli.output import Output, prepare

EPILOG = f"""Exit codes:

\b
{table()}"""

# Plain help: the same in a terminal, a pipe and a log.
app = typer.Typer(
    name="eigencal",
    help="How uncertain is an LLM about a question? Ask an Eigencal service.",
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
calibration_app = typer.Typer(rich_markup_mode=None)
key_app = typer.Typer(help="Keys that open the service (with the admin key).", rich_markup_mode=None)

command(app, "score")(score.score)
command(app, "chat")(chat.chat)
command(app, "calibrate")(calibrations.calibrate)
app.add_typer(calibration_app, name="calibrations")
group(calibration_app)(calibrations.calibrations)
command(calibration_app, "history")(calibrations.history)
command(calibration_app, "correct")(calibrations.correct)
command(app, "activate")(calibrations.activate)
command(app, "report")(calibrations.report)
command(app, "evaluate")(jobs.evaluate)
command(app, "jobs")(jobs.jobs)
app.add_typer(key_app, name="keys")
command(key_app, "list")(keys.list_)
command(key_app, "create")(keys.create)
command(key_app, "revoke")(keys.revoke)
command(app, "login")(login.login)
command(app, "logout")(login.logout)
command(app, "profile")(login.profile)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Tell the version and end.")] = False,
) -> None:
    """Tell the version, or the help where no command is named."""
    if version:
        typer.echo(f"eigencal {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@key_app.callback(invoke_without_command=True)
def key_root(context: typer.Context) -> None:
    """Tell the help where no command is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; never raises."""
    prepare()
    return guarded(Output(json=False, verbose="--verbose" in arguments), lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    built = typer.main.get_command(app)
    try:
        code = built.main(list(arguments), prog_name="eigencal", standalone_mode=False)
    except typer.TyperException as wrong:  # a misspelt option, a missing argument
        where = _help(built, arguments)
        tell(Output(json=False, verbose=False), InvalidSetup(f"{wrong.format_message()} ({where})"))
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    sys.stdout.flush()
    return code if isinstance(code, int) else ExitCode.DONE


def _help(built: object, arguments: Sequence[str]) -> str:
    """Return where to look; an option of all commands that stands before the command belongs behind it."""
    if arguments and arguments[0].partition("=")[0] in OF_ALL:
        return f"it goes behind the command: eigencal COMMAND {arguments[0]}"
    path, at = ["eigencal"], built
    for word in arguments:
        at = getattr(at, "commands", {}).get(word)
        if at is None:
            break
        path.append(word)
    return f"see {' '.join(path)} --help"
