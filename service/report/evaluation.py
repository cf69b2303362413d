"""The page of an evaluation, and its figures as files."""

from collections.abc import Callable, Mapping
from typing import Any

from service.domain.evaluation.model import Experiment, Results
from service.report import evaluation_curves as curves
from service.report import evaluation_forests as forests
from service.report import evaluation_panels as panels
from service.report.evaluation_tables import csv_text, table
from service.report.evaluation_words import READ, sentence
from service.report.page import TEMPLATES, environment
from service.report.words import LABELLED

FIGURES: dict[str, Callable[[Experiment], str]] = {
    "estimator_convergence": curves.convergence,
    "constant_predictor": curves.constant,
    "risk_and_entropy": curves.risk_and_entropy,
    "depolarized_map": curves.depolarized,
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
    "embedders": forests.embedders,
    "sampling_temperature": curves.sampling_temperature,
}


def evaluation_figures(results: Results) -> dict[str, str]:
    """Return the SVG of every experiment that ran, by name."""
    return {one["name"]: FIGURES[one["name"]](one) for one in results["experiments"] if one["ran"]}


def evaluation_tables(results: Results) -> dict[str, str]:
    """Return the CSV behind every figure, by name."""
    return {one["name"]: csv_text(one["points"]) for one in results["experiments"] if one["ran"]}


def render_evaluation(results: Results, figures: Mapping[str, str]) -> str:
    """Return the evaluation as one self-contained HTML page, with the figures of `evaluation_figures`.

    Equal results give equal pages. Every text of the results is escaped.
    """
    context = {
        **results,
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "shown": [_shown(one, figures) for one in results["experiments"]],
        "widths": {name: _width(make) for name, make in FIGURES.items()},
        "labelled": {name: LABELLED[results[name]["correct_from"]] for name in ("dev", "test")},
    }
    return environment().get_template("evaluation.html").render(context)


def _shown(experiment: Experiment, figures: Mapping[str, str]) -> dict[str, Any]:
    from markupsafe import Markup

    says, not_says = READ[experiment["name"]]
    return {
        **experiment,
        "sentence": sentence(experiment),
        "says": says,
        "not_says": not_says,
        "table": table(experiment),
        # Drawn here; names of embedders in it are escaped by the drawing library.
        "figure": Markup(figures.get(experiment["name"], "")),  # noqa: S704
    }


def _width(make: Callable[[Experiment], str]) -> str:
    return {curves.__name__: "narrow", forests.__name__: "middle"}.get(make.__module__, "")
