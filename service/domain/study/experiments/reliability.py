"""Algorithm 1 in all its settings, with both of its nulls, and the columns that tell a null."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.domain.study.bench import Bench, Served
from service.domain.study.evidence import finite
from service.domain.study.model import TableRow
from service.spectral.algorithm1 import Clustering, Nulls, algorithm1, cluster_prompts, nulls
from service.spectral.reliability import ConsistencyBand, ReliabilityDiagram
from service.spectral.residual_null import Null

Setting = tuple[int, int]

STANDARD: Setting = (8, 5)
NAIVE: Setting = (8, 1)
GRID: tuple[Setting, ...] = tuple((b, c) for b in (6, 8, 10) for c in (3, 5, 7))
NO_CLUSTERS = "No cluster has two members: too few test prompts, or too few whose answers are alike."


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One setting (bins, clusters): the diagram, both of its nulls, and the clusters behind it."""

    clusters: Clustering
    diagram: ReliabilityDiagram
    nulls: Nulls

    @property
    def band(self) -> ConsistencyBand:
        """The band of the first null: references drawn from the served spectrum as eigenvectors."""
        return self.nulls.drawn.band


class Readings:
    """Algorithm 1 of every map in every setting; all settings share the worlds of the nulls."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._found = {name: self._of(served) for name, served in bench.served.items()}

    def get(self, name: str, setting: Setting) -> Reading:
        """Return the reading of a map in a setting."""
        return self._found[name][setting]

    def _of(self, served: Served) -> Mapping[Setting, Reading]:
        test = self.bench.test
        clusters = {s: self._clusters(served, s) for s in dict.fromkeys((NAIVE, STANDARD, *GRID))}
        found = nulls(
            list(clusters.values()), test.stack, test.spectra, served.spectra, test.targets, self.bench.rng(4)
        )
        return {
            s: Reading(one, algorithm1(one, test.targets), null)
            for (s, one), null in zip(clusters.items(), found, strict=True)
        }

    def _clusters(self, served: Served, setting: Setting) -> Clustering:
        bins, clusters = setting
        return cluster_prompts(
            self.bench.test.stack,
            served.lambda_max,
            num_bins=bins,
            num_clusters=clusters,
            cosines=self.bench.cosines,
        )


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


def reading_columns(prefix: str, one: Reading) -> TableRow:
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


def cluster_rows(one: Reading) -> list[TableRow]:
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
