"""Reliability diagrams before and after: naive, Algorithm 1, projection, correctness."""

from service.domain.study.bench import Bench, Served
from service.domain.study.experiments.reliability import (
    NAIVE,
    NO_CLUSTERS,
    STANDARD,
    Readings,
    Setting,
    cluster_rows,
    diagram_rows,
    ece_columns,
    null_columns,
    reading_columns,
)
from service.domain.study.model import Experiment, TableRow, ran, unless_empty
from service.spectral.reliability import (
    ReliabilityDiagram,
    label_band,
    projection_brier,
    projection_reliability,
    reliability_diagram,
)
from service.spectral.residual_null import projection_null

NAIVE_TITLE = "Naive reliability diagram, before and after"
ALGORITHM1_TITLE = "Algorithm 1 reliability diagram, before and after"


def naive(bench: Bench, readings: Readings) -> Experiment:
    """Return the diagram with one cluster per bin."""
    return _algorithm1("naive_diagram", NAIVE_TITLE, bench, readings, NAIVE)


def algorithm1_diagram(bench: Bench, readings: Readings) -> Experiment:
    """Return the paper's diagram, B = 8 and C = 5, with both of its nulls."""
    return _algorithm1("algorithm1_diagram", ALGORITHM1_TITLE, bench, readings, STANDARD)


def _algorithm1(name: str, title: str, bench: Bench, readings: Readings, setting: Setting) -> Experiment:
    points: list[TableRow] = []
    headline: TableRow = {"bins": setting[0], "clusters": setting[1]}
    for map_name in bench.served:
        one = readings.get(map_name, setting)
        rows = diagram_rows(map_name, one.diagram, len(bench.test), one.band)
        points += [{**row, **more} for row, more in zip(rows, cluster_rows(one), strict=True)]
        headline |= reading_columns(map_name, one)
    return unless_empty(ran(name, title, headline, points), NO_CLUSTERS, "observed")


def projection(bench: Bench) -> Experiment:
    """Return the projection diagram (ours) with its residual null: bands, and a p-value of the ECE."""
    points: list[TableRow] = []
    headline: TableRow = {}
    for name, served in bench.served.items():
        diagram = projection_reliability(served.lambda_max, bench.test.c1)
        null = projection_null(served.lambda_max, bench.test.c1, bench.rng(7))
        points += diagram_rows(name, diagram, len(bench.test), null.band)
        headline |= ece_columns(name, diagram.ece, null.band) | null_columns(name, null)
        headline[f"{name}_brier"] = projection_brier(served.lambda_max, bench.test.c1)
    title = "Projection reliability with its null"
    return ran("projection_reliability", title, headline, points)


def correctness(bench: Bench) -> Experiment:
    """Return lambda_max against the share of right answers."""
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(bench.test.labels.right.mean())}
    for name, served in bench.served.items():
        diagram = _correctness(bench, served)
        band = label_band(served.lambda_max, bench.rng(8))
        points += diagram_rows(name, diagram, len(bench.test), band)
        headline |= ece_columns(name, diagram.ece, band)
    return ran("correctness_diagram", "Correctness diagram, before and after", headline, points)


def _correctness(bench: Bench, served: Served) -> ReliabilityDiagram:
    return reliability_diagram(served.lambda_max, bench.test.labels.right)
