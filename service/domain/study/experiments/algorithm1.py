"""How far to believe Algorithm 1: how it depends on its settings, and how alike what it averages is."""

import numpy as np

from service.domain.study.bench import Bench
from service.domain.study.experiments.reliability import NO_CLUSTERS
from service.domain.study.model import Experiment, TableRow, finite, ran, unless_empty
from service.domain.study.readings import GRID
from service.spectral.algorithm1 import Clustering

SENSITIVITY, SENSITIVITY_TITLE = "sensitivity", "Sensitivity of Algorithm 1 to bins B and clusters C"
SIMILARITY, SIMILARITY_TITLE = "similarity", "Similarity of density matrices within bins and within clusters"


def sensitivity(bench: Bench) -> Experiment:
    """Return the eigenvalue ECE and the bands of both nulls for every map and setting."""
    points: list[TableRow] = []
    for name in bench.served:
        for bins, clusters in GRID:
            one = bench.algorithm1(name, (bins, clusters))
            drawn, rescaled = one.nulls.drawn.band, one.nulls.rescaled.band
            points.append(
                {
                    "map": name,
                    "bins": bins,
                    "clusters": clusters,
                    "ece": finite(one.diagram.ece),
                    "band_mean": finite(drawn.ece_mean),
                    "band_low": finite(drawn.ece_low),
                    "band_high": finite(drawn.ece_high),
                    "rescaled_low": finite(rescaled.ece_low),
                    "rescaled_high": finite(rescaled.ece_high),
                }
            )
    return unless_empty(ran(SENSITIVITY, SENSITIVITY_TITLE, _ranges(points), points), NO_CLUSTERS, "ece")


def _ranges(points: list[TableRow]) -> TableRow:
    headline: TableRow = {}
    for name in dict.fromkeys(str(p["map"]) for p in points):
        found = [p["ece"] for p in points if p["map"] == name]
        eces = [ece for ece in found if isinstance(ece, float)]
        headline[f"{name}_least"] = min(eces, default=None)
        headline[f"{name}_most"] = max(eces, default=None)
    return headline


def similarity(bench: Bench) -> Experiment:
    """Return mean Frobenius cosines of pairs, bin by bin, for B = 8 and C = 5."""
    points: list[TableRow] = []
    headline: TableRow = {"all_pairs": _all_pairs(bench)}
    for name in bench.served:
        clusters = bench.algorithm1(name).clusters
        points += _rows(name, clusters)
        headline[f"{name}_within_bin"] = _mean(clusters.bin_similarity)
        headline[f"{name}_within_cluster"] = _mean(clusters.cluster_similarity)
    return unless_empty(ran(SIMILARITY, SIMILARITY_TITLE, headline, points), NO_CLUSTERS, "within_cluster")


def _rows(name: str, clusters: Clustering) -> list[TableRow]:
    columns = zip(clusters.mean_predicted, clusters.bin_similarity, clusters.cluster_similarity, strict=True)
    return [
        {"map": name, "predicted": float(x), "within_bin": finite(b), "within_cluster": finite(c)}
        for x, b, c in columns
    ]


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def _all_pairs(bench: Bench) -> float | None:
    cosines = bench.cosines
    if cosines is None or len(cosines) < 2:
        return None
    size = len(cosines)
    # Without the diagonal: each matrix is equal to itself.
    return float((cosines.sum() - np.trace(cosines)) / (size * (size - 1)))
