"""Algorithm 1, the paper's eigenvalue reliability diagram (method, section 4), and its nulls.

Its target is the largest eigenvalue of a mean of few references, which is biased upwards: even a calibrated
world reads an ECE of 0.1 to 0.2. So a figure means nothing without its `nulls` beside it.

Source: Gruber, Walha, Bach, Buettner, *Eigenvalue Calibration for Semantic Embeddings of Large Language
Models*, UAI 2026.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.density import DensityStack, frobenius_cosines
from service.spectral.gram import Spectrum
from service.spectral.maps import ServedSpectrum
from service.spectral.reference_draws import ReferenceBlock, drawn_blocks, rescaled_blocks
from service.spectral.reliability import (
    ConsistencyBand,
    ReliabilityDiagram,
    bin_index,
    bin_means,
    consistency_band,
    equal_mass_bins,
    expected_calibration_error,
)
from service.spectral.residual_null import ROUNDING, Null, upper_p_value

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Groups = tuple[tuple[Ints, ...], ...]

NUM_DRAWS = 100  # worlds behind a null
MIN_CLUSTERS = 2  # what one cluster reads says nothing of the other prompts


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Prompts in bins of lambda_max, and in clusters within each bin. It does not depend on references.

    edges: (B + 1,); bins: (n,) in 0 .. B - 1; mean_predicted, mass: (B,).
    clusters: for each bin the members (indices of prompts) of each usable cluster.
    bin_similarity, cluster_similarity: (B,) mean Frobenius cosine of the pairs within the bin, and of the
    pairs within its usable clusters, in [0, 1]; NaN where there is no pair.
    """

    edges: Floats
    bins: Ints
    mean_predicted: Floats
    mass: Floats
    clusters: Groups
    bin_similarity: Floats
    cluster_similarity: Floats

    @property
    def cluster_sizes(self) -> Ints:
        """Prompts in each usable cluster, bin by bin."""
        return np.array([members.size for groups in self.clusters for members in groups], dtype=np.intp)

    @property
    def singletons(self) -> int:
        """Prompts in no usable cluster: alone in theirs, and so ignored by the diagram's targets."""
        return int(self.bins.size - self.cluster_sizes.sum())


def cluster_labels(cosines: Floats, num_clusters: int) -> Ints:
    """Return labels (p,) from 1: average linkage of the rows of cosines (p, p), cut at num_clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage

    # scipy refuses to link a single observation.
    if cosines.shape[0] == 1:
        return np.ones(1, dtype=np.intp)
    # The rows are the points, as the paper has it: not 1 - cosine taken for a distance.
    labels = fcluster(linkage(cosines, method="average", metric="euclidean"), num_clusters, "maxclust")
    return np.asarray(labels, dtype=np.intp)


def _pair_similarity(cosines: Floats, groups: Sequence[Ints]) -> float:
    """Return the mean cosine over pairs of different prompts within the groups; NaN without a pair."""
    pairs = sum(group.size * (group.size - 1) for group in groups)
    if pairs == 0:
        return float("nan")
    total = sum(cosines[np.ix_(group, group)].sum() - cosines[group, group].sum() for group in groups)
    return float(total / pairs)


def cluster_prompts(
    stack: DensityStack,
    lambda_max: ArrayLike,
    *,
    num_bins: int = 8,
    num_clusters: int = 5,
    min_members: int = 2,
    cosines: Floats | None = None,
) -> Clustering:
    """Return bins and clusters of n prompts from their unscaled density matrices and served lambda_max (n,).

    One cluster per bin is the paper's naive diagram. `cosines` (n, n) may hold all Frobenius cosines, where
    they are at hand; otherwise only those within bins are computed, bin by bin.
    Raises ValueError when the sizes differ or lambda_max is outside [0, 1].
    """
    predicted = np.asarray(lambda_max, dtype=np.float64)
    if predicted.shape != (len(stack),):
        raise ValueError(f"lambda_max must have shape ({len(stack)},), got {predicted.shape}")
    edges = equal_mass_bins(predicted, num_bins)
    bins, size = bin_index(predicted, edges), edges.size - 1
    groups, in_bin, in_cluster = [], [], []
    for members in (np.flatnonzero(bins == b) for b in range(size)):
        near = frobenius_cosines(stack, members) if cosines is None else cosines[np.ix_(members, members)]
        labels = cluster_labels(near, num_clusters)
        local = [
            c for c in map(np.flatnonzero, labels == np.unique(labels)[:, None]) if c.size >= min_members
        ]
        groups.append(tuple(members[c] for c in local))
        in_bin.append(_pair_similarity(near, [np.arange(members.size)]))
        in_cluster.append(_pair_similarity(near, local))
    mass, means = np.bincount(bins, minlength=size) / bins.size, bin_means(predicted, bins, size)
    return Clustering(edges, bins, means, mass, tuple(groups), np.array(in_bin), np.array(in_cluster))


def bin_targets(clustering: Clustering, references: DensityStack) -> Floats:
    """Return for each bin (B,) the plain mean over its clusters of lambda_max of the members' mean Y.

    references: n targets Y = (1/k) sum_j y_j y_j^T. In (0, 1]; NaN for a bin without a usable cluster.
    """
    targets = [[references.mean_spectrum(c)[-1] for c in clusters] for clusters in clustering.clusters]
    return np.array([np.mean(values) if values else np.nan for values in targets])


def algorithm1(clustering: Clustering, references: DensityStack) -> ReliabilityDiagram:
    """Return the diagram of Algorithm 1. Its `ece` is the eigenvalue ECE; to be read beside its `nulls` only.

    A bin without a usable cluster has a NaN target, and the ECE is over the mass of the other bins.
    Raises ValueError when there is not one target per prompt.
    """
    if len(references) != clustering.bins.size:
        raise ValueError(f"{clustering.bins.size} prompts need as many targets, got {len(references)}")
    target = bin_targets(clustering, references)
    ece = expected_calibration_error(clustering.mean_predicted, target, clustering.mass)
    return ReliabilityDiagram(clustering.edges, clustering.mean_predicted, target, clustering.mass, ece)


def _members(bounds: Ints, prompts: Ints) -> Ints:
    return np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in prompts])


def _largest_of_means(block: ReferenceBlock, prompts: Ints) -> Floats:
    """Return lambda_max (worlds,) of the mean Y over the prompts (p,), in each world of a block."""
    rows = _members(block.bounds, prompts)
    factor = block.vectors[:, rows] * np.sqrt(block.weights[rows] / prompts.size)[:, None]
    turned = factor.swapaxes(1, 2)
    # The smaller of Gram matrix and d x d one: their non-zero eigenvalues are the same.
    small = factor @ turned if rows.size <= factor.shape[2] else turned @ factor
    return np.asarray(np.linalg.eigvalsh(small)[:, -1])


def block_targets(clustering: Clustering, block: ReferenceBlock) -> Floats:
    """Return `bin_targets` (worlds, B) of every world of a block."""
    missing = np.full(len(block.vectors), np.nan)
    targets = [
        # A plain mean, whatever the sizes of the clusters: so the paper has it.
        np.mean([_largest_of_means(block, c) for c in clusters], axis=0) if clusters else missing
        for clusters in clustering.clusters
    ]
    return np.stack(targets, axis=1)


def null_of(clustering: Clustering, targets: Floats, observed: float) -> Null:
    """Return the null of an ECE from the targets (worlds, B) of many worlds, at least 20.

    All NaN for fewer than `MIN_CLUSTERS` clusters, and where every world reads the same.
    """
    # A bin without clusters has no target in any world; as in `algorithm1`, its mass is left out.
    usable = ~np.isnan(targets).any(axis=0)
    gaps = np.abs(targets - clustering.mean_predicted)[:, usable]
    if clustering.cluster_sizes.size >= MIN_CLUSTERS and usable.any():
        eces = np.average(gaps, axis=1, weights=clustering.mass[usable])
        # Without any spread whatever else is read would look significant, however little it differs.
        if np.ptp(eces) > ROUNDING:
            return Null(consistency_band(targets, eces), upper_p_value(eces, observed))
    unknown = np.full_like(targets, np.nan)
    return Null(consistency_band(unknown, unknown[:, 0]), float("nan"))


def null_band(
    clustering: Clustering,
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
    *,
    num_draws: int = NUM_DRAWS,
) -> ConsistencyBand:
    """Return what Algorithm 1 reads when references are drawn from the served spectra (ours).

    Eigenvector u_i is drawn with probability p_i; null draws go to random directions orthogonal to the span.
    spectra, served: of the n prompts in the order of the stack. The clusters are those of `clustering`.
    """
    blocks = drawn_blocks(stack, spectra, served, rng, num_draws)
    targets = np.concatenate([block_targets(clustering, block) for block in blocks])
    return null_of(clustering, targets, float("nan")).band


@dataclass(frozen=True, slots=True, eq=False)
class Nulls:
    """Both nulls of Algorithm 1.

    drawn: references drawn from the served spectrum as eigenvectors, null draws in random directions. Real
    ones outside the span lie in the narrow cone of the embedder; distance from this null is mostly that, and
    no map of eigenvalues can mend it. rescaled: the real references with their squared coordinates rescaled
    to the served spectrum; distance from this null is what a map can be blamed for.
    """

    drawn: Null
    rescaled: Null


def nulls(
    clusterings: Sequence[Clustering],
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    rng: np.random.Generator,
    *,
    num_draws: int = NUM_DRAWS,
) -> list[Nulls]:
    """Return both nulls of each clustering of the same prompts; all share the drawn worlds.

    spectra, served, targets (the real references): of the n prompts in the order of the stack. See
    `reference_draws.drawn_blocks` and `reference_draws.rescaled_blocks` for what is drawn.
    """
    drawn = drawn_blocks(stack, spectra, served, rng, num_draws)
    rescaled = rescaled_blocks(stack, spectra, served, targets, rng, num_draws)
    # Both draw lazily from one rng: the order of this loop is part of what a seed gives.
    read = [_read(clusterings, blocks) for blocks in (drawn, rescaled)]
    eces = [algorithm1(one, targets).ece for one in clusterings]
    return [
        Nulls(*(null_of(one, found, ece) for found in pair))
        for one, ece, *pair in zip(clusterings, eces, *read, strict=True)
    ]


def _read(clusterings: Sequence[Clustering], blocks: Iterator[ReferenceBlock]) -> list[Floats]:
    parts = [[block_targets(one, block) for one in clusterings] for block in blocks]
    return [np.concatenate(one) for one in zip(*parts, strict=True)]
