"""The calibration error Cal_S of the paper, estimated on clusters of prompts (method, section 4).

Within a cluster, C is the mean target and P the mean served matrix; the error is the mean over clusters of
the quantum relative entropy S(C || P) = tr[C log C] - tr[C log P], in nats.

Null directions count: an answer outside the span of the samples costs -log q, q the probability of one null
direction, just as it does in the risk. So the served spectra here must be those of the full space (a map's
`fitted` operator); a sample spectrum has q = 0 and any such answer would cost infinity.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum
from service.spectral.maps import ServedSpectrum

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Eigenvalues of the low-rank part of P below this are the eigensolver's rounding of zero.
ROUNDING = 1e-14
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
    return np.where(values < ROUNDING, 0.0, values) + null, columns


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
    own = own[own > ROUNDING]  # 0 log 0 = 0
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
