"""Are the density matrices that Algorithm 1 averages over alike? Within bins, and within clusters."""

import numpy as np

from service.domain.evaluation.bench import Bench
from service.domain.evaluation.model import Experiment, Row, ran, unless_empty
from service.domain.evaluation.reliability import NO_CLUSTERS, STANDARD, Readings
from service.domain.evidence import finite
from service.spectral.algorithm1 import Clustering

NAME, TITLE = "similarity", "Similarity of density matrices within bins and within clusters"


def similarity(bench: Bench, readings: Readings) -> Experiment:
    """Return mean Frobenius cosines of pairs, bin by bin, for B = 8 and C = 5."""
    points: list[Row] = []
    headline: Row = {"all_pairs": _all_pairs(bench)}
    for name in bench.served:
        clusters = readings.get(name, STANDARD).clusters
        points += _rows(name, clusters)
        headline[f"{name}_within_bin"] = _mean(clusters.bin_similarity)
        headline[f"{name}_within_cluster"] = _mean(clusters.cluster_similarity)
    return unless_empty(ran(NAME, TITLE, headline, points), NO_CLUSTERS, "within_cluster")


def _rows(name: str, clusters: Clustering) -> list[Row]:
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
    return float((cosines.sum() - np.trace(cosines)) / (size * (size - 1)))
