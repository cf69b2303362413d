"""The page of a calibration's report.

It is a self-contained HTML file: no scripts, no external resources, inline SVG. All text is escaped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.calibration.diagnostics import sizes
from service.report import plots, words
from service.report.words import Part, between, number
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
        "state": _state(report),
        "decided": _decided(report),
        "plots": _plots(report),
        "rules": words.RULES,
    }
    return page("report.html", context)


def figures_context(figures: Part, method: str, recommended: int | None) -> dict[str, Any]:
    """Return the context of `figures.html` for a report or an evaluation. method: the map to mark."""
    return {
        "method": method,
        "origins": words.ORIGINS,
        "recommended": recommended,
        "by_answers": _by_answers(figures["answers"]["rows"]),
    }


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


def _state(report: Part) -> str:
    now = report["now"]
    since = f" since {words.when(now['activated_at'])}" if now["activated_at"] else ""
    return f"Active now{since}" if now["active"] else "Not active now"


def _plots(report: Part) -> dict[str, str]:
    """Return the plots as SVG: lambda_max and, with promises, P(correct) and risk against coverage."""
    part, method = report["correctness"], report["calibration"]["method"]
    drawn = {"projection": plots.projection(report["projection"], method)}
    if part["promises"]:
        drawn |= {"p_correct": plots.p_correct(part, method), "risk_coverage": plots.risk_coverage(part)}
    return drawn


# P(correct), and the promises of thresholds on it.

FEATURES = {
    "agreement": "agreement of the answers",
    "self_check": "self-check",
    "logit_probability": "probability of the claim",
    "entropy": "entropy",
    "fact_log_probability": "log-probability of its facts",
    "least_log_probability": "least likely token of its facts",
    "log_probability": "log-probability of all its tokens",
}


def feature(name: str, num_samples: int) -> str:
    """Return the words for a feature. A single answer agrees with itself: its log-probability counts."""
    is_alone = name == "agreement" and num_samples < 2
    return "log-probability" if is_alone else FEATURES.get(name, name)


def _decided(report: Part) -> Mapping[str, Any]:
    """Return the context of the sections on P(correct), with rows for selected numbers of answers."""
    part, recommended = report["correctness"], report["opening"]["num_samples"]
    full = next(row for row in part["by_num_samples"] if row["num_samples"] == part["num_samples"])
    # The page compares these numbers of answers; the JSON has all of them.
    compared = {0, *sizes(part["num_samples"]), recommended}
    rows = [
        {**row, "features": [feature(name, row["num_samples"]) for name in row["features"]]}
        for row in part["by_num_samples"]
        if row["num_samples"] in compared
    ]
    promised = [row for row in rows if row["promises"]]
    return {
        **part,
        "full": full,
        # If no model was tried for any number, the page has a sentence instead.
        "rows": rows if any(row["log_loss"] is not None for row in part["by_num_samples"]) else [],
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
        "no_better_than_base_rate": "on held-out rows no model beats the base rate beyond chance.",
    }[row["why_none"]]
