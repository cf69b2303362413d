"""The command line application: its commands and help."""

from typing import Annotated

import typer

from eigencal import __version__
from eigencal.cli import calibrations, chat, jobs, keys, label, score
from eigencal.cli.command import ExitCode, add_command

EPILOG = "Exit codes:\n\n\b\n" + "\n".join(f"{code.value:>4}  {code.meaning}" for code in ExitCode)

# Plain help, which looks the same in a terminal, a pipe and a log.
app = typer.Typer(
    name="eigencal",
    help="How uncertain is an LLM about a question? Ask an Eigencal service.",
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
calibration_app = typer.Typer(rich_markup_mode=None)
key_app = typer.Typer(help="Keys that open the service (with the admin key).", rich_markup_mode=None)

add_command(app.command("score"), score.score)
add_command(app.command("chat"), chat.chat)
add_command(app.command("label"), label.label)
add_command(app.command("calibrate"), calibrations.calibrate)
app.add_typer(calibration_app, name="calibrations")
add_command(calibration_app.callback(invoke_without_command=True), calibrations.calibrations)
add_command(calibration_app.command("history"), calibrations.history)
add_command(calibration_app.command("correct"), calibrations.correct)
add_command(app.command("activate"), calibrations.activate)
add_command(app.command("report"), calibrations.report)
add_command(app.command("jobs"), jobs.jobs)
app.add_typer(key_app, name="keys")
add_command(key_app.command("list"), keys.list_)
add_command(key_app.command("create"), keys.create)
add_command(key_app.command("revoke"), keys.revoke)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Show the version, or the help if no command is given."""
    if version:
        typer.echo(f"eigencal {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@key_app.callback(invoke_without_command=True)
def key_root(context: typer.Context) -> None:
    """Show the help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
