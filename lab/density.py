"""Many density matrices in factored form: Frobenius cosines between them, and the paper's Cal_S on clusters.

All computations are blockwise, with constant memory. Cal_S (method, section 4): within a cluster, C is the
mean target and P the mean served matrix. The error is the mean over clusters of the quantum relative entropy
S(C || P) = tr[C log C] - tr[C log P], in nats. As in the risk, a text outside the span of the samples costs
-log q, where q is the probability of one null direction. So the served spectra must be full-space operators
(a map's `fitted`); a sample spectrum has q = 0, and such a text would cost infinity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.spectrum import ServedSpectrum, Spectrum

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Vectors = NDArray[np.floating[Any]]

# Rows in one block of products: 512 x 512 stays in the cache, with few products outside the triangle.
BLOCK_ROWS = 512
# Smaller eigenvalues of the low-rank part of P are rounding by the eigensolver.
NO_MASS = 1e-14
# Number of prompts with eigenvectors in memory at once: 4 MB with 20 answers in 768 dimensions.
CHUNK = 32


@dataclass(frozen=True, slots=True, eq=False)
class DensityStack:
    """n density matrices D_i = sum_a w_a e_a e_a^T, a over the rows of prompt i. Build it with `of`.

    vectors: (N, d) unit rows, float32 or float64; prompt i has rows bounds[i]:bounds[i + 1].
    weights: (N,) shares, sum 1 within each prompt.
    bounds: (n + 1,) ascending from 0 to N; every prompt has at least one row.
    """

    vectors: Vectors
    weights: Floats
    bounds: Ints

    @classmethod
    def of(cls, vectors: Sequence[ArrayLike], weights: Sequence[ArrayLike] | None = None) -> Self:
        """Return the stack of n matrices from vectors (k_i, d) and weights or counts (k_i,), equal for None.

        Vectors are scaled to length 1. float32 stays float32 (half the memory, twice the speed); other types
        become float64. Raises ValueError for no matrices, empty ones, zero or non-finite rows, bad weights.
        """
        if len(vectors) == 0:
            raise ValueError("a stack needs at least one density matrix")
        # This copies even a single array: rows are scaled in place, but not those of the caller.
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
        """The dimension d of the vectors."""
        return int(self.vectors.shape[1])

    def rows(self, prompt: int) -> slice:
        """Return the rows of one prompt."""
        return slice(int(self.bounds[prompt]), int(self.bounds[prompt + 1]))

    def factor(self, prompts: Ints) -> tuple[Vectors, Ints]:
        """Return (A, starts): rows sqrt(w_a) e_a of the prompts (p,), so that D = A^T A for each prompt.

        starts: (p,), the first row of each prompt in A. A has the precision of the vectors.
        """
        sizes = self.bounds[prompts + 1] - self.bounds[prompts]
        starts = np.cumsum(sizes) - sizes
        picked = np.repeat(self.bounds[prompts] - starts, sizes) + np.arange(sizes.sum())
        # Cast to the type of the vectors: float64 roots would give a float64 copy of the rows.
        roots = np.sqrt(self.weights[picked]).astype(self.vectors.dtype)
        return self.vectors[picked] * roots[:, None], starts

    def mean_spectrum(self, prompts: Ints) -> Floats:
        """Return the eigenvalues, ascending, of the mean of D over the prompts (p,); float64.

        They are computed from the Gram matrix or the d x d matrix, whichever is smaller: the non-zero
        eigenvalues are the same.
        """
        rows = self.factor(prompts)[0].astype(np.float64)
        small = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
        return np.linalg.eigvalsh(np.asarray(small / prompts.size, dtype=np.float64))


def _scale_to_unit(rows: Vectors) -> None:
    """Scale rows to length 1 in place, in blocks: a float64 copy of all rows would need too much memory."""
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
    arrays = [np.asarray(w, dtype=np.float64) for w in weights]
    if [w.shape for w in arrays] != [(size,) for size in sizes]:
        raise ValueError("weights must have one entry per vector")
    flat = np.concatenate(arrays)
    # reduceat mishandles empty segments, but `of` has rejected those.
    totals = np.add.reduceat(flat, bounds[:-1])
    if not np.isfinite(flat).all() or flat.min() < 0 or totals.min() <= 0:
        raise ValueError("weights must be finite and not negative, with a positive sum")
    return np.asarray(flat / np.repeat(totals, sizes))


def _blocks(stack: DensityStack, prompts: Ints, block_rows: int) -> Iterator[slice]:
    """Yield slices of prompts with at most `block_rows` rows; a larger prompt is a block of its own."""
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
    # The last sum is in float64, because float32 products already have enough rounding.
    return np.add.reduceat(by_column.astype(np.float64), left[1], axis=0)


def frobenius_inner(stack: DensityStack, prompts: Ints, *, block_rows: int = BLOCK_ROWS) -> Floats:
    """Return tr(D_i D_j), (p, p), in [0, 1], symmetric, for the prompts (p,) of the stack.

    Products have the precision of the vectors, so float32 vectors give rounding of about 1e-7. Apart from the
    result, memory is one block of products and two blocks of rows, for any number of prompts.
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

    Higher = the answers of the prompts are more similar in meaning. Source: method, section 4, by Gram
    matrices: nothing of size d x d is built.
    """
    inner = frobenius_inner(stack, np.arange(len(stack)) if prompts is None else prompts)
    norms = np.sqrt(np.diagonal(inner))
    # In place, because the table has 128 MB for 4000 prompts.
    inner /= norms[:, None]
    inner /= norms
    # Rounding may put the cosine of a matrix with itself above 1.
    return np.minimum(inner, 1.0, out=inner)


def _span(stack: DensityStack, references: Floats, members: Ints) -> Floats | None:
    """Return an orthonormal basis (d, s) of the span of a cluster's answers and references; None for R^d."""
    answers = int((stack.bounds[members + 1] - stack.bounds[members]).sum())
    # With d rows or more, the basis would not be smaller than R^d.
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
        # float64 before any product, because rounding of float32 is as large as the null values.
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
    # q is added to the eigenvalues, not to the matrix, because it may be smaller than the rounding of eigh.
    return np.where(values < NO_MASS, 0.0, values) + null, columns


def cluster_error(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    targets: DensityStack,
    members: Ints,
) -> float:
    """Return S(C || P) >= 0 in nats for the prompts `members` (k,). Lower = better.

    Both matrices are restricted to the span of the members' answers and references, because C is zero
    outside. So nothing of size d x d is built unless this span is the whole space.
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
    A cluster of one prompt counts like any other. Raises ValueError for a spectrum that gives its null
    directions probability 0, and when the sizes differ.
    """
    if {len(stack), len(spectra), len(served), len(targets)} != {labels.size}:
        raise ValueError("labels, stack, spectra, served and targets must have one entry per prompt")
    if any(values.null_count > 0 and values.null_value <= 0 for values in served):
        raise ValueError("Cal_S needs full-space operators: a null direction must have some probability")
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return float(np.mean([cluster_error(stack, spectra, served, targets, group) for group in groups]))
