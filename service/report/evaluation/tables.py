"""The numbers behind the figures of an evaluation: CSV files, and the tables shown on the page."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.domain.study.model import MAPS as MAP_NAMES
from service.domain.study.model import Experiment, TableRow, Value
from service.report.words import MAPS, MISSING, number

# Experiments whose rows are few enough to read, and their columns.
SHOWN: dict[str, dict[str, str]] = {
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
        "test_risk": "Test risk",
        "projection_ece": "Projection ECE",
        "algorithm1_ece": "Eigenvalue ECE",
        "algorithm1_band_low": "References drawn, from",
        "algorithm1_band_high": "to",
        "algorithm1_rescaled_low": "Rescaled, from",
        "algorithm1_rescaled_high": "to",
        "auroc": "AUROC",
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
    if isinstance(value, bool):
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
