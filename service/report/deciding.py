"""Whether an answer is right, on the page of a report: P(correct), and what thresholds on it promise."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.domain.decider import NEEDED_OF_A_KIND, PROMISE_MEANING
from service.domain.scoring.deciding import percent
from service.domain.study.by_answers import sizes
from service.domain.study.report_model import CorrectnessAt, CorrectnessPart, PromiseAt, Report
from service.report.comparison import Head
from service.report.deciding_plots import curve, diagram
from service.report.words import MISSING, number, share
from service.spectral.correctness_model import LEAST_OF_A_KIND

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


def decided(report: Report) -> Mapping[str, Any] | None:
    """Return what the section shows; None for reports of earlier releases, which have no such part."""
    from markupsafe import Markup

    if (part := report.get("correctness")) is None:
        return None
    whole = next(row for row in part["by_num_samples"] if row["num_samples"] == part["num_samples"])
    recommended = report["opening"]["num_samples"]
    shown = _shown(part, recommended)
    found: dict[str, Any] = {
        "heads": HEADS,
        "target_heads": TARGET_HEADS,
        "num_samples": part["num_samples"],
        "confidence": share(part["confidence"]),
        "fitted": whole["fitted_right"] + whole["fitted_wrong"],
        "counted": whole["counted_right"] + whole["counted_wrong"],
        "why_none": why_none(whole),
        # Where nothing was tried for any number, one sentence says it all.
        "table": [_row(row) for row in shown] if _tried(part) else [],
        "promises": bool(part["promises"]),
        "meaning": PROMISE_MEANING,
        "reached": _reached(part["promises"], whole.get("lowest")),
        "unreached": _unreached(part, whole.get("lowest")),
        **_by_number(shown, recommended),
    }
    if not part["promises"]:
        return found
    # Ours from end to end: no text of a caller is drawn.
    drawn = {"diagram": diagram(part, report["calibration"]["method"]), "curve": curve(part)}
    return found | {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704


def _shown(part: CorrectnessPart, recommended: int | None) -> list[CorrectnessAt]:
    """Return the numbers of answers that the page compares; the JSON has every one."""
    wanted = {*sizes(part["num_samples"]), recommended}
    return [row for row in part["by_num_samples"] if row["num_samples"] in wanted]


def _tried(part: CorrectnessPart) -> bool:
    return any(row["log_loss"] is not None for row in part["by_num_samples"])


def why_none(row: CorrectnessAt) -> str:
    """Return why there is no model, as a sentence; "" where there is one."""
    right, wrong = row["fitted_right"], row["fitted_wrong"]
    if row["why_none"] == "one_kind":
        return f"all answers of the rows that would fit it are {'right' if right else 'wrong'}."
    if row["why_none"] == "too_few_verdicts":
        counted = f"{right} right answers and {wrong} wrong ones"
        return (
            f"the half of the rows that would fit it has {counted}; it takes {LEAST_OF_A_KIND} of each, so "
            f"at least {NEEDED_OF_A_KIND} of each in the file."
        )
    if row["why_none"] == "no_better_than_base_rate":
        return (
            "on held-out rows nothing tells right from wrong better than their share of right answers does."
        )
    return ""


def _row(row: CorrectnessAt) -> dict[str, Any]:
    """Return a line of the table by number of answers, as texts."""
    low, high = row["auroc"]["low"], row["auroc"]["high"]
    takes = ", ".join(FEATURES.get(name, name) for name in row["features"])
    return {
        "num_samples": row["num_samples"],
        "log_loss": number(row["log_loss"]),
        "base_log_loss": number(row["base_log_loss"]),
        "brier": number(row["brier"]),
        "base_brier": number(row["base_brier"]),
        "auroc": number(row["auroc"]["value"]),
        "interval": "" if low is None or high is None else f"{number(low)} to {number(high)}",
        "takes": takes or f"no model: {why_none(row)}",
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
    least = lowest["target_error"] if lowest else _least(part["promises"])
    instead = f"the lowest that can is {percent(least)}" if least else "these rows are too few for any"
    with_ = f"With {part['num_samples']} answers and {share(part['confidence'])} confidence"
    return f"{with_}, an error of at most {targets} cannot be promised: {instead}."


def _least(promises: Sequence[PromiseAt]) -> float | None:
    """Return the lowest error named by reports that have no promise for it."""
    named = [one["lowest_error"] for one in promises if one["lowest_error"] is not None]
    return min(named, default=None)


def _by_number(rows: Sequence[CorrectnessAt], recommended: int | None) -> dict[str, Any]:
    """Return the table of promises by number of answers; empty in reports of earlier releases."""
    known = [row for row in rows if row.get("promises")]
    targets = [one["target_error"] for one in known[0]["promises"]] if known else []
    # A target that no number of answers reaches would be a column of dashes.
    reached = [
        i for i in range(len(targets)) if any(row["promises"][i]["threshold"] is not None for row in known)
    ]
    lines = [
        {
            "num_samples": row["num_samples"],
            "recommended": row["num_samples"] == recommended,
            "cells": [*(_answered(row["promises"][i]) for i in reached), _lowest(row.get("lowest"))],
        }
        for row in known
    ]
    heads = [Head("Answers"), *(Head(f"At most {percent(targets[i])} wrong") for i in reached), LOWEST_HEAD]
    return {"by_number": lines, "number_heads": heads}


def _answered(one: PromiseAt) -> str:
    return MISSING if one["threshold"] is None else share(one["coverage"])


def _lowest(one: PromiseAt | None) -> str:
    return MISSING if one is None else f"{share(one['coverage'])} at {percent(one['target_error'])}"
