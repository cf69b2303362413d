"""The page of a calibration's report.

It is a self-contained HTML file: no scripts, no external resources, inline SVG. All text is escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.calibration.diagnostics import sizes
from service.report import plots, words
from service.report.words import MISSING, Part, between, in_short, number
from service.scoring.judge import percent

TEMPLATES = Path(__file__).parent / "templates"


def page(template: str, context: Mapping[str, Any], folder: Path = TEMPLATES) -> str:
    """Return the page of a template that extends `base.html`. All text of the context is escaped.

    folder: the folder of the template.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Exactly str: Markup, a subclass, is already HTML and is left unchanged.
        finalize=lambda value: words.visible(value) if type(value) is str else value,
    )
    templates.globals["style"] = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    templates.globals["maps"] = words.MAPS
    templates.filters.update(
        number=number,
        share=words.share,
        percent=percent,
        between=between,
        when=words.when,
        counted=words.count,
        typeset=words.typeset,
        why_none=why_none,
    )
    return templates.get_template(template).render(context)


ROWS_ADVISED = 300  # docs/calibrating.md: with 300 rows, the worst of many fits is as good as the mean


def render(report: Part) -> str:
    """Return the page of a report in about a second. Equal reports give equal pages.

    `now` and `verdicts` are part of the report, as the route sends them.
    """
    calibration, data, method = report["calibration"], report["data"], report["calibration"]["method"]
    context = {
        **report,
        **figures_context(report, method, report["opening"]["num_samples"]),
        "judged_on": words.count(data["rows_full"], "held-out prompt"),
        "title": calibration["name"].strip() or calibration["id"],
        "right_by": words.LABELLED[data["correct_from"]],
        "eps": calibration["eps"],
        "fingerprint": words.fingerprint_rows(calibration["fingerprint"]),
        "summary": [*in_short(report["served"], method), *_to_do(report)],
        "state": _state(report),
        "parameters": report.get("evidence_parameters") or report["parameters"],
        "decided": _decided(report),
        "rules": words.RULES,
    }
    return page("report.html", context)


def figures_context(figures: Part, method: str, recommended: int | None) -> dict[str, Any]:
    """Return the context of `figures.html` for a report or an evaluation. method: the map to mark."""
    return {
        "method": method,
        "origins": words.ORIGINS,
        "lines": compare(figures["served"]),
        "recommended": recommended,
        "by_answers": _by_answers(figures["answers"]["rows"]),
        "diagrams": _projections(figures),
    }


def _projections(figures: Part) -> list[str]:
    """Return the projection diagrams as SVG, one per map. They contain no text from callers."""
    notes = {row["map"]: f"projection ECE {number(row['projection_ece'])}" for row in figures["served"]}
    return [
        plots.reliability("projection", name, bins, "share of the reference", notes[name], to_diagonal=True)
        for name, bins in figures["projection"].items()
    ]


# The maps side by side.

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


def null_words(null: Part) -> str:
    """Return the band and the p-value of a null in words."""
    if null["mean"] is None:
        return "unknown"
    return f"{between(null) or 'unknown'}, {words.p_words(null['p_value'])}"


CORRECT_BY = {
    "evidence": "P(correct), with log-probabilities",
    "depolarized": "P(correct), without",
}


def _by_answers(rows: Sequence[Part]) -> dict[str, Any]:
    """Return the table by number of answers: headings of maps; lines with a row or None for each map."""
    by_map = {(row["num_samples"], row["map"]): row for row in rows}
    maps = [name for name in CORRECT_BY if any(row["map"] == name for row in rows)]
    tokens = {row["num_samples"]: row["tokens"] for row in rows}
    return {
        "heads": [CORRECT_BY[name] for name in maps],
        "lines": [(m, tokens[m], [by_map.get((m, name)) for name in maps]) for m in tokens],
    }


# The conclusions of a report, in sentences.


def _state(report: Part) -> str:
    now = report["now"]
    since = f" since {words.when(now['activated_at'])}" if now["activated_at"] else ""
    return f"Active now{since}" if now["active"] else "Not active now"


def _to_do(report: Part) -> Iterator[str]:
    """Yield advice on closing a gap: another map without a gap, if there is one, or other rows."""
    shown = {row["map"]: not words.off(row["projection_null"]["p_value"]) for row in report["served"]}
    if shown[report["calibration"]["method"]]:
        return
    named = ", ".join(f"{words.MAPS[name]} (method={name})" for name in report["fits"] if shown[name])
    instead = f"calibrate with a map that shows no gap here: {named}; or " if named else ""
    more = f"{ROWS_ADVISED} rows or more, " if report["data"]["rows_full"] < ROWS_ADVISED else "rows "
    yield (
        f"To close it: {instead}calibrate on {more}drawn at random from what callers ask, with references in "
        "the words of the model."
    )


# P(correct), and the promises of thresholds on it.

FEATURES = {
    "agreement": "agreement of the answers",
    "logit_probability": "probability of the claim",
    "entropy": "entropy",
    "fact_log_probability": "log-probability of its facts",
    "least_log_probability": "least likely token of its facts",
    "log_probability": "log-probability of all its tokens",
}


def _decided(report: Part) -> Mapping[str, Any]:
    """Return the context of the sections on P(correct), with rows for selected numbers of answers."""
    part, recommended = report["correctness"], report["opening"]["num_samples"]
    full = next(row for row in part["by_num_samples"] if row["num_samples"] == part["num_samples"])
    # The page compares these numbers of answers; the JSON has all of them.
    compared = {0, *sizes(part["num_samples"]), recommended}
    rows = [row for row in part["by_num_samples"] if row["num_samples"] in compared]
    promised = [row for row in rows if row["promises"]]
    drawn = {}
    if part["promises"]:
        drawn = {
            "p_correct": plots.p_correct(part, report["calibration"]["method"]),
            "risk_coverage": plots.risk_coverage(part),
        }
    return {
        **part,
        "features": FEATURES,
        "full": full,
        # If no model was tried for any number, the page has a sentence instead.
        "rows": rows if any(row["log_loss"] is not None for row in part["by_num_samples"]) else [],
        "plots": drawn,
        "promised": promised,
        # A target that no number of answers reaches would be a column of dashes.
        "targets": [
            (place, promise["target_error"])
            for place, promise in enumerate(promised[0]["promises"] if promised else [])
            if any(row["promises"][place]["threshold"] is not None for row in promised)
        ],
    }


def why_none(row: Part) -> str:
    """Return the reason for a missing model as a sentence; "" if there is a model."""
    return {
        None: "",
        "one_kind": f"all answers are {'right' if row['right'] else 'wrong'}.",
        "no_better_than_base_rate": (
            "on held-out rows nothing tells right from wrong better than their share of right answers does."
        ),
    }[row["why_none"]]
