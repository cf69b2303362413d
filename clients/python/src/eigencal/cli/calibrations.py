"""The commands `eigencal calibrate`, `calibrations`, `activate` and `report`."""

import json
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from eigencal import Client, Correction, InvalidSetupError
from eigencal.cli.bulk import numbered_lines
from eigencal.cli.command import Invocation
from eigencal.cli.jobs import Name, NumSamples, Seed, Watch, show_job
from eigencal.cli.output import format_cell

COLUMNS = (
    *("id", "name", "active", "applies_now", "method", "temperature", "depolarization"),
    *("num_samples", "rows", "created_at"),
)
HISTORY = ("activated_at", "calibration_id", "replaced", "by", "reason", "fingerprint_key")
Activate = Annotated[Literal["if_better", "always", "never"] | None, typer.Option(help="When to serve it.")]
CalibrationId = Annotated[str, typer.Argument(metavar="ID", help="Id of the calibration.")]


def calibrate(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(help="Labelled questions: JSONL or CSV.")],
    *,
    watch: Watch = False,
    name: Name = None,
    method: Annotated[
        Literal["auto", "depolarized", "temperature", "evidence", "both"] | None,
        typer.Option(help="The map to serve."),
    ] = None,
    unit: Annotated[
        Literal["answer", "claim"] | None,
        typer.Option(help="Whole answers, or the `claims` of long ones."),
    ] = None,
    num_samples: NumSamples = None,
    activate: Activate = None,
    drawn_by: Annotated[
        Literal["caller", "service"] | None, typer.Option(help="Who drew the samples of the rows.")
    ] = None,
    source_label: Annotated[str | None, typer.Option(help="Names the set-up that drew them.")] = None,
    seed: Seed = None,
) -> None:
    """Fit a calibration on your own labelled questions. The service serves it if it is better."""
    with invocation.client() as client:
        job = client.calibrate(
            file,
            name=name,
            method=method,
            unit=unit,
            num_samples=num_samples,
            activate=activate,
            drawn_by=drawn_by,
            source_label=source_label,
            seed=seed,
        )
        show_job(invocation, client, job, watch=watch)


def calibrations(
    invocation: Invocation,
    *,
    active: Annotated[bool, typer.Option("--active", help="Only the active ones.")] = False,
) -> None:
    """List the calibrations, latest first."""
    with invocation.client() as client:
        listed = client.active_calibrations() if active else client.calibrations()
    none = "no calibration is active" if active else "there is no calibration: eigencal calibrate fits one"
    invocation.out.table(listed, COLUMNS, none)


def history(invocation: Invocation) -> None:
    """List the activations, newest first."""
    with invocation.client() as client:
        activations = client.activations()
    invocation.out.table(activations, HISTORY, "no calibration was ever activated")


def correct(
    invocation: Invocation,
    calibration_id: CalibrationId,
    file: Annotated[
        Path, typer.Argument(help='Corrections, one a line: {"line": 12, "correct": false}, or by "id".')
    ],
    *,
    watch: Watch = False,
    activate: Activate = None,
    name: Name = None,
) -> None:
    """Calibrate again on the same rows and answers with corrected verdicts."""
    with invocation.client() as client:
        job = client.correct_rows(calibration_id, _corrections(file), activate=activate, name=name)
        show_job(invocation, client, job, watch=watch)


def _corrections(file: Path) -> list[Correction]:
    """Return the corrections of a JSON Lines file. Raises InvalidSetupError."""
    try:
        rows = [dict(json.loads(line)) for _, line in numbered_lines(str(file), file.read_bytes())]
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidSetupError(f"{file} is not a JSON object a line: {error}.") from None
    if not rows:
        raise InvalidSetupError(f"{file}: there is nothing in it.")
    return cast(list[Correction], rows)


def activate(
    invocation: Invocation,
    calibration_id: CalibrationId,
) -> None:
    """Serve with this calibration from now on; also to return to an older one."""
    with invocation.client() as client:
        activated = client.activate(calibration_id)
    invocation.out.show(activated, [f"{activated.id} is active"])


def report(
    invocation: Invocation,
    calibration_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the calibration.")],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the page (HTML) here.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Show the report of a calibration, as a page or in numbers."""
    with invocation.client() as client:
        if out is None and not open_:
            report = client.report(calibration_id)
            invocation.out.show(report, _summary(client, report))
            return
        page = client.report_page(calibration_id)
    if out is None:  # the browser may read the page after the command has ended
        out = Path(tempfile.mkdtemp(prefix="eigencal-")) / "report.html"
    out = out.resolve()
    out.write_text(page, "utf-8")
    if open_ and not webbrowser.open(out.as_uri()):
        invocation.out.note("eigencal: no browser could be started")
    invocation.out.show({"page": str(out)}, [str(out)])


def _summary(client: Client, fields: dict[str, Any]) -> Iterator[str]:
    """Yield a summary of a report in lines of text."""
    if fitted := fields.get("calibration"):
        temperature, depolarization = (format_cell(fitted.get(n)) for n in ("temperature", "depolarization"))
        yield (
            f"{fitted.get('id')} {fitted.get('name') or ''}: {fitted.get('method')}, "
            f"T = {temperature}, g = {depolarization}"
        )
    if opening := fields.get("opening"):
        yield " ".join(filter(None, (opening.get("verdict"), format_cell(opening.get("safe")))))
        yield f"promise: {format_cell(opening.get('promise'))}"
        yield f"answers to draw: {format_cell(opening.get('answers'))}"
    if rows := fields.get("data"):
        yield f"{format_cell(rows.get('usable'))} of {format_cell(rows.get('rows'))} rows were usable"
    if decided := fields.get("decision"):
        yield f"when it was fitted: {format_cell(decided.get('reason'))}"
    if fitted:
        # The report does not change with later activations.
        yield f"active now: {format_cell(client.calibration(fitted['id']).active)}"
    yield from fields.get("verdict", [])
    for warning in fields.get("warnings", []):
        yield f"note: {warning.get('text', warning) if isinstance(warning, dict) else warning}"
    yield "(--json has everything, --open the page)"
