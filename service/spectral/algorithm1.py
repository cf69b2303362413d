"""Algorithm 1, the paper's eigenvalue reliability diagram (method, section 4), and its two nulls (ours).

Its target is the largest eigenvalue of a mean of few references, which is biased upwards: even a calibrated
world reads an ECE of 0.1 to 0.2. So a figure means nothing without its `nulls` beside it. They read worlds
that are calibrated by construction: `drawn_blocks` draws a reference as one eigenvector; `rescaled_blocks`
keeps the directions of the real one and changes its squared coordinates alone.

Source: Gruber, Walha, Bach, Buettner, *Eigenvalue Calibration for Semantic Embeddings of Large Language
Models*, UAI 2026.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.density import DensityStack, frobenius_cosines
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
from service.spectral.resampling import DEFAULT
from service.spectral.spectrum import ServedSpectrum, Spectrum

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Groups = tuple[tuple[Ints, ...], ...]

MIN_CLUSTERS = 2  # what one cluster reads says nothing of the other prompts
BLOCK_ENTRIES = 8_000_000  # of one block of drawn references: 64 MB
NO_LENGTH = 1e-12  # squared length, relative to 1, that is rounding
NEVER = 1e-9  # least share of squared length that rescaling starts from: 0 cannot be rescaled
CLOSE = 1e-6  # of a mean share to what is expected
MAX_STEPS = 500
TINY = 1e-300  # under a division, where a share has shrunk to 0


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Prompts in bins of lambda_max, and in clusters within each bin. It does not depend on references.

    edges: (B + 1,); bins: (n,) in 0 .. B - 1; mean_predicted, mass: (B,).
    clusters: for each bin the members (indices of prompts) of each usable cluster.
    """

    edges: Floats
    bins: Ints
    mean_predicted: Floats
    mass: Floats
    clusters: Groups

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


def cluster_prompts(
    stack: DensityStack,
    lambda_max: ArrayLike,
    *,
    num_bins: int = NUM_BINS,
    num_clusters: int = 5,
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
    groups = []
    for members in (np.flatnonzero(bins == b) for b in range(size)):
        near = frobenius_cosines(stack, members) if cosines is None else cosines[np.ix_(members, members)]
        labels = cluster_labels(near, num_clusters)
        local = [c for c in map(np.flatnonzero, labels == np.unique(labels)[:, None]) if c.size > 1]
        groups.append(tuple(members[c] for c in local))
    mass, means = np.bincount(bins, minlength=size) / bins.size, bin_means(predicted, bins, size)
    return Clustering(edges, bins, means, mass, tuple(groups))


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


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceBlock:
    """The references of n prompts in some drawn worlds.

    vectors: (worlds, N, d) unit vectors, those of prompt i at bounds[i]:bounds[i + 1]; bounds: (n + 1,).
    weights: (N,) shares, sum 1 within each prompt.
    """

    vectors: Floats
    weights: Floats
    bounds: Ints


def null_directions(eigenvectors: Floats, rng: np.random.Generator, count: int = 1) -> Floats:
    """Return random unit vectors (count, d) orthogonal to the eigenvectors (r, d), r < d."""
    directions = rng.standard_normal((count, eigenvectors.shape[1]))
    for _ in range(2):  # twice: one pass leaves rounding of the size of the part taken away
        directions -= (directions @ eigenvectors.T) @ eigenvectors
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))


def draw_reference(
    vectors: Floats, spectrum: Spectrum, served: ServedSpectrum, rng: np.random.Generator, count: int = 1
) -> Floats:
    """Return unit vectors (count, d): eigenvector u_i with probability p_i, else a random null direction.

    vectors: (k, d) the answers that made the spectrum. Source: method, section 4 (ours).
    """
    basis = spectrum.combination.T @ vectors
    # Of length 1 but for rounding, which the division by small eigenvalues magnifies.
    basis /= np.linalg.norm(basis, axis=1, keepdims=True)
    # Times the total, which is 1 up to rounding. Past the last eigenvalue lie the null directions.
    drawn = np.searchsorted(np.cumsum(served.eigenvalues), rng.random(count) * served.total, side="right")
    if served.null_value == 0 or served.null_count == 0:  # rounding at the very end of the last interval
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
        for i, (one, values) in enumerate(zip(spectra, served, strict=True)):
            vectors[i] = draw_reference(_answers(stack, i), one, values, rng, worlds)
        yield ReferenceBlock(vectors.swapaxes(0, 1), np.ones(size), np.arange(size + 1))


def _outside(
    basis: Floats, served: ServedSpectrum, candidates: Iterable[Floats], rng: np.random.Generator
) -> Floats:
    """Return the unit direction (d,) outside the span of the first candidate (d,) that has one, or 0."""
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
    """Return f_g s_g / sum_h f_h s_h for shares s (n, k, G), with a mean over k as expected (n, G).

    Rows (G,) of both sum to 1. That is what squared coordinates become when they are multiplied by factors f
    (one set for k rows) and the vector is scaled back to length 1. The factors minimise
    mean log sum_g f_g s_g - sum_g expected_g log f_g; a step replaces f_g by f_g expected_g / mean_g, which
    never increases it.
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
    """Yield `num_draws` worlds of the real references with their squared coordinates rescaled (ours).

    A reference y has coordinates y_i = u_i . y on the eigenvectors, and a rest outside their span. In a null
    world its signs and the direction of that rest stay. The shares of its squared length along u_1, in the
    rest of the span and outside become those of one of the references nearest in lambda_max (so they spread
    as real ones do), multiplied by three factors for that neighbourhood so that their mean is p_1, p_2 + .. +
    p_r and (d - r) q: see `rescaled_shares`. The share in the rest of the span is split in proportion to p_2,
    .. p_r. So the expectation of the squared coordinates is the served spectrum.

    A reference that lies within the span (it is one of the answers) has no direction outside and takes that
    of another one, picked at random: it, too, is a real text that the model did not say. References of one
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
    expected = np.stack([_in_three(served[i].eigenvalues / served[i].total) for i in owner])
    near = neighbourhoods(expected[:, 0], rng)
    lengths = np.sqrt(rescaled_shares(shares[near], expected))
    for worlds in _block_sizes(num_draws, real.size):
        picked = lengths[np.arange(len(owner)), rng.integers(0, near.shape[1], (worlds, len(owner)))]
        # Prompt by prompt a small product: many times faster than sums of whole worlds.
        vectors = (picked.swapaxes(0, 1) @ parts).swapaxes(0, 1)
        yield ReferenceBlock(vectors, targets.weights, targets.bounds)


def _in_three(squares: Floats) -> Floats:
    """Return shares (3,) of sum 1 of squared coordinates (r,): on u_1, in the rest of the span, outside."""
    # What exceeds 1 is rounding: each share takes at most what those before it left.
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
    clustering: Clustering,
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    rng: np.random.Generator,
    *,
    num_draws: int = DEFAULT.nulls,
) -> Nulls:
    """Return both nulls of a clustering.

    spectra, served, targets (the real references): of the n prompts in the order of the stack. See
    `drawn_blocks` and `rescaled_blocks` for what is drawn.
    """
    ece = algorithm1(clustering, targets).ece
    # Both draw from one rng: their order is part of what a seed gives.
    worlds = (
        drawn_blocks(stack, spectra, served, rng, num_draws),
        rescaled_blocks(stack, spectra, served, targets, rng, num_draws),
    )
    read = [np.concatenate([block_targets(clustering, one) for one in blocks]) for blocks in worlds]
    return Nulls(*(null_of(clustering, one, ece) for one in read))
