"""Many density matrices in factored form, and Frobenius cosines between them, blockwise with flat memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.maps import ServedSpectrum
from service.spectral.reliability import (
    ConsistencyBand,
    ReliabilityDiagram,
    bin_index,
    bin_means,
    consistency_band,
    equal_mass_bins,
    expected_calibration_error,
    rounded_ties,
)
from service.spectral.resampling import DEFAULT
from service.spectral.spectrum import Spectrum

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Vectors = NDArray[np.floating[Any]]

# Rows in one block of products: 512 x 512 stays in the cache, and leaves few products outside the triangle.
BLOCK_ROWS = 512


@dataclass(frozen=True, slots=True, eq=False)
class DensityStack:
    """n density matrices D_i = sum_a w_a e_a e_a^T, a over the rows of prompt i. Build it by `of`.

    vectors: (N, d) unit rows, float32 or float64, those of prompt i at bounds[i]:bounds[i + 1].
    weights: (N,) shares, sum 1 within each prompt.
    bounds: (n + 1,) ascending from 0 to N; every prompt has a row.
    """

    vectors: Vectors
    weights: Floats
    bounds: Ints

    @classmethod
    def of(cls, vectors: Sequence[ArrayLike], weights: Sequence[ArrayLike] | None = None) -> Self:
        """Return the stack of n matrices from vectors (k_i, d) and weights or counts (k_i,), equal for None.

        Vectors are scaled to length 1. float32 stays float32 (half the memory, twice the speed); all else
        becomes float64. Raises ValueError for no matrices, empty ones, zero or non-finite rows, bad weights.
        """
        if len(vectors) == 0:
            raise ValueError("a stack needs at least one density matrix")
        # A copy even of a single array: rows are scaled in place, the caller's must stay.
        rows = np.concatenate([np.atleast_2d(np.asarray(v)) for v in vectors])
        sizes = np.array([np.atleast_2d(np.asarray(v)).shape[0] for v in vectors])
        if rows.dtype != np.float32:
            rows = rows.astype(np.float64, copy=False)
        bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        if sizes.min() == 0:
            raise ValueError("a density matrix needs at least one vector")
        _scale_to_unit(rows)
        return cls(rows, _shares(weights, bounds), bounds)

    def __len__(self) -> int:
        return self.bounds.size - 1

    @property
    def dimension(self) -> int:
        """Columns d of the vectors."""
        return int(self.vectors.shape[1])

    def rows(self, prompt: int) -> slice:
        """Return the rows of one prompt."""
        return slice(int(self.bounds[prompt]), int(self.bounds[prompt + 1]))

    def factor(self, prompts: Ints) -> tuple[Vectors, Ints]:
        """Return (A, starts): rows sqrt(w_a) e_a of the prompts (p,), so that D = A^T A prompt by prompt.

        starts: (p,) where each prompt begins in A. A has the precision of the vectors.
        """
        sizes = self.bounds[prompts + 1] - self.bounds[prompts]
        starts = np.cumsum(sizes) - sizes
        picked = np.repeat(self.bounds[prompts] - starts, sizes) + np.arange(sizes.sum())
        # In the type of the vectors: float64 roots would make a float64 copy of the rows.
        roots = np.sqrt(self.weights[picked]).astype(self.vectors.dtype)
        return self.vectors[picked] * roots[:, None], starts

    def mean_spectrum(self, prompts: Ints) -> Floats:
        """Return the eigenvalues, ascending, of the mean of D over the prompts (p,); float64.

        From the smaller of the Gram matrix and the d x d one: the non-zero eigenvalues are the same.
        """
        rows = self.factor(prompts)[0].astype(np.float64)
        small = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
        return np.linalg.eigvalsh(np.asarray(small / prompts.size, dtype=np.float64))


def _scale_to_unit(rows: Vectors) -> None:
    """Scale rows to length 1 in place, block by block: a float64 copy of all would double the memory."""
    for start in range(0, rows.shape[0], BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        squares = np.square(block.astype(np.float64)).sum(axis=1)
        if not np.isfinite(squares).all() or not squares.all():
            raise ValueError("vectors hold a row that is zero or not finite")
        block /= np.sqrt(squares)[:, None].astype(rows.dtype)


def _shares(weights: Sequence[ArrayLike] | None, bounds: Ints) -> Floats:
    sizes = np.diff(bounds)
    if weights is None:
        return np.repeat(1.0 / sizes, sizes)
    given = [np.asarray(w, dtype=np.float64) for w in weights]
    if [w.shape for w in given] != [(size,) for size in sizes]:
        raise ValueError("weights must have one entry per vector")
    flat = np.concatenate(given)
    # For an empty segment reduceat gives the next one's first value, not 0; `of` has refused those.
    totals = np.add.reduceat(flat, bounds[:-1])
    if not np.isfinite(flat).all() or flat.min() < 0 or totals.min() <= 0:
        raise ValueError("weights must be finite and not negative, with a positive sum")
    return np.asarray(flat / np.repeat(totals, sizes))


def _blocks(stack: DensityStack, prompts: Ints, block_rows: int) -> Iterator[slice]:
    """Yield slices of prompts whose rows fit a block; a prompt with more rows is a block by itself."""
    start, held = 0, 0
    for position, size in enumerate(stack.bounds[prompts + 1] - stack.bounds[prompts]):
        if held and held + size > block_rows:
            yield slice(start, position)
            start, held = position, 0
        held += int(size)
    yield slice(start, prompts.size)


def _block_inner(left: tuple[Vectors, Ints], right: tuple[Vectors, Ints]) -> Floats:
    """Return tr(D_i D_j) = ||A_i A_j^T||_F^2 for all pairs of two factors."""
    products = left[0] @ right[0].T
    np.square(products, out=products)
    by_column = np.add.reduceat(products, right[1], axis=1)
    # The last sum in float64: float32 products have rounding enough of their own.
    return np.add.reduceat(by_column.astype(np.float64), left[1], axis=0)


def frobenius_inner(stack: DensityStack, prompts: Ints, *, block_rows: int = BLOCK_ROWS) -> Floats:
    """Return tr(D_i D_j), (p, p), in [0, 1], symmetric, for the prompts (p,) of the stack.

    Products are taken in the vectors' own precision, so float32 vectors give about 1e-7 of rounding. Beside
    the result, memory is one block of products and two of rows, however many prompts there are.
    """
    inner = np.empty((prompts.size, prompts.size))
    blocks = list(_blocks(stack, prompts, block_rows))
    for number, rows in enumerate(blocks):
        left = stack.factor(prompts[rows])
        for columns in blocks[number:]:
            part = _block_inner(left, left if columns == rows else stack.factor(prompts[columns]))
            inner[rows, columns] = part
            inner[columns, rows] = part.T
    return inner


def frobenius_cosines(stack: DensityStack, prompts: Ints | None = None) -> Floats:
    """Return cos(D_i, D_j) = tr(D_i D_j) / (||D_i|| ||D_j||), (p, p), in [0, 1]; all prompts for None.

    Higher = the prompts' answers mean more alike. Source: method, section 4, by the Gram route: nothing of
    size d x d is built.
    """
    inner = frobenius_inner(stack, np.arange(len(stack)) if prompts is None else prompts)
    norms = np.sqrt(np.diagonal(inner))
    # In place: of 4000 prompts the table has 128 MB.
    inner /= norms[:, None]
    inner /= norms
    # A matrix and itself may read more than 1 by rounding.
    return np.minimum(inner, 1.0, out=inner)


# The calibration error Cal_S of the paper, estimated on clusters of prompts (method, section 4).
#
# Within a cluster, C is the mean target and P the mean served matrix; the error is the mean over clusters of
# the quantum relative entropy S(C || P) = tr[C log C] - tr[C log P], in nats.
#
# Null directions count: an answer outside the span of the samples costs -log q, q the probability of one null
# direction, just as it does in the risk. So the served spectra here must be those of the full space (a map's
# `fitted` operator); a sample spectrum has q = 0 and any such answer would cost infinity.

# Eigenvalues of the low-rank part of P below this are the eigensolver's rounding of zero.
NO_MASS = 1e-14
# Prompts whose eigenvectors are in memory at once: 4 MB with 20 answers in 768 dimensions.
CHUNK = 32


def _span(stack: DensityStack, references: Floats, members: Ints) -> Floats | None:
    """Return an orthonormal basis (d, s) that holds all answers and references of a cluster; None for R^d."""
    answers = int((stack.bounds[members + 1] - stack.bounds[members]).sum())
    # As many rows as dimensions span all of R^d: no basis is smaller than the one at hand.
    if answers + references.shape[0] >= stack.dimension:
        return None
    rows = np.concatenate([stack.factor(members)[0].astype(np.float64), references])
    return np.linalg.qr(rows.T)[0]


def _chunks(members: Ints) -> Iterator[Ints]:
    return (members[start : start + CHUNK] for start in range(0, members.size, CHUNK))


def _mean_excess(
    stack: DensityStack, spectra: Sequence[Spectrum], served: Sequence[ServedSpectrum], members: Ints
) -> Iterator[tuple[Floats, Floats]]:
    """Yield u_i (R, d) and p_i - q (R,) of chunks of members: P = q 1 + sum (p_i - q) u_i u_i^T."""
    for chunk in _chunks(members):
        # float64 before any product: float32 leaves rounding of the size of the null values themselves.
        rows = [stack.vectors[stack.rows(i)].astype(np.float64) for i in chunk]
        vectors = [spectra[i].combination.T @ unit for i, unit in zip(chunk, rows, strict=True)]
        excess = [served[i].eigenvalues - served[i].null_value for i in chunk]
        yield np.concatenate(vectors), np.concatenate(excess)


def _served_eigen(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    members: Ints,
    basis: Floats | None,
) -> tuple[Floats, Floats]:
    """Return eigenvalues (s,) and eigenvectors (s, s) of the mean served matrix within the basis."""
    size = stack.dimension if basis is None else basis.shape[1]
    total = np.zeros((size, size))
    for vectors, excess in _mean_excess(stack, spectra, served, members):
        inside = vectors if basis is None else vectors @ basis
        total += (inside * excess[:, None]).T @ inside
    values, columns = np.linalg.eigh(total / members.size)
    null = np.mean([served[i].null_value for i in members])
    # q is added to the eigenvalues, not to the matrix: it may be smaller than the rounding of eigh.
    return np.where(values < NO_MASS, 0.0, values) + null, columns


def cluster_error(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    members: Ints,
) -> float:
    """Return S(C || P) >= 0 in nats for the prompts `members` (k,). Lower = better.

    Both matrices are taken in the span of the members' answers and references: outside it C is zero, so
    nothing of size d x d is built unless that span fills the space.
    """
    rows, _ = targets.factor(members)
    references = rows.astype(np.float64) / np.sqrt(members.size)
    basis = _span(stack, references, members)
    values, columns = _served_eigen(stack, spectra, served, members, basis)
    inside = references if basis is None else references @ basis
    along = np.square(inside @ columns).sum(axis=0)
    own = targets.mean_spectrum(members)
    own = own[own > NO_MASS]  # 0 log 0 = 0
    return float(own @ np.log(own) - along @ np.log(values))


def calibration_error(
    labels: Ints,
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
) -> float:
    """Return Cal_S in nats: the plain mean of `cluster_error` over the clusters. Lower = better, >= 0.

    labels: (n,) clusters of all prompts, as from `algorithm1.cluster_labels(frobenius_cosines(stack), 30)`.
    served: full-space operators (a map's `fitted`). targets: Y = (1/k) sum_j y_j y_j^T of each prompt.
    A cluster of one prompt counts like any other. Raises ValueError for a spectrum without null probability
    that leaves null directions, and when the sizes differ.
    """
    if {len(stack), len(spectra), len(served), len(targets)} != {labels.size}:
        raise ValueError("labels, stack, spectra, served and targets must have one entry per prompt")
    if any(values.null_count > 0 and values.null_value <= 0 for values in served):
        raise ValueError("Cal_S needs full-space operators: a null direction must have some probability")
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return float(np.mean([cluster_error(stack, spectra, served, targets, group) for group in groups]))


# What the projection ECE reads under calibration, with the spread of real references (method, section 4).
#
# The mean of c_1 = u_1^T Y u_1 in a bin is unbiased, but the ECE is a sum of absolute gaps: chance alone
# makes
# it greater than 0, by more for fewer prompts. How much more depends on how c_1 spreads around its mean. So
# the
# null keeps that spread: it is a residual bootstrap. (A reference drawn as one eigenvector has c_1 of 0 or 1
# and about twice the spread of a real one; its band is about twice too wide.)
#
# Sources: method, section 4 (ours); Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 9
# (residual bootstrap); Phipson and Smyth, *Permutation P-values Should Never Be Zero*, 2010 (the + 1).

# Prompts of like lambda_max. Fewer, and their spread is known badly (20 of 30 prompts: 6 to 8 % of calibrated
# worlds are called miscalibrated at 5 %); more, and the spread of unlike prompts is mixed in.
NEIGHBOURS = 40
NULL_BLOCK_ENTRIES = 2_000_000  # of one block of draws: 16 MB
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """A figure's null: its band, and the share of null worlds that read as much as was observed.

    p_value: (1 + draws at or above the figure) / (1 + draws), in (0, 1]. Small = not calibrated. NaN where
    the figure is unknown.
    """

    band: ConsistencyBand
    p_value: float


def upper_p_value(drawn: Floats, observed: float) -> float:
    """Return (1 + number of draws (D,) >= observed, but for rounding) / (1 + D); NaN for a NaN figure."""
    if np.isnan(observed):
        return float("nan")
    return float((1 + np.count_nonzero(drawn >= observed - ROUNDING)) / (1 + drawn.size))


def neighbourhoods(lambda_max: Floats, rng: np.random.Generator, neighbours: int = NEIGHBOURS) -> Ints:
    """Return for each prompt the k nearest in the order of lambda_max (n,), itself included: (n, k), k <= n.

    Ties stand in random order: in the order of the file, like neighbours could be alike in c_1, too.
    """
    size = lambda_max.size
    # lexsort sorts by its last key first.
    order = np.lexsort((rng.random(size), rounded_ties(lambda_max)))
    k = min(neighbours, size)
    # At both ends the window is shifted, not cut: everyone has k neighbours.
    first = np.clip(np.arange(size) - k // 2, 0, size - k)
    near = np.empty((size, k), dtype=np.intp)
    near[order] = order[first[:, None] + np.arange(k)]
    return near


def centred_residuals(gaps: Floats, near: Ints) -> Floats:
    """Return the residuals (n, k) of each prompt's neighbourhood: its gaps less their mean, rescaled.

    gaps = c_1 - lambda_max (n,), near: (n, k). So E[c_1 | lambda_max] is taken to be lambda_max plus a gap
    that is the same in a neighbourhood: true under calibration, and a good line elsewhere. The factor
    sqrt(k / (k - 1)) gives back the degree of freedom that the mean takes: each row has mean 0 and
    an unbiased variance.
    """
    k, likely = near.shape[1], gaps[near]
    return np.asarray((likely - likely.mean(axis=1, keepdims=True)) * np.sqrt(k / max(k - 1, 1)))


def _null_gaps(residuals: Floats, bins: Ints, rng: np.random.Generator, num_draws: int) -> Floats:
    """Return the mean residual (num_draws, B) of each bin, one drawn for each prompt from its row (n, k)."""
    size, k = residuals.shape
    # In order of bins each bin is a run, and one reduceat sums them all.
    by_bin = np.argsort(bins, kind="stable")
    starts = np.searchsorted(bins[by_bin], np.arange(bins.max() + 1))
    block = max(NULL_BLOCK_ENTRIES // size, 1)
    sums = []
    for start in range(0, num_draws, block):
        picked = rng.integers(0, k, (min(block, num_draws - start), size))
        sums.append(np.add.reduceat(residuals[by_bin, picked], starts, axis=1))
    return np.asarray(np.concatenate(sums) / np.bincount(bins))


def projection_null(
    lambda_max: ArrayLike,
    c1: ArrayLike,
    rng: np.random.Generator,
    *,
    num_bins: int = 8,
    num_draws: int = DEFAULT.band,
    neighbours: int = NEIGHBOURS,
) -> Null:
    """Return the residual null of the projection diagram and its ECE.

    lambda_max, c1: (n,) in [0, 1]. A null world is lambda_max of each prompt plus a centred residual of one
    of the prompts nearest in lambda_max, in the bins of the diagram. A projection ECE above the band (a small
    p-value) shows miscalibration; one inside shows that these prompts cannot tell it from calibration. One
    prompt alone has no spread: its p-value is NaN. Ends of a bin's band may lie outside [0, 1].
    Raises ValueError for unusable values, unequal lengths, or fewer than 20 draws.

    >>> lambda_max = np.linspace(0.1, 0.9, 80)
    >>> projection_null(lambda_max, lambda_max**3, np.random.default_rng(0)).p_value < 0.01
    True
    """
    predicted, target = np.asarray(lambda_max, dtype=np.float64), np.asarray(c1, dtype=np.float64)
    if predicted.shape != target.shape:
        raise ValueError(f"lambda_max and c1 differ in shape: {predicted.shape} and {target.shape}")
    if not np.isfinite(target).all():
        raise ValueError("c1 must be finite")
    edges = equal_mass_bins(predicted, num_bins)
    bins, size = bin_index(predicted, edges), edges.size - 1
    near, gaps = neighbourhoods(predicted, rng, neighbours), target - predicted
    null = _null_gaps(centred_residuals(gaps, near), bins, rng, num_draws)
    mass = np.bincount(bins) / bins.size
    eces, observed = np.abs(null) @ mass, float(np.abs(bin_means(gaps, bins, size)) @ mass)
    band = consistency_band(null + bin_means(predicted, bins, size), eces)
    return Null(band, upper_p_value(eces, observed) if predicted.size > 1 else float("nan"))


# Worlds that are calibrated by construction: references drawn from the served spectra themselves.
#
# `drawn_blocks` draws a reference as one eigenvector; `rescaled_blocks` keeps the directions of the real one
# and changes its squared coordinates alone. Both give blocks of many worlds at once.

BLOCK_ENTRIES = 8_000_000  # of one block of drawn references: 64 MB
NO_LENGTH = 1e-12  # squared length, relative to 1, that is rounding
NEVER = 1e-9  # least share of squared length that rescaling starts from: 0 cannot be rescaled
CLOSE = 1e-6  # of a mean share to what is expected
MAX_STEPS = 500
TINY = 1e-300  # under a division, where a share has shrunk to 0


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
    # Times the total, which is 1 up to rounding. Past the last eigenvalue lie the null directions.
    drawn = np.searchsorted(np.cumsum(served.eigenvalues), rng.random(count) * served.total, side="right")
    if served.null_value == 0 or served.null_count == 0:  # rounding at the very end of the last interval
        drawn = np.minimum(drawn, len(basis) - 1)
    outside = drawn == len(basis)
    found = basis[np.where(outside, 0, drawn)]
    # Of length 1 but for rounding, which the division by small eigenvalues magnifies.
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    if outside.any():
        found[outside] = null_directions(basis, rng, int(outside.sum()))
    return np.asarray(found)


def draw_references(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
) -> DensityStack:
    """Return one drawn reference per prompt, as a stack of n matrices y y^T."""
    [block] = drawn_blocks(stack, spectra, served, rng, 1)
    return DensityStack.of(list(block.vectors[0]))


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
        vectors = np.empty((worlds, size, stack.dimension))
        for i, (one, values) in enumerate(zip(spectra, served, strict=True)):
            vectors[:, i] = draw_reference(_answers(stack, i), one, values, rng, worlds)
        yield ReferenceBlock(vectors, np.ones(size), np.arange(size + 1))


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
    found = np.maximum(shares, NEVER)
    found /= found.sum(axis=2, keepdims=True)
    for _ in range(MAX_STEPS):
        mean = found.mean(axis=1)
        if np.abs(mean - expected).max() < CLOSE:
            break
        found *= (expected / np.maximum(mean, TINY))[:, None]
        found /= found.sum(axis=2, keepdims=True)
    return found


def rescaled_blocks(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    rng: np.random.Generator,
    num_draws: int,
    *,
    neighbours: int = NEIGHBOURS,
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
    parts, shares = np.empty((3, *real.shape)), np.empty((len(owner), 3))
    for row, i in enumerate(owner):
        basis = spectra[i].combination.T @ _answers(stack, i)
        along = basis @ real[row]
        signed = np.where(along < 0, -1.0, 1.0)[:, None] * basis
        parts[0, row], parts[1, row] = signed[0], _unit(np.sqrt(served[i].eigenvalues[1:]) @ signed[1:])
        parts[2, row] = _outside(basis, served[i], (real[row], real[rng.integers(len(owner))]), rng)
        shares[row] = _in_three(np.square(along))
    expected = np.stack([_in_three(served[i].eigenvalues / served[i].total) for i in owner])
    near = neighbourhoods(expected[:, 0], rng, neighbours)
    lengths = np.sqrt(rescaled_shares(shares[near], expected))
    for worlds in _block_sizes(num_draws, real.size):
        picked = lengths[np.arange(len(owner)), rng.integers(0, near.shape[1], (worlds, len(owner)))]
        vectors = sum(picked[:, :, g, None] * parts[g] for g in range(3))
        yield ReferenceBlock(vectors, targets.weights, targets.bounds)


def _in_three(squares: Floats) -> Floats:
    """Return shares (3,) of sum 1 of squared coordinates (r,): on u_1, in the rest of the span, outside."""
    # What exceeds 1 is rounding: each share takes at most what those before it left.
    first, rest = min(squares[0], 1.0), squares[1:].sum()
    rest = min(rest, 1.0 - first)
    return np.array([first, rest, max(1.0 - first - rest, 0.0)])


# Algorithm 1, the paper's eigenvalue reliability diagram (method, section 4), and its nulls.
#
# Its target is the largest eigenvalue of a mean of few references, which is biased upwards: even a calibrated
# world reads an ECE of 0.1 to 0.2. So a figure means nothing without its `nulls` beside it.
#
# Source: Gruber, Walha, Bach, Buettner, *Eigenvalue Calibration for Semantic Embeddings of Large Language
# Models*, UAI 2026.

Groups = tuple[tuple[Ints, ...], ...]

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
    num_draws: int = DEFAULT.nulls,
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
    num_draws: int = DEFAULT.nulls,
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
