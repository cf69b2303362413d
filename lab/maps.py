"""The maps side by side, on prompts that they were not fitted on: figures, sentences and the table."""

from collections.abc import Iterator, Sequence
from typing import Any

from lab.two_files import TwoFiles
from service.report.report import bins, projection
from service.report.words import MAPS, MISSING, Part, between, finite, number, ranking
from service.spectral.reliability import Null, projection_brier

LEVEL = 0.05  # significance level of a null's p-value


def served_figures(context: TwoFiles, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures of one map, and the bins of its projection diagram.

    Lower = better, except for the AUROCs (right against wrong). risk: "raw" gives null eigenvalues 0, which
    would make its risk infinite; eps replaces them. An ECE is above 0 even under calibration: compare it with
    its null. projection_null: resamples residuals of similar prompts.
    """
    served, split = context.served(name), context.test
    right = split.rows.right
    diagram, null = projection(context, name)
    row = {
        "map": name,
        "risk": float(served.risks.mean()),
        "projection_ece": diagram.ece,
        "projection_brier": projection_brier(served.lambda_max, split.c1),
        "auroc_lambda_max": ranking(context.picks, served.lambda_max, right),
        "auroc_entropy": ranking(context.picks, -served.entropy, right),
        "mean_lambda_max": float(served.lambda_max.mean()),
        "mean_entropy": float(served.entropy.mean()),
        "projection_null": null_part(null),
    }
    return row, bins(diagram, len(split), null.band)


def null_part(null: Null) -> dict[str, Any]:
    """Return the value of a figure under calibration: mean and 95 % band over `draws` simulated worlds.

    p_value: (1 + worlds with at least the observed value) / (1 + draws).
    """
    band = null.band
    return {
        "mean": finite(band.ece_mean),
        "low": finite(band.ece_low),
        "high": finite(band.ece_high),
        "p_value": finite(null.p_value),
        "draws": band.num_draws,
    }


def null_words(null: Part) -> str:
    """Return the band and the p-value of a null in words."""
    if null["mean"] is None:
        return "unknown"
    return f"{between(null) or 'unknown'}, {p_words(null['p_value'])}"


def p_words(p_value: float | None) -> str:
    """Return "p = 0.042" without a line break, or "p unknown" for None. With D draws, p >= 1 / (1 + D)."""
    return "p unknown" if p_value is None else f"p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{number(p_value)}"


def judgment(p_value: float | None) -> str:
    """Return the verdict of a p-value on a map, as a predicate. A large one is no proof of calibration."""
    if p_value is None:
        return "cannot be judged"
    return "is off by more than chance" if p_value <= LEVEL else "shows no miscalibration"


def in_short(served: Sequence[Part], method: str) -> Iterator[str]:
    """Yield sentences that compare a map with raw scores."""
    rows = {row["map"]: row for row in served}
    raw, ours = rows["raw"], rows[method]
    before, after = number(raw["projection_ece"]), number(ours["projection_ece"])
    verb = "falls" if ours["projection_ece"] < raw["projection_ece"] else "rises"
    change = f"stays at {after}" if before == after else f"{verb} from {before} to {after}"
    yield f"Compared with raw scores, the gap between λmax and the observed share (projection ECE) {change}."
    null = ours["projection_null"]
    read = f"Calibrated scores would have a gap of {between(null) or MISSING} on these prompts"
    yield f"{read} ({p_words(null['p_value'])}): {MAPS[method]} {judgment(null['p_value'])}."
    ranked = [row["auroc_lambda_max"]["value"] for row in (raw, ours)]
    if None in ranked:
        yield "The AUROC of λmax cannot be computed: all answers are right, or all are wrong."
    else:
        yield (
            "The AUROC of λmax (right against wrong answers; 0.5 is chance) changes from "
            f"{number(ranked[0])} to {number(ranked[1])}; calibration is not meant to improve it."
        )


# The table.

NO_CLASSES = "all answers right, or all wrong"
# Name, which value is better, field of a row, and why it may be missing.
COMPARED = (
    ("Risk, in nats", "lower", "risk", ""),
    ("Projection ECE", "lower", "projection_ece", ""),
    ("Projection Brier", "lower", "projection_brier", ""),
    ("AUROC of λmax", "higher", "auroc_lambda_max", NO_CLASSES),
    ("AUROC of −entropy", "higher", "auroc_entropy", NO_CLASSES),
    ("Mean λmax", "", "mean_lambda_max", ""),
    ("Mean entropy, in nats", "", "mean_entropy", ""),
)


def compare(rows: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the lines of the table: name, `better`, and a cell for each map: text, small, best.

    small: the interval, the null, or the reason for a missing figure. Figures that are equal as written are
    all marked best, unless all figures are equal.
    """
    lines = []
    for name, better, field, why_missing in COMPARED:
        values = [_value(row, field) for row in rows]
        # Compared as written: digits that are rounded away make no figure the best.
        written = [number(value) for value in values]
        figures = [value for value in values if value is not None]
        best = None
        if figures and better and len(set(written)) > 1:
            best = number(min(figures) if better == "lower" else max(figures))
        cells = [
            {
                "text": text,
                "small": why_missing if text == MISSING else _small(row, field),
                "best": text == best,
            }
            for text, row in zip(written, rows, strict=True)
        ]
        lines.append({"name": name, "better": better, "cells": cells})
    return lines


def _value(row: Part, field: str) -> float | None:
    figure = row[field]
    value: float | None = figure["value"] if isinstance(figure, dict) else figure
    return value


def _small(row: Part, field: str) -> str:
    if field == "projection_ece":
        return f"if calibrated: {null_words(row['projection_null'])}"
    interval = between(row[field]) if isinstance(row[field], dict) else ""
    return interval and f"({interval})"
