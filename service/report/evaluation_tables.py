"""The numbers behind the figures of an evaluation: CSV files, and the tables shown on the page."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.study.model import Experiment, TableRow, Value
from service.report.words import MAPS, number

# Experiments whose rows are few enough to read, and their columns.
SHOWN: dict[str, dict[str, str]] = {
    "sensitivity": {
        "map": "Map",
        "bins": "B",
        "clusters": "C",
        "ece": "Eigenvalue ECE",
        "band_low": "If perfect, from",
        "band_high": "to",
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
        "algorithm1_band_low": "If perfect, from",
        "algorithm1_band_high": "to",
        "auroc": "AUROC",
    },
    "sampling_temperature": {
        "sampling_temperature": "Sampling temperature",
        "class_share_ece": "ECE, dev",
        "mean_class_share": "Mean share of the largest class",
        "accuracy": "Accuracy, dev",
    },
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(experiment: Experiment) -> Table | None:
    """Return the table to show under a figure, if its rows are worth reading."""
    columns = SHOWN.get(experiment["name"])
    if columns is None or not experiment["ran"]:
        return None
    rows = [[cell(row[key]) for key in columns] for row in experiment["points"]]
    return Table(list(columns.values()), rows)


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
