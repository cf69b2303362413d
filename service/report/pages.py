"""The pages: a calibration's report, all calibrations, and the root of the service.

Each is one self-contained HTML file: no script, no resource from outside, inline SVG. Every text is escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from service.calibration.calibration import NEEDED_OF_A_KIND, PROMISE_MEANING
from service.report import plots, words
from service.report.first_answers import sizes
from service.report.model import (
    Bin,
    CalibrationPart,
    CorrectnessAt,
    CorrectnessPart,
    FitPart,
    PromiseAt,
    Report,
    ServedRow,
)
from service.report.tables import Head, answers_table, compare
from service.report.words import MISSING, number, share
from service.scoring.judging import percent
from service.spectral.correctness_model import MIN_OF_A_KIND

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
# What a person may want to open, and what is said of it; the rest is for programs.
OPEN = {
    "docs": "Every route, its fields and errors; try them out",
    "calibrations": "Calibrations, which of them are active, and their reports",
    "jobs": "The latest jobs (JSON), with links to what came of them",
    "ready": "Can prompts be scored? Store, embedder, LLM (JSON)",
    "metrics": "Prometheus metrics (text)",
    "openapi": "The contract (JSON)",
}
POST = {
    "score": "How uncertain is the LLM about a prompt?",
    "batch": "The same for many prompts",
    "calibrate": "Fit a calibration on labelled prompts",
    "evaluate": "Reproduce the experiments on labelled prompts",
}


def home(root: Mapping[str, Any]) -> str:
    """Return the page of the root path from its JSON: name, version, links. Every text is escaped."""
    links = root["links"]
    context = {
        **root,
        "open": [(links[name], name, description) for name, description in OPEN.items() if name in links],
        "post": [(links[name], description) for name, description in POST.items() if name in links],
    }
    return page("home.html", context)


def calibrations(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of all calibrations from their JSON, in its order. Every text is escaped."""
    return page("calibrations.html", {"calibrations": found})


def page(template: str, context: Mapping[str, Any]) -> str:
    """Return a page from its template, which extends `base.html`. Every text of the context is escaped."""
    return environment().get_template(template).render(context)


def environment() -> "Environment":
    """Return the templates: everything escaped, nothing undefined, control characters made visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Exactly str: Markup, a kind of str, is HTML already and passed as it is.
        finalize=lambda value: words.visible(value) if type(value) is str else value,
    )
    templates.globals["style"] = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    templates.filters.update(
        number=words.number, share=words.share, between=words.between, when=words.when, counted=words.count
    )
    return templates


ROWS_ADVISED = 300  # docs/calibrating.md: the worst of many fits on so many is as good as the mean


def render(report: Report) -> str:
    """Return the page of a report. Equal reports give equal pages. Takes about a second."""
    calibration, data = report["calibration"], report["data"]
    method, rows = calibration["method"], words.count(data["rows_full"], "row")
    judged_on = f"all {rows}, each judged by fits without its fold"
    advice, recommended = report["answers"]["recommendation"], report["opening"]["num_samples"]
    heads = [Head(words.MAPS[n], words.ORIGINS[n], "this one" if n == method else "") for n in _maps(report)]
    context = {
        **report,
        "job_id": report.get("job_id"),
        "verdicts": report.get("verdicts"),
        "title": calibration["name"].strip() or calibration["id"],
        "maps": words.MAPS,
        "labelled": words.LABELLED[data["correct_from"]],
        "fingerprint": words.fingerprint_rows(calibration["fingerprint"]),
        "lines": compare(report["served"]),
        "map_heads": [Head("Figure"), *heads],
        "summary": list(_summary(report)),
        "state": _state(report),
        "brier": report["decision"]["brier_difference"],
        "loss": report["decision"]["loss_difference"],
        "parameters": report.get("evidence_parameters") or report["parameters"],
        "fitted": [_fitted(calibration, name, fit) for name, fit in report["fits"].items()],
        "min_kept": plots.MIN_KEPT,
        "by_answers": answers_table(report["answers"]["rows"], advice, recommended, judged_on),
        "plots": _plots(report),
        "projection_nulls": [words.projection_words(row) for row in report["served"]],
        "algorithm1_nulls": [words.algorithm1_words(row) for row in report["served"]],
        "decided": _decided(report),
        "whys": words.WHY_RIGHT,
    }
    return page("report.html", context)


def _maps(report: Report) -> list[str]:
    return [row["map"] for row in report["served"]]


def _state(report: Report) -> str:
    """Return whether it is active: now where that is known, else when it was made."""
    now = report.get("now")
    if now is None:
        return "Activated" if report["decision"]["activated"] else "Not activated"
    since = f" since {words.when(now['activated_at'])}" if now["activated_at"] else ""
    return f"Active now{since}" if now["active"] else "Not active now"


def _summary(report: Report) -> Iterator[str]:
    """Yield what changed from raw to the map of the calibration, on held-out prompts."""
    rows = {row["map"]: row for row in report["served"]}
    raw, ours = rows["raw"], rows[report["calibration"]["method"]]
    yield _change(
        "Against raw scores, the gap between what λmax says and what is found (projection ECE)", raw, ours
    )
    yield from _verdict(report, ours)
    before, after = raw["auroc_lambda_max"]["value"], ours["auroc_lambda_max"]["value"]
    if before is None or after is None:
        yield "How well λmax tells right from wrong answers cannot be computed: there is one kind only."
    else:
        yield (
            "How well λmax tells right from wrong answers (AUROC; 0.5 is chance) goes from "
            f"{number(before)} to {number(after)}. Calibration is about what the numbers mean; "
            "it is not meant to improve this."
        )


def _verdict(report: Report, ours: ServedRow) -> Iterator[str]:
    """Yield what the projection diagnostic says of this calibration, and what to do about a gap."""
    null = ours["projection_null"]
    read = f"Calibrated scores would read {words.between(null) or words.MISSING} on these prompts"
    p_value = words.p_words(null["p_value"])
    if not words.off(null["p_value"]):
        yield f"{read} ({p_value}): this calibration {words.judgment(null['p_value'])}."
        return
    yield f"{read} ({p_value}), so a gap is left that chance does not explain. {_still_useful(report, ours)}"
    yield f"To close it: {_to_do(report)}"


def _still_useful(report: Report, ours: ServedRow) -> str:
    """Return whether a calibration with a gap may be used."""
    raw = next(row for row in report["served"] if row["map"] == "raw")
    if ours["projection_ece"] < raw["projection_ece"]:
        return (
            "It may still be used, being nearer than raw scores: take λmax as off by about "
            f"{number(ours['projection_ece'], 2)}."
        )
    return "Raw scores are no further off: better serve those than this calibration."


def _to_do(report: Report) -> str:
    """Return what may bring a calibration nearer: another map where one shows no gap, else other rows."""
    others = [
        row["map"]
        for row in report["served"]
        if row["map"] in report["fits"]
        and row["map"] != report["calibration"]["method"]
        and not words.off(row["projection_null"]["p_value"])
    ]
    named = ", ".join(f"{words.MAPS[name]} (method={name})" for name in others)
    instead = f"calibrate with a map that shows no gap here: {named}; or " if others else ""
    few = report["data"]["rows_full"] < ROWS_ADVISED
    more = f"{ROWS_ADVISED} rows or more, " if few else "rows "
    return (
        f"{instead}calibrate on {more}drawn at random from what callers ask, with references in the words of "
        "the model."
    )


def _change(what: str, raw: ServedRow, ours: ServedRow) -> str:
    before, after = number(raw["projection_ece"]), number(ours["projection_ece"])
    verb = (
        "stays" if before == after else "falls" if ours["projection_ece"] < raw["projection_ece"] else "rises"
    )
    return f"{what} {verb} {'at ' + after if before == after else f'from {before} to {after}'}."


def _fitted(calibration: CalibrationPart, name: str, fit: FitPart) -> dict[str, Any]:
    return {
        "name": words.MAPS[name],
        "origin": words.ORIGINS[name],
        "chosen": name == calibration["method"],
        "bound": ", ".join(fit["at_bound"]),
        **fit,
    }


def _plots(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    curves, rows, served = report["curves"], report["answers"]["rows"], report["served"]
    by = report["answers"]["recommended_by"]
    one = {
        "rejection": plots.rejection(curves["rejection"], report["data"]["rows_full"]),
        "temperature": plots.temperature(curves["temperature"]),
        "samples": plots.samples(curves["samples"]),
        "answers": plots.answers(rows, by, report["opening"]["num_samples"]),
    }
    if report["correctness"]["promises"]:
        one["p_correct"] = plots.p_correct(report["correctness"], report["calibration"]["method"])
        one["risk_coverage"] = plots.risk_coverage(report["correctness"])
    panels = {
        "projection": [
            _panel("projection", curves["projection"], row, "share of the reference", "projection_ece")
            for row in served
        ],
        "algorithm1": [
            _panel("algorithm1", curves["algorithm1"], row, "target of the clusters", "algorithm1_ece")
            for row in served
            if any(curves["algorithm1"].values())
        ],
        "correctness": [
            _panel("correctness", curves["correctness"], row, "share of right answers", "auroc_lambda_max")
            for row in served
        ],
    }
    # Ours from end to end: no text of a caller is drawn.
    drawn: dict[str, Any] = {name: Markup(svg) for name, svg in one.items()}  # noqa: S704
    return drawn | {kind: [Markup(svg) for svg in svgs] for kind, svgs in panels.items()}  # noqa: S704


NOTES = {"projection_ece": "projection ECE", "algorithm1_ece": "ECE", "auroc_lambda_max": "AUROC"}
Noted = Literal["projection_ece", "algorithm1_ece", "auroc_lambda_max"]


def _panel(kind: str, curves: Mapping[str, Sequence[Bin]], row: ServedRow, ylabel: str, noted: Noted) -> str:
    name, figure = row["map"], row[noted]
    value = figure["value"] if isinstance(figure, dict) else figure
    note = f"{NOTES[noted]} {number(value)}"
    return plots.reliability(kind, name, curves[name], ylabel, note, to_diagonal=kind == "projection")


FEATURES = {
    "logit_probability": "probability of the answer",
    "logit_missing_mass": "missing mass",
    "entropy": "entropy",
    "mean_log_probability": "mean log-probability",
}

HEADS = [
    Head("Answers"),
    Head("Log loss", "of the base rate; lower is better"),
    Head("Brier", "of the base rate; lower is better"),
    Head("AUROC", "95 % interval; 0.5 is chance"),
    Head("The model takes"),
    Head("Right / wrong", "fitted; counted"),
]
TARGET_HEADS = [
    Head("Wrong, at most"),
    Head("Answer from P(correct)"),
    Head("Let through"),
    Head("Wrong of these"),
]
LOWEST_HEAD = Head("At the lowest error", "that can be promised")


def _decided(report: Report) -> Mapping[str, Any]:
    """Return P(correct), and what thresholds on it promise, as texts."""
    part, recommended = report["correctness"], report["opening"]["num_samples"]
    full = next(row for row in part["by_num_samples"] if row["num_samples"] == part["num_samples"])
    # The numbers of answers that the page compares; the JSON has every one.
    compared = {*sizes(part["num_samples"]), recommended}
    rows = [row for row in part["by_num_samples"] if row["num_samples"] in compared]
    tried = any(row["log_loss"] is not None for row in part["by_num_samples"])
    return {
        "heads": HEADS,
        "target_heads": TARGET_HEADS,
        "num_samples": part["num_samples"],
        "confidence": share(part["confidence"]),
        "fitted": full["fitted_right"] + full["fitted_wrong"],
        "counted": full["counted_right"] + full["counted_wrong"],
        "why_none": why_none(full),
        # Where nothing was tried for any number, one sentence says it all.
        "table": [_correctness_row(row) for row in rows] if tried else [],
        "promises": bool(part["promises"]),
        "meaning": PROMISE_MEANING,
        "reached": _reached(part["promises"], full["lowest"]),
        "unreached": _unreached(part, full["lowest"]),
        **_by_number(rows, recommended),
    }


def why_none(row: CorrectnessAt) -> str:
    """Return why there is no model, as a sentence; "" where there is one."""
    right, wrong = row["fitted_right"], row["fitted_wrong"]
    if row["why_none"] == "one_kind":
        return f"all answers of the rows that would fit it are {'right' if right else 'wrong'}."
    if row["why_none"] == "too_few_verdicts":
        counted = f"{right} right answers and {wrong} wrong ones"
        return (
            f"the half of the rows that would fit it has {counted}; it takes {MIN_OF_A_KIND} of each, so "
            f"at least {NEEDED_OF_A_KIND} of each in the file."
        )
    if row["why_none"] == "no_better_than_base_rate":
        return (
            "on held-out rows nothing tells right from wrong better than their share of right answers does."
        )
    return ""


def _correctness_row(row: CorrectnessAt) -> dict[str, Any]:
    """Return a line of the table by number of answers, as texts."""
    features = ", ".join(FEATURES.get(name, name) for name in row["features"])
    return {
        "num_samples": row["num_samples"],
        "log_loss": number(row["log_loss"]),
        "base_log_loss": number(row["base_log_loss"]),
        "brier": number(row["brier"]),
        "base_brier": number(row["base_brier"]),
        "auroc": number(row["auroc"]["value"]),
        "interval": words.between(row["auroc"]),
        "takes": features or f"no model: {why_none(row)}",
        "fitted": f"{row['fitted_right']} / {row['fitted_wrong']}",
        "counted": f"{row['counted_right']} / {row['counted_wrong']}",
    }


def _reached(promises: Sequence[PromiseAt], lowest: PromiseAt | None) -> list[dict[str, Any]]:
    """Return the lines of the table of targets that can be promised, the lowest that can among them."""
    kept = [one for one in promises if one["threshold"] is not None]
    if lowest is not None and lowest["target_error"] not in [one["target_error"] for one in kept]:
        kept = sorted([*kept, lowest], key=lambda one: one["target_error"])
    return [_promise(one, one is lowest) for one in kept]


def _promise(one: PromiseAt, lowest: bool) -> dict[str, Any]:
    """Return a line of the table of targets, as texts."""
    return {
        "target": percent(one["target_error"]),
        "lowest": lowest,
        "threshold": number(one["threshold"]),
        "answered": f"{one['answered']:,}",
        "coverage": share(one["coverage"]),
        "wrong": f"{one['wrong']:,}",
        "share_wrong": share(one["wrong"] / one["answered"]),
    }


def _unreached(part: CorrectnessPart, lowest: PromiseAt | None) -> str:
    """Return which targets cannot be promised, in one sentence; "" where all can."""
    missed = [percent(one["target_error"]) for one in part["promises"] if one["threshold"] is None]
    if not missed:
        return ""
    targets = " or ".join([", ".join(missed[:-1]), missed[-1]] if missed[1:] else missed)
    instead = "these rows are too few for any"
    if lowest:
        instead = f"the lowest error that can be is {percent(lowest['target_error'])}"
    with_ = f"With {part['num_samples']} answers and {share(part['confidence'])} confidence"
    return f"{with_}, an error of at most {targets} cannot be promised: {instead}."


def _by_number(rows: Sequence[CorrectnessAt], recommended: int | None) -> dict[str, Any]:
    """Return the table of promises by number of answers."""
    known = [row for row in rows if row["promises"]]
    targets = [one["target_error"] for one in known[0]["promises"]] if known else []
    # A target that no number of answers reaches would be a column of dashes.
    reached = [
        i for i in range(len(targets)) if any(row["promises"][i]["threshold"] is not None for row in known)
    ]
    lines = [
        {
            "num_samples": row["num_samples"],
            "recommended": row["num_samples"] == recommended,
            "cells": [*(_answered(row["promises"][i]) for i in reached), _lowest(row["lowest"])],
        }
        for row in known
    ]
    heads = [Head("Answers"), *(Head(f"At most {percent(targets[i])} wrong") for i in reached), LOWEST_HEAD]
    return {"by_number": lines, "number_heads": heads}


def _answered(one: PromiseAt) -> str:
    return MISSING if one["threshold"] is None else share(one["coverage"])


def _lowest(one: PromiseAt | None) -> str:
    return MISSING if one is None else f"{share(one['coverage'])} at {percent(one['target_error'])}"
