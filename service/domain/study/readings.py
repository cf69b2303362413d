"""Every reliability diagram beside what it reads under calibration, as numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.study.split import Served, Split
from service.spectral.algorithm1 import Clustering, Nulls, algorithm1, cluster_prompts, nulls
from service.spectral.reliability import (
    ConsistencyBand,
    ReliabilityDiagram,
    label_band,
    projection_brier,
    projection_reliability,
    reliability_diagram,
)
from service.spectral.residual_null import Null, projection_null

Floats = NDArray[np.float64]
Setting = tuple[int, int]

# The paper's bins and clusters; one cluster per bin is its naive diagram.
STANDARD: Setting = (8, 5)
NAIVE: Setting = (8, 1)
# Around the paper's own: how much hangs on that choice?
GRID: tuple[Setting, ...] = tuple((b, c) for b in (6, 8, 10) for c in (3, 5, 7))


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionReading:
    """lambda_max against u_1^T Y u_1: the diagram, its residual null, and the Brier score."""

    diagram: ReliabilityDiagram
    null: Null
    brier: float


@dataclass(frozen=True, slots=True, eq=False)
class CorrectnessReading:
    """lambda_max against right (1) and wrong (0), and where it would lie as the chance of being right."""

    diagram: ReliabilityDiagram
    band: ConsistencyBand


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm1Reading:
    """One setting (bins, clusters): the diagram, both of its nulls, and the clusters behind it."""

    clusters: Clustering
    diagram: ReliabilityDiagram
    nulls: Nulls


def read_projection(served: Served, split: Split, rng: np.random.Generator) -> ProjectionReading:
    """Return the projection diagram of what is served."""
    pair = served.lambda_max, split.c1
    return ProjectionReading(
        projection_reliability(*pair), projection_null(*pair, rng), projection_brier(*pair)
    )


def read_correctness(served: Served, split: Split, rng: np.random.Generator) -> CorrectnessReading:
    """Return the correctness diagram of what is served."""
    diagram = reliability_diagram(served.lambda_max, split.labels.right)
    return CorrectnessReading(diagram, label_band(served.lambda_max, rng))


def read_algorithm1(
    served: Served,
    split: Split,
    settings: Iterable[Setting],
    rng: np.random.Generator,
    *,
    cosines: Floats | None = None,
) -> Mapping[Setting, Algorithm1Reading]:
    """Return Algorithm 1 in these settings, which share the worlds of the nulls.

    cosines: (n, n) of all pairs of prompts; None: they are computed bin by bin, once per setting.
    """
    clusters = {
        (bins, wanted): cluster_prompts(
            split.stack, served.lambda_max, num_bins=bins, num_clusters=wanted, cosines=cosines
        )
        for bins, wanted in dict.fromkeys(settings)
    }
    found = nulls(list(clusters.values()), split.stack, split.spectra, served.spectra, split.targets, rng)
    return {
        setting: Algorithm1Reading(one, algorithm1(one, split.targets), null)
        for (setting, one), null in zip(clusters.items(), found, strict=True)
    }
