"""The command line: `python -m lab evaluate DEV TEST`."""

from pathlib import Path
from typing import Annotated

import typer

from lab.baselines import TransformersEntailment
from lab.command import Components, Plan, evaluate
from service import __version__
from service.app import build_embedder, build_llm, serving_of
from service.claims.comparison import Compare
from service.cli import load_settings
from service.errors import EigencalError
from service.settings import Settings

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@cli.callback()
def main() -> None:
    """Reproduce the paper's experiments."""


@cli.command("evaluate")
def evaluate_command(
    dev: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows to fit on.")],
    test: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows to test on.")],
    out: Annotated[Path, typer.Option(help="Folder for the report and the answers drawn.")] = Path(
        "evaluation"
    ),
    embedder: Annotated[str, typer.Option(help="Embedder; default: from the settings.")] = "",
    limit: Annotated[int | None, typer.Option(min=30, help="Rows to use of each file; default: all.")] = None,
    num_samples: Annotated[
        int | None,
        typer.Option(min=2, max=256, help="Answers per prompt; default: from the files or the settings."),
    ] = None,
    entailment: Annotated[
        str,
        typer.Option(help="NLI model (folder or hub name); default: the embedder compares answers."),
    ] = "",
    compare: Annotated[
        Compare, typer.Option(help="llm: also judge the kernel by which the LLM compares answers.")
    ] = "embeddings",
    seed: Annotated[int, typer.Option(help="Seed of every resample and draw.")] = 0,
) -> None:
    """Run every experiment: fit on DEV, test on TEST. A second run resumes."""
    if dev.samefile(test):
        typer.echo(
            "Warning: DEV and TEST are the same file. A fit tested on its own rows looks too good.", err=True
        )
    plan = Plan(dev, test, out, limit, num_samples, seed, compare)
    try:
        evaluate(plan, _evaluation_components(load_settings(), embedder, entailment))
    except (EigencalError, ValueError, OSError) as error:
        typer.echo(error.detail if isinstance(error, EigencalError) else str(error), err=True)
        for bad in error.extra.get("errors", ()) if isinstance(error, EigencalError) else ():
            where = [f"line {bad['line']}" if bad["line"] else "file", *filter(None, [bad["field"]])]
            typer.echo(f"{', '.join(where)}: {bad['reason']}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. The same command resumes from here.", err=True)
        raise typer.Exit(130) from None
    typer.echo(out / "report.html")


def _evaluation_components(settings: Settings, embedder: str, entailment: str) -> Components:
    """Return the components of an evaluation. embedder: "" for the embedder of the settings."""
    return Components(
        build_llm(settings),
        build_embedder(settings.model_copy(update={"embedder": embedder or settings.embedder})),
        serving_of(settings),
        settings.llm_slots,
        TransformersEntailment(entailment) if entailment else None,
        __version__,
    )


if __name__ == "__main__":
    cli()
