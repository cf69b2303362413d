"""Reliability diagrams before and after: naive, Algorithm 1, projection, correctness."""

import numpy as np

from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, finite, ran, unless_empty
from service.domain.study.readings import NAIVE, STANDARD, Algorithm1Reading, Setting
from service.spectral.reliability import ConsistencyBand, ReliabilityDiagram
from service.spectral.residual_null import Null

NAIVE_TITLE = "Naive reliability diagram, before and after"
ALGORITHM1_TITLE = "Algorithm 1 reliability diagram, before and after"
NO_CLUSTERS = "No cluster has two members: too few test prompts, or too few whose answers are alike."


def naive(bench: Bench) -> Experiment:
    """Return the diagram with one cluster per bin."""
    return _algorithm1("naive_diagram", NAIVE_TITLE, bench, NAIVE)


def algorithm1_diagram(bench: Bench) -> Experiment:
    """Return the paper's diagram, B = 8 and C = 5, with both of its nulls."""
    return _algorithm1("algorithm1_diagram", ALGORITHM1_TITLE, bench, STANDARD)


def _algorithm1(name: str, title: str, bench: Bench, setting: Setting) -> Experiment:
    points: list[TableRow] = []
    headline: TableRow = {"bins": setting[0], "clusters": setting[1]}
    for map_name in bench.served:
        one = bench.algorithm1(map_name, setting)
        rows = diagram_rows(map_name, one.diagram, len(bench.test), one.nulls.drawn.band)
        points += [{**row, **more} for row, more in zip(rows, cluster_rows(one), strict=True)]
        headline |= reading_columns(map_name, one)
    return unless_empty(ran(name, title, headline, points), NO_CLUSTERS, "observed")


def projection(bench: Bench) -> Experiment:
    """Return the projection diagram (ours) with its residual null: bands, and a p-value of the ECE."""
    points: list[TableRow] = []
    headline: TableRow = {}
    for name, one in bench.projection.items():
        points += diagram_rows(name, one.diagram, len(bench.test), one.null.band)
        headline |= ece_columns(name, one.diagram.ece, one.null.band) | null_columns(name, one.null)
        headline[f"{name}_brier"] = one.brier
    title = "Projection reliability with its null"
    return ran("projection_reliability", title, headline, points)


def correctness(bench: Bench) -> Experiment:
    """Return lambda_max against the share of right answers."""
    points: list[TableRow] = []
    headline: TableRow = {"accuracy": float(bench.test.labels.right.mean())}
    for name, one in bench.correctness.items():
        points += diagram_rows(name, one.diagram, len(bench.test), one.band)
        headline |= ece_columns(name, one.diagram.ece, one.band)
    return ran("correctness_diagram", "Correctness diagram, before and after", headline, points)


def diagram_rows(
    name: str, diagram: ReliabilityDiagram, size: int, band: ConsistencyBand | None
) -> list[TableRow]:
    """Return the bins of a diagram as rows, bins without a target included."""
    bins = range(diagram.mass.size)
    return [
        {
            "map": name,
            "lower": float(diagram.edges[b]),
            "upper": float(diagram.edges[b + 1]),
            "count": round(float(diagram.mass[b]) * size),
            "predicted": finite(diagram.mean_predicted[b]),
            "observed": finite(diagram.mean_target[b]),
            "band_low": finite(band.low[b]) if band else None,
            "band_high": finite(band.high[b]) if band else None,
        }
        for b in bins
    ]


def ece_columns(prefix: str, ece: float, band: ConsistencyBand) -> TableRow:
    """Return an ECE and its band under perfect calibration as columns."""
    return {
        f"{prefix}_ece": finite(ece),
        f"{prefix}_band_mean": finite(band.ece_mean),
        f"{prefix}_band_low": finite(band.ece_low),
        f"{prefix}_band_high": finite(band.ece_high),
    }


def null_columns(prefix: str, null: Null) -> TableRow:
    """Return the p-value and the number of draws of a null as columns; its band is in other columns."""
    return {f"{prefix}_p_value": finite(null.p_value), f"{prefix}_draws": null.band.num_draws}


def reading_columns(prefix: str, one: Algorithm1Reading) -> TableRow:
    """Return Algorithm 1 as columns: ECE, both nulls, clusters used and their sizes, prompts left alone.

    `_band_*`, `_p_value`: references drawn as eigenvectors. `_rescaled_*`: real references, rescaled.
    """
    drawn, rescaled, sizes = one.nulls.drawn, one.nulls.rescaled, one.clusters.cluster_sizes
    return {
        **ece_columns(prefix, one.diagram.ece, drawn.band),
        **null_columns(prefix, drawn),
        f"{prefix}_rescaled_mean": finite(rescaled.band.ece_mean),
        f"{prefix}_rescaled_low": finite(rescaled.band.ece_low),
        f"{prefix}_rescaled_high": finite(rescaled.band.ece_high),
        **null_columns(f"{prefix}_rescaled", rescaled),
        f"{prefix}_singletons": one.clusters.singletons,
        f"{prefix}_clusters": int(sizes.size),
        f"{prefix}_cluster_size_least": int(sizes.min()) if sizes.size else None,
        f"{prefix}_cluster_size_median": float(np.median(sizes)) if sizes.size else None,
        f"{prefix}_cluster_size_most": int(sizes.max()) if sizes.size else None,
    }


def cluster_rows(one: Algorithm1Reading) -> list[TableRow]:
    """Return the columns of each bin that diagram rows lack: the second null, cluster sizes, singletons."""
    band, clusters = one.nulls.rescaled.band, one.clusters
    in_bin = np.bincount(clusters.bins, minlength=clusters.mass.size)
    return [
        {
            "rescaled_low": finite(band.low[b]),
            "rescaled_high": finite(band.high[b]),
            "cluster_sizes": " ".join(str(members.size) for members in groups),
            "singletons": int(in_bin[b] - sum(members.size for members in groups)),
        }
        for b, groups in enumerate(clusters.clusters)
    ]
