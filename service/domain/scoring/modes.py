"""The leading meanings among the answers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.domain.scoring.model import Mode
from service.spectral.gram import Spectrum
from service.spectral.maps import ServedSpectrum

MAX_MODES = 5


def find_modes(
    found: Spectrum, served: ServedSpectrum, texts: Sequence[str], counts: NDArray[np.int_]
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode is the one with the largest squared projection, ties to the most frequent.
    """
    squared = np.square(found.projections)
    nearest = squared.argmax(axis=1)
    share = np.bincount(nearest, weights=found.weights, minlength=found.rank)
    modes = []
    for i in range(min(found.rank, MAX_MODES)):
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(Mode(float(served.eigenvalues[i]), float(share[i]), texts[best]))
    return tuple(modes)
