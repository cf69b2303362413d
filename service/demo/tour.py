"""`make run`: the service on this machine with its embedded LLM: scored, calibrated, scored again.

The service stays, in the background, with its process id and log in the data folder. A second run finds the
calibration of the first. Everything printed fits into 80 columns.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.demo.background import BackgroundService, DemoError
from service.demo.calibrate import Http, calibrate, dev_data

RIGHT_AND_WRONG = 40  # `NEEDED_OF_A_KIND` of the service, with which this speaks over HTTP alone
CERTAIN = "What is the capital of France?"
UNKNOWABLE = "What is the name of my neighbour's dog?"
# Few answers, and a decision: what a caller would ask for who has to answer.
DECIDING: dict[str, Any] = {"effort": "low", "target_error": 0.4}
FIGURES = (
    ("risk (nats)", "risk"),
    ("projection ECE", "projection_ece"),
    ("projection Brier", "projection_brier"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What is started and how it is spoken to.

    key: bearer key, "" for none; recorded: whether the recorded answers are its own; setup: names what it
    draws answers with, so that another set-up is calibrated anew.
    """

    data_dir: Path
    host: str
    port: int
    key: str = ""
    recorded: bool = True
    setup: str = ""


def run(target: Target) -> None:
    """Start the service, score, calibrate, score again, say what to try next. Raises DemoError."""
    console = Console(highlight=False)
    service = BackgroundService(target.data_dir, target.host, target.port)
    if service.stop():
        console.print("Stopped the service of an earlier run.")
    with console.status("Starting the service (the first start converts the model's weights) ..."):
        service.start()
    try:
        walk(console, service.url, target)
    except httpx.TransportError as error:
        raise DemoError(f"The service no longer answers ({error}). {service.log_end()}") from None
    _say_what_next(console, service, target)


def walk(console: Console, url: str, target: Target) -> None:
    """Go through the demonstration with a service that runs. Raises DemoError, httpx.TransportError."""
    with Http(url, target.key) as http:
        raw = [_score(console, http, prompt, "none") for prompt in (CERTAIN, UNKNOWABLE)]
        for body, prompt in zip(raw, (CERTAIN, UNKNOWABLE), strict=True):
            show_score(console, prompt, body)
        drawn = "" if target.recorded else f"{target.setup} {raw[0]['model']}"
        setup = f"{drawn} {raw[0]['embedder']}"
        calibration_id = calibrate(console, http, dev_data(recorded=target.recorded, setup=setup))
        show_gain(console, http.get(f"/calibrations/{calibration_id}/report"))
        console.print("The whole report, with its plots, for your browser:")
        console.print(f"{url}/calibrations/{calibration_id}/report\n", soft_wrap=True)
        again = {p: _score(console, http, p, "active", **DECIDING) for p in (CERTAIN, UNKNOWABLE)}
        show_again(console, again)
        _say_whose(console, again[CERTAIN], calibration_id)


def _score(console: Console, http: Http, prompt: str, calibration: str, **more: Any) -> dict[str, Any]:
    with console.status("Drawing answers ..."):
        body = {"prompt": prompt, "calibration": calibration, "return": ["samples", "modes"]}
        return http.post("/score", json=body | more)


def _say_whose(console: Console, score: dict[str, Any], calibration_id: str) -> None:
    """Say so when the calibration in force is another than the one shown above."""
    in_force = (score["calibration"] or {}).get("id")
    if in_force != calibration_id:
        console.print(f"Another calibration is in force: {in_force or 'none'}.")


def _say_what_next(console: Console, service: BackgroundService, target: Target) -> None:
    console.print(f"The service goes on at {service.url}, its API is at\n{service.url}/docs.", soft_wrap=True)
    key = " -H 'Authorization: Bearer KEY' \\\n   " if target.key else ""
    body = '{"prompt": "How many legs does a spider have?", "target_error": 0.4}'
    line = f"Try:\n  curl -s {service.url}/score{key} -H 'Content-Type: application/json' \\\n    -d '{body}'"
    console.print(line, soft_wrap=True, markup=False)
    console.print(f"Its log: {service.log_file}\nStop it: make stop", soft_wrap=True)


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
    console.print(_right_or_not(report["correctness"]))
    for warning in report["warnings"]:
        console.print(f"Note: {escape(warning['text'])}")


def _right_or_not(part: dict[str, Any]) -> str:
    """Return what the report says of P(correct), or what would give it, in a line."""
    whole = part["by_num_samples"][-1]
    if whole["why_none"]:
        return (
            "No P(correct), the probability that an answer is right: that takes rows with\n"
            f"at least {RIGHT_AND_WRONG} right answers and as many wrong ones; the report says more."
        )
    log_loss, base = whole["log_loss"], whole["base_log_loss"]
    return (
        "P(correct), the probability that an answer is right: held-out log loss\n"
        f"{log_loss:.3f}, against {base:.3f} by their share of right answers alone."
    )


def _parameters(made: dict[str, Any]) -> str:
    if by := made.get("evidence"):
        a, b = by["evidence_intercept"], by["evidence_slope"]
        return f"Fitted: temperature T = {by['temperature']:.2f}, evidence a = {a:.2f}, b = {b:.2f}"
    depolarization = made["depolarization"]
    g = "" if depolarization is None else f", depolarisation g = {depolarization:.2f}"
    return f"Fitted: temperature T = {made['temperature']:.2f}{g}"


def show_again(console: Console, bodies: dict[str, dict[str, Any]]) -> None:
    """Print prompts scored with the active calibration, raw values beside the calibrated."""
    few = {body["num_samples"] for body in bodies.values()}
    drawn = " or ".join(str(number) for number in sorted(few))
    table = _table(f"The same prompts, calibrated, by {drawn} new answers (effort: low)")
    table.add_column("prompt", ratio=3)
    table.add_column("answer", ratio=2)
    table.add_column("lambda_max\nraw -> calibrated", justify="right", no_wrap=True)
    table.add_column("P(correct)\ndecision", justify="right", no_wrap=True)
    for prompt, body in bodies.items():
        raw = body["uncalibrated"]["lambda_max"] if body["calibrated"] else body["lambda_max"]
        after = f"{body['lambda_max']:.3f}" if body["calibrated"] else "raw"
        cells = escape(prompt), escape(body["answer"]), f"{raw:.3f} -> {after}", _decided(body)
        table.add_row(*cells)
    console.print(table)
    error, sure = DECIDING["target_error"], next(iter(bodies.values()))["decision"]["confidence"]
    console.print(
        f"The decision lets answers through so that, {sure:.0%} sure, at most {error:.0%} are wrong."
    )
    for text in {warning["message"] for body in bodies.values() for warning in body["warnings"]}:
        console.print(f"Note: {escape(text)}")


def _decided(body: dict[str, Any]) -> str:
    correct = body["probability_correct"]
    return f"{'none' if correct is None else f'{correct:.3f}'}\n{body['decision']['action']}"


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        show_header=show_header,
        min_width=70,
    )
