"""Worlds that are calibrated by construction: references drawn from the served spectra themselves.

`drawn_blocks` draws a reference as one eigenvector; `rescaled_blocks` keeps the directions of the real one
and changes its squared coordinates alone. Both give blocks of many worlds at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum
from service.spectral.maps import ServedSpectrum
from service.spectral.residual_null import NEIGHBOURS, neighbourhoods

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

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
