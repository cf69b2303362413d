"""What the demonstration prints; everything fits into 80 columns."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

FIGURES = (
    ("risk (nats)", "risk"),
    ("projection ECE", "projection_ece"),
    ("projection Brier", "projection_brier"),
)


def show_score(console: Console, prompt: str, body: dict[str, Any]) -> None:
    """Print one raw score."""
    counts = Counter(body["samples"]).most_common(4)
    drawn = ", ".join(f"{text or '(empty)'} x{count}" for text, count in counts)
    rest = body["num_distinct"] - len(counts)
    table = _table(prompt, show_header=False)
    table.add_column(width=29)
    table.add_column(width=40)
    table.add_row("answer", escape(body["answer"]))
    table.add_row("lambda_max (confidence, 0..1)", f"{body['lambda_max']:.3f}")
    table.add_row("entropy (uncertainty, nats)", f"{body['entropy']:.3f}")
    table.add_row("calibrated", "yes" if body["calibrated"] else "no: raw values")
    more = f", {rest} more" if rest > 0 else ""
    table.add_row(f"{body['num_samples']} answers drawn", escape(drawn) + more)
    table.add_row("time", f"{body['timings_ms']['total'] / 1000:.1f} s")
    console.print(table)


def show_gain(console: Console, report: dict[str, Any]) -> None:
    """Print what a calibration does to questions that it was not fitted on, from its report."""
    made = report["calibration"]
    served = {row["map"]: row for row in report["served"]}
    table = _table("On held-out questions (lower is better)")
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="left" if not heading else "right")
    for label, name in FIGURES:
        table.add_row(label, f"{served['raw'][name]:.3f}", f"{served[made['method']][name]:.3f}")
    console.print(table)
    console.print(_parameters(made))
    for warning in report["warnings"]:
        console.print(f"Note: {escape(warning['text'])}")


def _parameters(made: dict[str, Any]) -> str:
    depolarization = made["depolarization"]
    g = "" if depolarization is None else f", depolarisation g = {depolarization:.2f}"
    return f"Fitted: temperature T = {made['temperature']:.2f}{g}"


def show_again(console: Console, bodies: dict[str, dict[str, Any]]) -> None:
    """Print prompts scored with the active calibration, raw values beside the calibrated."""
    table = _table("The same prompts, with new answers, calibrated")
    table.add_column("prompt", ratio=3)
    table.add_column("answer", ratio=2)
    table.add_column("lambda_max\nraw -> calibrated", justify="right", no_wrap=True)
    for prompt, body in bodies.items():
        raw = body["uncalibrated"]["lambda_max"] if body["calibrated"] else body["lambda_max"]
        after = f"{body['lambda_max']:.3f}" if body["calibrated"] else "raw"
        table.add_row(escape(prompt), escape(body["answer"]), f"{raw:.3f} -> {after}")
    console.print(table)
    for text in {warning["message"] for body in bodies.values() for warning in body["warnings"]}:
        console.print(f"Note: {escape(text)}")


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        show_header=show_header,
        min_width=70,
    )
