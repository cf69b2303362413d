"""References drawn from served spectra."""

from collections.abc import Sequence

import numpy as np

from lab.algorithm1 import Clustering, block_targets, drawn_blocks, null_of
from lab.density import DensityStack
from service.spectral.reliability import ConsistencyBand
from service.spectral.spectrum import ServedSpectrum, Spectrum


def draw_references(
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
) -> DensityStack:
    """Return one reference per prompt, drawn from the served spectrum."""
    [block] = drawn_blocks(stack, spectra, served, rng, 1)
    return DensityStack.of(list(block.vectors[0]))


def null_band(
    clustering: Clustering,
    stack: DensityStack,
    spectra: Sequence[Spectrum],
    served: Sequence[ServedSpectrum],
    rng: np.random.Generator,
) -> ConsistencyBand:
    """Return only the null of Algorithm 1 with drawn references."""
    blocks = drawn_blocks(stack, spectra, served, rng, 100)
    targets = np.concatenate([block_targets(clustering, block) for block in blocks])
    return null_of(clustering, targets, float("nan")).band
