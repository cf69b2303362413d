"""Algorithm 1, the paper's eigenvalue reliability diagram (method, section 4), and its two nulls (ours).

The target of the diagram is the largest eigenvalue of a mean of few references, which is biased upwards: even
calibrated scores have an ECE of 0.1 to 0.2. So an ECE is meaningful only together with its `nulls`, the ECEs
of simulated worlds that are calibrated by construction. `drawn_blocks` draws each reference as one
eigenvector. `rescaled_blocks` keeps the directions of the real references and changes only their squared
coordinates.

Source: Gruber, Walha, Bach, Buettner, *Eigenvalue Calibration for Semantic Embeddings of Large Language
Models*, UAI 2026.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lab.density import DensityStack, frobenius_cosines
from lab.resampling import DEFAULT
from service.spectral.reliability import (
    NUM_BINS,
    ROUNDING,
    Null,
    ReliabilityDiagram,
    bin_index,
    bin_means,
    consistency_band,
    equal_mass_bins,
    expected_calibration_error,
    neighbourhoods,
    upper_p_value,
)
from service.spectral.spectrum import ServedSpectrum, Spectrum

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Groups = tuple[tuple[Ints, ...], ...]

MIN_CLUSTERS = 2  # a single cluster shows nothing about the other prompts
BLOCK_ENTRIES = 8_000_000  # of one block of drawn references: 64 MB
NO_LENGTH = 1e-12  # a smaller squared length, relative to 1, is rounding
NEVER = 1e-9  # lower bound of a share of squared length before rescaling: 0 cannot be rescaled
CLOSE = 1e-6  # tolerance of a mean share
MAX_STEPS = 500
TINY = 1e-300  # lower bound of a divisor, for shares that have shrunk to 0


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Prompts in bins of lambda_max, and in clusters within each bin. It does not depend on references.

    edges: (B + 1,). bins: (n,) in 0 .. B - 1. mean_predicted, mass: (B,).
    clusters: for each bin, the members (indices of prompts) of each usable cluster.
    """

    edges: Floats
    bins: Ints
    mean_predicted: Floats
    mass: Floats
    clusters: Groups

    @property
    def cluster_sizes(self) -> Ints:
        """Number of prompts in each usable cluster, bin by bin."""
        return np.array([members.size for groups in self.clusters for members in groups], dtype=np.intp)

    @property
    def singletons(self) -> int:
        """Number of prompts that are alone in their cluster. The diagram's targets ignore them."""
        return int(self.bins.size - self.cluster_sizes.sum())


def cluster_labels(cosines: Floats, num_clusters: int) -> Ints:
    """Return labels (p,), from 1, by average linkage of the rows of cosines (p, p), cut at num_clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage

    # scipy refuses to link a single observation.
    if cosines.shape[0] == 1:
        return np.ones(1, dtype=np.intp)
    # As in the paper, the rows are points; 1 - cosine is not used as a distance.
    labels = fcluster(linkage(cosines, method="average", metric="euclidean"), num_clusters, "maxclust")
    return np.asarray(labels, dtype=np.intp)


def cluster_prompts(
    stack: DensityStack,
    lambda_max: ArrayLike,
    *,
    num_bins: int = NUM_BINS,
    num_clusters: int = 5,
    cosines: Floats | None = None,
) -> Clustering:
    """Return bins and clusters of n prompts from their unscaled density matrices and served lambda_max (n,).

    One cluster per bin gives the paper's naive diagram. cosines: (n, n), all Frobenius cosines if already
    computed; None: the cosines within each bin are computed.
    Raises ValueError when the sizes differ or lambda_max is outside [0, 1].
    """
    predicted = np.asarray(lambda_max, dtype=np.float64)
    if predicted.shape != (len(stack),):
        raise ValueError(f"lambda_max must have shape ({len(stack)},), got {predicted.shape}")
    edges = equal_mass_bins(predicted, num_bins)
    bins, size = bin_index(predicted, edges), edges.size - 1
    groups = []
    for members in (np.flatnonzero(bins == b) for b in range(size)):
        near = frobenius_cosines(stack, members) if cosines is None else cosines[np.ix_(members, members)]
        labels = cluster_labels(near, num_clusters)
        local = [c for c in map(np.flatnonzero, labels == np.unique(labels)[:, None]) if c.size > 1]
        groups.append(tuple(members[c] for c in local))
    mass, means = np.bincount(bins, minlength=size) / bins.size, bin_means(predicted, bins, size)
    return Clustering(edges, bins, means, mass, tuple(groups))


def bin_targets(clustering: Clustering, references: DensityStack) -> Floats:
    """Return the target (B,) of each bin: the plain mean over clusters of lambda_max of the members' mean Y.

    references: n targets Y = (1/k) sum_j y_j y_j^T. In (0, 1]; NaN for a bin without a usable cluster.
    """
    targets = [[references.mean_spectrum(c)[-1] for c in clusters] for clusters in clustering.clusters]
    return np.array([np.mean(values) if values else np.nan for values in targets])


def algorithm1(clustering: Clustering, references: DensityStack) -> ReliabilityDiagram:
    """Return the diagram of Algorithm 1. `ece` is the eigenvalue ECE; compare it with its `nulls`.

    A bin without a usable cluster has a NaN target and is left out of the ECE.
    Raises ValueError unless there is one target per prompt.
    """
    if len(references) != clustering.bins.size:
        raise ValueError(f"{clustering.bins.size} prompts need as many targets, got {len(references)}")
    target = bin_targets(clustering, references)
    ece = expected_calibration_error(clustering.mean_predicted, target, clustering.mass)
    return ReliabilityDiagram(clustering.edges, clustering.mean_predicted, target, clustering.mass, ece)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceBlock:
    """The references of n prompts in several simulated worlds.

    vectors: (worlds, N, d) unit vectors; prompt i has rows bounds[i]:bounds[i + 1]. bounds: (n + 1,).
    weights: (N,) shares, sum 1 within each prompt.
    """

    vectors: Floats
    weights: Floats
    bounds: Ints


def null_directions(eigenvectors: Floats, rng: np.random.Generator, count: int = 1) -> Floats:
    """Return random unit vectors (count, d) orthogonal to the eigenvectors (r, d), r < d."""
    directions = rng.standard_normal((count, eigenvectors.shape[1]))
    for _ in range(2):  # twice, because one pass leaves rounding of the size of the subtracted part
        directions -= (directions @ eigenvectors.T) @ eigenvectors
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))


def trace(served: ServedSpectrum) -> float:
    """Return the sum of all eigenvalues, null values included: 1 up to rounding."""
    return float(served.eigenvalues.sum() + served.null_count * served.null_value)


def draw_reference(
    vectors: Floats, spectrum: Spectrum, served: ServedSpectrum, rng: np.random.Generator, count: int = 1
) -> Floats:
    """Return unit vectors (count, d): eigenvector u_i with probability p_i, else a random null direction.

    vectors: (k, d), the answers of the spectrum. Source: method, section 4 (ours).
    """
    basis = spectrum.combination.T @ vectors
    # The length is 1 up to rounding, which the division by small eigenvalues magnifies.
    basis /= np.linalg.norm(basis, axis=1, keepdims=True)
    # The null directions follow the last eigenvalue.
    drawn = np.searchsorted(np.cumsum(served.eigenvalues), rng.random(count) * trace(served), side="right")
    if served.null_value == 0 or served.null_count == 0:  # rounding at the end of the last interval
        drawn = np.minimum(drawn, len(basis) - 1)
    outside = drawn == len(basis)
    directions = basis[np.where(outside, 0, drawn)]
    if outside.any():
        directions[outside] = null_directions(basis, rng, int(outside.sum()))
    return np.asarray(directions)


def _block_sizes(num_draws: int, entries: int) -> Iterator[int]:
    step = max(BLOCK_ENTRIES // entries, 1)
    yield from (min(step, num_draws - start) for start in range(0, num_draws, step))


def _answers(stack: DensityStack, prompt: int) -> Floats:
    return stack.vectors[stack.rows(prompt)].astype(np.float64)


def drawn_blocks(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
    num_draws: int,
) -> Iterator[ReferenceBlock]:
    """Yield `num_draws` worlds in blocks, one drawn reference per prompt; see `draw_reference`."""
    size = len(stack)
    for worlds in _block_sizes(num_draws, size * stack.dimension):
        vectors = np.empty((size, worlds, stack.dimension))
        for i, (raw, values) in enumerate(zip(spectra, served, strict=True)):
            vectors[i] = draw_reference(_answers(stack, i), raw, values, rng, worlds)
        yield ReferenceBlock(vectors.swapaxes(0, 1), np.ones(size), np.arange(size + 1))


def _outside(
    basis: Floats, served: ServedSpectrum, candidates: Iterable[Floats], rng: np.random.Generator
) -> Floats:
    """Return the unit component (d,) outside the span, of the first candidate (d,) that has one.

    A random direction if no candidate has one; 0 if the span is the whole space.
    """
    if served.null_count == 0:
        return np.zeros(basis.shape[1])
    for candidate in candidates:
        rest = candidate - (basis @ candidate) @ basis
        if rest @ rest > NO_LENGTH:
            return np.asarray(rest / np.linalg.norm(rest))
    return np.asarray(null_directions(basis, rng)[0])


def _unit(vector: Floats) -> Floats:
    length = np.linalg.norm(vector)
    return np.asarray(vector / length if length > 0 else vector)


def rescaled_shares(shares: Floats, expected: Floats) -> Floats:
    """Return shares f_g s_g / sum_h f_h s_h of s (n, k, G), so that their means over k equal expected (n, G).

    Rows (G,) of both sum to 1. The result is the squared coordinates after multiplication by factors f (one
    set for k rows) and scaling of the vector to length 1. The factors minimise
    mean log sum_g f_g s_g - sum_g expected_g log f_g. A step replaces f_g by f_g expected_g / mean_g, which
    never increases this objective.
    """
    rescaled = np.maximum(shares, NEVER)
    rescaled /= rescaled.sum(axis=2, keepdims=True)
    for _ in range(MAX_STEPS):
        mean = rescaled.mean(axis=1)
        if np.abs(mean - expected).max() < CLOSE:
            break
        rescaled *= (expected / np.maximum(mean, TINY))[:, None]
        rescaled /= rescaled.sum(axis=2, keepdims=True)
    return rescaled


def rescaled_blocks(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    rng: np.random.Generator,
    num_draws: int,
) -> Iterator[ReferenceBlock]:
    """Yield `num_draws` worlds of the real references with rescaled squared coordinates (ours), in blocks.

    A reference y has coordinates y_i = u_i . y on the eigenvectors and a remainder outside their span. A null
    world keeps the signs of y_i and the direction of the remainder. The squared length of y has three shares:
    along u_1, in the rest of the span, and outside. They are replaced by the shares of a random reference
    among the nearest in lambda_max (so they spread like real ones), multiplied by three factors for the
    neighbourhood. With these factors, the mean shares are p_1, p_2 + .. + p_r and (d - r) q: see
    `rescaled_shares`. The share in the rest of the span is split in proportion to p_2, .. p_r. So the
    expected squared coordinates are the served spectrum.

    A reference within the span (equal to one of the answers) has no direction outside. It takes the direction
    of a random other reference, which is also a real text that the model did not say. References of one
    prompt are drawn independently.
    """
    owner = np.repeat(np.arange(len(targets)), np.diff(targets.bounds)).tolist()
    real = targets.vectors.astype(np.float64)
    parts, shares = np.empty((len(owner), 3, stack.dimension)), np.empty((len(owner), 3))
    for row, i in enumerate(owner):
        basis = spectra[i].combination.T @ _answers(stack, i)
        along = basis @ real[row]
        signed = np.where(along < 0, -1.0, 1.0)[:, None] * basis
        parts[row, 0], parts[row, 1] = signed[0], _unit(np.sqrt(served[i].eigenvalues[1:]) @ signed[1:])
        parts[row, 2] = _outside(basis, served[i], (real[row], real[rng.integers(len(owner))]), rng)
        shares[row] = _in_three(np.square(along))
    expected = np.stack([_in_three(served[i].eigenvalues / trace(served[i])) for i in owner])
    near = neighbourhoods(expected[:, 0], rng)
    lengths = np.sqrt(rescaled_shares(shares[near], expected))
    for worlds in _block_sizes(num_draws, real.size):
        picked = lengths[np.arange(len(owner)), rng.integers(0, near.shape[1], (worlds, len(owner)))]
        # One small product per reference is many times faster than sums over whole worlds.
        vectors = (picked.swapaxes(0, 1) @ parts).swapaxes(0, 1)
        yield ReferenceBlock(vectors, targets.weights, targets.bounds)


def _in_three(squares: Floats) -> Floats:
    """Return shares (3,) of squared coordinates (r,), of sum 1: on u_1, in the rest of the span, outside."""
    # Rounding may make the sum exceed 1, so each share is at most the remainder.
    first, rest = min(squares[0], 1.0), squares[1:].sum()
    rest = min(rest, 1.0 - first)
    return np.array([first, rest, max(1.0 - first - rest, 0.0)])


def _members(bounds: Ints, prompts: Ints) -> Ints:
    return np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in prompts])


def _largest_of_means(block: ReferenceBlock, prompts: Ints) -> Floats:
    """Return lambda_max (worlds,) of the mean Y over the prompts (p,), in each world of a block."""
    rows = _members(block.bounds, prompts)
    factor = block.vectors[:, rows] * np.sqrt(block.weights[rows] / prompts.size)[:, None]
    turned = factor.swapaxes(1, 2)
    # The Gram matrix or the d x d matrix, whichever is smaller: their non-zero eigenvalues are the same.
    small = factor @ turned if rows.size <= factor.shape[2] else turned @ factor
    return np.asarray(np.linalg.eigvalsh(small)[:, -1])


def block_targets(clustering: Clustering, block: ReferenceBlock) -> Floats:
    """Return `bin_targets` (worlds, B) of every world of a block."""
    missing = np.full(len(block.vectors), np.nan)
    targets = [
        # As in the paper, a plain mean that ignores the sizes of the clusters.
        np.mean([_largest_of_means(block, c) for c in clusters], axis=0) if clusters else missing
        for clusters in clustering.clusters
    ]
    return np.stack(targets, axis=1)


def null_of(clustering: Clustering, targets: Floats, observed: float) -> Null:
    """Return the null of an ECE from the targets (worlds, B) of at least 20 worlds.

    All NaN for fewer than `MIN_CLUSTERS` clusters, or if all worlds have the same ECE.
    """
    # A bin without clusters has no target in any world and is left out, as in `algorithm1`.
    usable = ~np.isnan(targets).any(axis=0)
    gaps = np.abs(targets - clustering.mean_predicted)[:, usable]
    if clustering.cluster_sizes.size >= MIN_CLUSTERS and usable.any():
        eces = np.average(gaps, axis=1, weights=clustering.mass[usable])
        # Without spread, any other ECE would look significant, however small the difference.
        if np.ptp(eces) > ROUNDING:
            return Null(consistency_band(targets, eces), upper_p_value(eces, observed))
    unknown = np.full_like(targets, np.nan)
    return Null(consistency_band(unknown, unknown[:, 0]), float("nan"))


@dataclass(frozen=True, slots=True, eq=False)
class Nulls:
    """Both nulls of Algorithm 1.

    drawn: references are eigenvectors drawn from the served spectrum; null draws have random directions. Real
    references outside the span lie in the narrow cone of the embedder. This causes most of the distance from
    this null, and a map of eigenvalues cannot reduce it. rescaled: real references with squared coordinates
    rescaled to the served spectrum. The distance from this null is due to the map.
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
    num_draws: int = DEFAULT.nulls,
) -> list[Nulls]:
    """Return both nulls of each clustering, in the same worlds; see `drawn_blocks` and `rescaled_blocks`.

    spectra, served, targets (the real references): of the n prompts, in the order of the stack.
    """
    eces = [algorithm1(clustering, targets).ece for clustering in clusterings]
    # Both nulls share one rng, so results depend on their order.
    worlds = (
        drawn_blocks(stack, spectra, served, rng, num_draws),
        rescaled_blocks(stack, spectra, served, targets, rng, num_draws),
    )
    kinds = []
    for blocks in worlds:
        targets_ = [[block_targets(clustering, block) for clustering in clusterings] for block in blocks]
        of_clusterings = zip(clusterings, zip(*targets_, strict=True), eces, strict=True)
        kinds.append([null_of(one, np.concatenate(parts), ece) for one, parts, ece in of_clusterings])
    return [Nulls(*pair) for pair in zip(*kinds, strict=True)]
