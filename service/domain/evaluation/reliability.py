"""Algorithm 1 in all its settings, with what each reads under perfect calibration."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.domain.evaluation.bench import Bench, Served
from service.domain.evaluation.model import Row
from service.domain.evidence import finite
from service.spectral.algorithm1 import Clustering, algorithm1, cluster_prompts
from service.spectral.reference_draws import draw_references
from service.spectral.reliability import ConsistencyBand, ReliabilityDiagram, consistency_band

Setting = tuple[int, int]

STANDARD: Setting = (8, 5)
NAIVE: Setting = (8, 1)
GRID: tuple[Setting, ...] = tuple((b, c) for b in (6, 8, 10) for c in (3, 5, 7))
NUM_DRAWS = 20
NO_CLUSTERS = "No cluster has two members: too few test prompts, or too few whose answers are alike."


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One setting (bins, clusters): the diagram, its band, and the clusters behind it."""

    clusters: Clustering
    diagram: ReliabilityDiagram
    band: ConsistencyBand


class Readings:
    """Algorithm 1 of every map in every setting; all settings share the references of a calibrated world."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._found = {name: self._of(served) for name, served in bench.served.items()}

    def get(self, name: str, setting: Setting) -> Reading:
        """Return the reading of a map in a setting."""
        return self._found[name][setting]

    def _of(self, served: Served) -> Mapping[Setting, Reading]:
        test = self.bench.test
        clusters = {s: self._clusters(served, s) for s in dict.fromkeys((NAIVE, STANDARD, *GRID))}
        diagrams = {s: algorithm1(one, test.targets) for s, one in clusters.items()}
        bands = self._bands(served, clusters)
        return {s: Reading(clusters[s], diagrams[s], bands[s]) for s in clusters}

    def _clusters(self, served: Served, setting: Setting) -> Clustering:
        bins, clusters = setting
        return cluster_prompts(
            self.bench.test.stack,
            served.lambda_max,
            num_bins=bins,
            num_clusters=clusters,
            cosines=self.bench.cosines,
        )

    def _bands(
        self, served: Served, clusters: Mapping[Setting, Clustering]
    ) -> Mapping[Setting, ConsistencyBand]:
        """Return the band of every setting; one set of drawn references is in memory at a time."""
        test, rng = self.bench.test, self.bench.rng(4)
        read: dict[Setting, list[ReliabilityDiagram]] = {s: [] for s in clusters}
        for _ in range(NUM_DRAWS):
            drawn = draw_references(test.stack, test.spectra, served.spectra, rng)
            for setting, one in clusters.items():
                read[setting].append(algorithm1(one, drawn))
        return {s: _band(diagrams) for s, diagrams in read.items()}


def _band(diagrams: list[ReliabilityDiagram]) -> ConsistencyBand:
    targets = np.stack([one.mean_target for one in diagrams])
    return consistency_band(targets, np.array([one.ece for one in diagrams]))


def diagram_rows(
    name: str, diagram: ReliabilityDiagram, size: int, band: ConsistencyBand | None
) -> list[Row]:
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


def ece_columns(prefix: str, ece: float, band: ConsistencyBand) -> Row:
    """Return an ECE and its band under perfect calibration as columns."""
    return {
        f"{prefix}_ece": finite(ece),
        f"{prefix}_band_mean": finite(band.ece_mean),
        f"{prefix}_band_low": finite(band.ece_low),
        f"{prefix}_band_high": finite(band.ece_high),
    }
