"""The tables of an evaluation's page: numbers behind its figures (also as CSV), and where it comes from."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.domain.study.model import MAPS as MAP_NAMES
from service.domain.study.model import AnswersPart, Experiment, FilePart, Provenance, TableRow, Value
from service.report.words import MAPS, MISSING, fingerprint_rows, number, when

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
