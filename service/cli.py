"""The command line: `python -m service` serves; subcommands do the rest."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from service.settings import Settings

cli = typer.Typer(
    help="Eigencal: calibrated spectral uncertainty of language models over HTTP.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
)
weights = typer.Typer(help="Packaged model weights.", no_args_is_help=True)
cli.add_typer(weights, name="weights")


def load_settings() -> Settings:
    """Return the settings, or end with what is wrong with them."""
    try:
        return Settings()
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False):
            name = "EIGENCAL_" + "_".join(str(part) for part in item["loc"]).upper()
            typer.echo(f"{name}: {item['msg']}", err=True)
        raise typer.Exit(2) from None


@cli.callback(invoke_without_command=True)
def main_command(context: typer.Context) -> None:
    """Serve, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        serve()


@cli.command()
def serve() -> None:
    """Serve HTTP (the default)."""
    import uvicorn

    from service.app import create_app

    settings = load_settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        app = create_app(settings)
    except ValueError as error:
        typer.echo(f"Cannot start: {error}", err=True)
        raise typer.Exit(2) from None
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        server_header=False,
        timeout_graceful_shutdown=30,
    )


@cli.command("openapi")
def openapi_command(
    out: Annotated[Path | None, typer.Option(help="File to write; left out: standard output.")] = None,
) -> None:
    """Print the OpenAPI document."""
    from service.contract import contract_text

    text = contract_text()
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text)


@cli.command("settings")
def settings_command() -> None:
    """Print the table of settings, as in docs/operating.md."""
    from service.settings_table import table

    sys.stdout.write(table())


def main() -> None:
    """Run the command line."""
    cli()
