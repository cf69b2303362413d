"""The tables of an evaluation's page: numbers behind its figures (also as CSV), and where it comes from."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.evaluation import plots as curves
from service.evaluation import plots as forests
from service.evaluation import plots as panels
from service.evaluation.words import READ, sentence
from service.report.model import MAPS as MAP_NAMES
from service.report.model import DrawnAnswers as AnswersPart
from service.report.model import Experiment, FilePart, Provenance, Results, TableRow, Value
from service.report.page import AnswersTable, answers_table
from service.report.pages import page
from service.report.words import LABELLED, MAPS, MISSING, fingerprint_rows, number, typeset, when

SPLITS = {"dev": "Dev", "test": "Test"}
ANSWERS = {"file": "answers as the file has them", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}
UNKNOWN = "not told: the answers came with the files"

# Experiments whose rows are few enough to read, and their columns.
SHOWN: dict[str, dict[str, str]] = {
    "evidence_map": {
        "missing_mass": "Missing mass u, mean",
        "count": "Prompts",
        "depolarization": "g, mean",
        "test_risk_evidence": "Test risk, evidence",
        "test_risk_depolarized": "depolarized",
    },
    "sensitivity": {
        "map": "Map",
        "bins": "B",
        "clusters": "C",
        "ece": "Eigenvalue ECE",
        "band_low": "References drawn, from",
        "band_high": "to",
        "rescaled_low": "Rescaled, from",
        "rescaled_high": "to",
    },
    "auroc": {
        "map": "Map",
        "score": "Score",
        "auroc": "AUROC",
        "low": "95 % from",
        "high": "to",
        "standard_error": "Standard error",
        "rejection_area": "Rejection area",
    },
    "baselines": {
        "score": "Score",
        "note": "How",
        "auroc": "AUROC",
        "low": "95 % from",
        "high": "to",
        "rejection_area": "Rejection area",
    },
    "comparison": {
        "figure": "Figure",
        "second": "Map",
        "first": "minus",
        "difference": "Difference",
        "low": "95 % from",
        "high": "to",
        "real": "Leaves out 0",
    },
    "embedders": {
        "embedder": "Embedder",
        "map": "Map",
        "temperature": "T",
        "depolarization": "g",
        "intercept": "a",
        "slope": "b",
        "test_risk": "Test risk",
        "projection_ece": "Projection ECE",
        "projection_band_low": "If calibrated, from",
        "projection_band_high": "to",
        "algorithm1_ece": "Eigenvalue ECE",
        "algorithm1_band_low": "References drawn, from",
        "algorithm1_band_high": "to",
        "algorithm1_rescaled_low": "Rescaled, from",
        "algorithm1_rescaled_high": "to",
        "auroc": "AUROC",
        "auroc_low": "95 % from",
        "auroc_high": "to",
    },
    "sampling_temperature": {
        "sampling_temperature": "Sampling temperature",
        "class_share_ece": "ECE, dev",
        "mean_class_share": "Mean share of the largest class",
        "accuracy": "Accuracy, dev",
    },
}


# Experiments told by map, from the headline: a heading, and the keys that make a cell ("{}": a figure).
BY_MAP: dict[str, dict[str, tuple[str, ...]]] = {
    "projection_reliability": {
        "Projection ECE": ("{}", "ece"),
        "Calibrated scores read": ("{} ({} to {})", "band_mean", "band_low", "band_high"),
        "p": ("{}", "p_value"),
    },
    "algorithm1_diagram": {
        "Eigenvalue ECE": ("{}", "ece"),
        "a: references drawn": ("{} ({} to {})", "band_mean", "band_low", "band_high"),
        "p, a": ("{}", "p_value"),
        "b: real ones, rescaled": ("{} ({} to {})", "rescaled_mean", "rescaled_low", "rescaled_high"),
        "p, b": ("{}", "rescaled_p_value"),
        "Clusters": ("{}", "clusters"),
        "Prompts in a cluster": ("{} to {}", "cluster_size_least", "cluster_size_most"),
        "median": ("{:g}", "cluster_size_median"),
        "Prompts alone, ignored": ("{}", "singletons"),
    },
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(experiment: Experiment) -> Table | None:
    """Return the table to show under a figure, if its rows are worth reading."""
    if not experiment["ran"]:
        return None
    if experiment["name"] in BY_MAP:
        return _by_map(experiment, BY_MAP[experiment["name"]])
    columns = SHOWN.get(experiment["name"])
    if columns is None:
        return None
    rows = [[cell(row.get(key)) for key in columns] for row in experiment["points"]]
    return Table(list(columns.values()), rows)


def _by_map(experiment: Experiment, columns: Mapping[str, tuple[str, ...]]) -> Table:
    """Return one row per map of the headline; what results of earlier releases lack is an em dash."""
    found = experiment["headline"]
    names = [name for name in MAP_NAMES if f"{name}_ece" in found]
    rows = [[MAPS[name], *(_told(found, name, *column) for column in columns.values())] for name in names]
    return Table(["Map", *columns], rows)


def _told(headline: TableRow, name: str, form: str, *keys: str) -> str:
    values = [headline.get(f"{name}_{key}") for key in keys]
    if all(value is None for value in values):
        return MISSING
    return form.format(*(value if ":" in form else cell(value) for value in values))


def cell(value: Value) -> str:
    """Return a value as a cell of a table."""
    if isinstance(value, bool):  # before int, which a bool is
        return "yes" if value else "no"
    if isinstance(value, str):
        return MAPS.get(value, value.replace("lambda_max", "λmax").replace("_", " "))
    return str(value) if isinstance(value, int) else number(value)


def csv_text(rows: Sequence[TableRow]) -> str:
    """Return rows as CSV, full precision, an empty cell for null; "" for no rows."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def origin_rows(provenance: Provenance) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of everything that is known."""
    for split, name in SPLITS.items():
        yield f"{name} file", _file(provenance["files"][split])
    yield from _answers(provenance["answers"])
    for one in provenance["embedders"]:
        told = f"revision {one['revision']}, d = {one['dimension']}, {one['precision']}"
        yield "Embedder", f"{one['name']} ({told})"
    yield "Null eigenvalue eps", f"{provenance['eps']:g}"
    yield "Made", f"{when(provenance['created_at'])} by Eigencal {provenance['version']}".rstrip()


def _file(file: FilePart) -> str:
    name = file["name"] or "an upload"
    known = [name, f"SHA-256 {file['sha256']}"] if file["sha256"] else [name]
    return ", ".join([*known, ANSWERS[file["answers_from"]]])


def _answers(answers: AnswersPart | None) -> Iterator[tuple[str, str]]:
    if answers is None:
        yield "Language model", UNKNOWN
        return
    model, told = answers["model"] or answers["answered_as"], answers["answered_as"]
    yield "Language model", f"{model}, which answered as {told}" if told not in ("", model) else model
    for kind, setup in answers["setups"].items():
        for name, value in fingerprint_rows(setup):
            yield f"{name} ({KINDS[kind]})" if len(answers["setups"]) > 1 else name, value


# The page of an evaluation, and its figures as files.

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
