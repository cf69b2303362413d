"""A world that is calibrated by construction: references drawn from the served spectra themselves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.spectral.density import DensityStack
from service.spectral.gram import Spectrum
from service.spectral.maps import ServedSpectrum

Floats = NDArray[np.float64]


def null_direction(eigenvectors: Floats, rng: np.random.Generator) -> Floats:
    """Return a random unit vector (d,) orthogonal to the eigenvectors (r, d), r < d."""
    direction = rng.standard_normal((eigenvectors.shape[1],))
    for _ in range(2):  # twice: one pass leaves rounding of the size of the part taken away
        direction -= (eigenvectors @ direction) @ eigenvectors
    return np.asarray(direction / np.linalg.norm(direction))


def draw_reference(
    vectors: Floats, spectrum: Spectrum, served: ServedSpectrum, rng: np.random.Generator
) -> Floats:
    """Return a unit vector (d,): eigenvector u_i with probability p_i, else a random null direction.

    vectors: (k, d) the answers that made the spectrum. Source: method, section 4 (ours).
    """
    cumulative = np.cumsum(served.eigenvalues)
    drawn = int(np.searchsorted(cumulative, rng.random() * served.total, side="right"))
    if drawn < cumulative.size:
        reference = spectrum.combination[:, drawn] @ vectors
        return np.asarray(reference / np.linalg.norm(reference))
    if served.null_value == 0 or served.null_count == 0:  # rounding at the very end of the last interval
        return np.asarray(spectrum.combination[:, -1] @ vectors)
    return null_direction(spectrum.combination.T @ vectors, rng)


def draw_references(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
) -> DensityStack:
    """Return one drawn reference per prompt, as a stack of n matrices y y^T."""
    drawn = [
        draw_reference(stack.vectors[stack.rows(i)].astype(np.float64), spectrum, values, rng)
        for i, (spectrum, values) in enumerate(zip(spectra, served, strict=True))
    ]
    return DensityStack.of(drawn)
