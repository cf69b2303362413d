"""The page of an evaluation, and its figures as files."""

from collections.abc import Callable, Mapping
from typing import Any

from service.domain.study.model import Experiment, Results
from service.report.answers import AnswersTable, answers_table
from service.report.evaluation import curves, forests, panels
from service.report.evaluation.tables import csv_text, origin_rows, table
from service.report.evaluation.words import READ, sentence
from service.report.pages import page
from service.report.words import LABELLED, typeset

PANELS: dict[str, Callable[[Experiment, str | None], str]] = {
    "projection_reliability": panels.reliability,
    "naive_diagram": panels.reliability,
    "algorithm1_diagram": panels.reliability,
    "sensitivity": panels.sensitivity,
    "similarity": panels.similarity,
    "correctness_diagram": panels.reliability,
}
FIGURES: dict[str, Callable[..., str]] = {
    "estimator_convergence": curves.convergence,
    "constant_predictor": curves.constant,
    "risk_and_entropy": curves.risk_and_entropy,
    "depolarized_map": curves.depolarized,
    "evidence_map": curves.evidence_map,
    "projection_reliability": panels.reliability,
    "naive_diagram": panels.reliability,
    "algorithm1_diagram": panels.reliability,
    "sensitivity": panels.sensitivity,
    "similarity": panels.similarity,
    "co_minimised": curves.cominimised,
    "correctness_diagram": panels.reliability,
    "auroc": forests.auroc,
    "accuracy_rejection": curves.rejection,
    "baselines": forests.baselines,
    "comparison": forests.comparison,
    "answers": curves.answers,
    "embedders": forests.embedders,
    "sampling_temperature": curves.sampling_temperature,
}


def evaluation_figures(results: Results) -> dict[str, str]:
    """Return the SVG of every experiment that ran, by name."""
    return {one["name"]: FIGURES[one["name"]](one) for one in results["experiments"] if one["ran"]}


def evaluation_tables(results: Results) -> dict[str, str]:
    """Return the CSV behind every figure, by name."""
    return {one["name"]: csv_text(one["points"]) for one in results["experiments"] if one["ran"]}


def render_evaluation(results: Results, figures: Mapping[str, str] | None = None) -> str:
    """Return the evaluation as one self-contained HTML page.

    figures: of `evaluation_figures`, where they have been drawn already; figures of several panels are drawn
    panel by panel instead, so that a phone can stack them. Equal results give equal pages. Every text of the
    results is escaped.
    """
    context = {
        **results,
        "verdict": [typeset(one) for one in results.get("verdict", [])],
        "to_know": _to_know(results),
        "origin": list(origin_rows(results["provenance"])) if "provenance" in results else [],
        "shown": [_shown(one, figures or {}) for one in results["experiments"]],
        "widths": {name: _width(make) for name, make in FIGURES.items()},
        "labelled": {name: LABELLED[results[name]["correct_from"]] for name in ("dev", "test")},
    }
    return page("evaluation.html", context)


def _to_know(results: Results) -> list[str]:
    """Return cautions, then the other warnings, each once."""
    cautions = [one["text"] for one in results.get("cautions", [])]
    return [typeset(one) for one in dict.fromkeys([*cautions, *results["warnings"]])]


def _shown(experiment: Experiment, figures: Mapping[str, str]) -> dict[str, Any]:
    from markupsafe import Markup

    says, not_says = READ[experiment["name"]]
    return {
        **experiment,
        "sentence": sentence(experiment),
        "says": says,
        "not_says": not_says,
        "table": table(experiment),
        "by_answers": _by_answers(experiment),
        # Drawn here; names of embedders in it are escaped by the drawing library.
        "figures": [Markup(svg) for svg in _figures(experiment, figures)],  # noqa: S704
    }


def _by_answers(experiment: Experiment) -> AnswersTable | None:
    if experiment["name"] != "answers" or not experiment["ran"]:
        return None
    return answers_table(
        experiment["points"], experiment["headline"], "the test file, by fits on the dev file"
    )


def _figures(experiment: Experiment, drawn: Mapping[str, str]) -> list[str]:
    name = experiment["name"]
    if not experiment["ran"]:
        return []
    if name in PANELS:
        return [PANELS[name](experiment, one) for one in panels.maps_of(experiment)]
    return [drawn.get(name) or FIGURES[name](experiment)]


def _width(make: Callable[..., str]) -> str:
    return {curves.__name__: "narrow", forests.__name__: "middle"}.get(make.__module__, "")
