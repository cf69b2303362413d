"""The command line: `python -m demo` shows the service, `python -m demo serve` serves the LLM alone."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from demo.tour import LLM_PORT, Demo, DemoError, run, set_defaults

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@cli.callback(invoke_without_command=True)
def demo_command(
    context: typer.Context,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop what an earlier run has left.")] = False,
) -> None:
    """Start an LLM server and the service in the background, make a first calibration, score prompts.

    With EIGENCAL_LLM_URL the service uses the LLM server there, and no other is started.
    """
    if context.invoked_subcommand is not None:
        return
    from service.cli import load_settings

    with_llm = set_defaults()
    settings = load_settings()
    demo = Demo(settings.data_dir, settings.host, settings.port)
    try:
        if stop:
            typer.echo("Stopped." if demo.stop() else "Nothing was running.")
        else:
            key = settings.admin_key.get_secret_value() or settings.score_key.get_secret_value()
            run(demo, with_llm=with_llm, key=key, to_know=settings.get_to_know)
    except (DemoError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. What has started keeps running. To stop it: make stop", err=True)
        raise typer.Exit(130) from None


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = LLM_PORT,
    data_dir: Annotated[
        Path, typer.Option(envvar="EIGENCAL_DATA_DIR", help="Folder that has the folder of weights.")
    ] = Path("data"),
) -> None:
    """Serve SmolLM2-135M-Instruct by OpenAI's API, without a key."""
    # torch reads it on import. By default its waiting threads spin and slow the service down.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import uvicorn

    from demo.model import Model
    from demo.server import LLMServer
    from service.llm.weights import WeightsError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        model = Model.load(data_dir / "weights")
    except (WeightsError, OSError) as error:
        typer.echo(f"Cannot start: {error}", err=True)
        raise typer.Exit(2) from None
    app = LLMServer(model).app()
    uvicorn.run(app, host=host, port=port, access_log=False, timeout_graceful_shutdown=3)


if __name__ == "__main__":
    cli()
