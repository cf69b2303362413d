"""Small synthetic worlds: answers as random vectors, and dev sets with known parameters."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from lab.vectors import Answers
from service.spectral.dev_set import DevSpectra
from service.spectral.spectrum import CalibrationMap, Spectrum

seeds = st.integers(0, 2**32 - 1)
temperatures = st.floats(0.05, 50.0)


def unit(rng: np.random.Generator, size: int, dimension: int) -> np.ndarray:
    """Return random unit rows with a common part, like answers to one prompt."""
    rows = rng.standard_normal((size, dimension)) + 2 * rng.standard_normal(dimension)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def spectra(rng: np.random.Generator, prompts: int, width: int) -> np.ndarray:
    """Random descending eigenvalues (n, R) of sum 1, of ranks from 1 to R, zero padded."""
    rank = rng.integers(1, width + 1, prompts)
    raw = np.sort(rng.gamma(0.5, size=(prompts, width)) + 1e-4, axis=1)[:, ::-1]
    raw = np.where(np.arange(width) < rank[:, None], raw, 0.0)
    return raw / raw.sum(axis=1, keepdims=True)


def calibrated_world(map_: CalibrationMap, eigenvalues: np.ndarray, dimension: int) -> DevSpectra:
    """Return a dev set with targets equal to `map_` of the spectra, which therefore has the lowest risk."""
    rank = np.count_nonzero(eigenvalues, axis=1)
    bare = DevSpectra(eigenvalues, np.zeros_like(eigenvalues), np.zeros(len(rank)), rank, dimension)
    log_p, log_q = map_.log_fitted(bare.log_eigenvalues, rank, dimension)
    c = np.where(eigenvalues > 0, np.exp(log_p), 0.0)
    return DevSpectra(eigenvalues, c, (dimension - rank) * np.exp(log_q), rank, dimension)


def random_dev_set(seed: int, prompts: int = 30, width: int = 6, dimension: int = 24) -> DevSpectra:
    """Return spectra with random alignments."""
    rng = np.random.default_rng(seed)
    values = spectra(rng, prompts, width)
    inside = rng.gamma(0.7, size=values.shape) * (values > 0)
    outside = rng.gamma(0.7, size=prompts)
    total = inside.sum(axis=1) + outside
    rank = np.count_nonzero(values, axis=1)
    return DevSpectra(values, inside / total[:, None], outside / total, rank, dimension)


def answers(rng: np.random.Generator, draws: int, dimension: int = 16, references: int = 1) -> Answers:
    """Return repeated answers, and references near one of them."""
    distinct = int(rng.integers(1, draws + 1))
    index = np.append(np.arange(distinct), rng.integers(0, distinct, draws - distinct))
    vectors = unit(rng, distinct, dimension)
    near = vectors[rng.integers(0, distinct, references)] + 0.3 * rng.standard_normal((references, dimension))
    return Answers(vectors, rng.permutation(index), near)


def pack(
    spectra: Sequence[Spectrum], alignments: Sequence[tuple[np.ndarray, float]], dimension: int
) -> DevSpectra:
    """Return the dev set of spectra with the (c, outside) of each."""
    rank = np.array([item.rank for item in spectra])
    values, c = np.zeros((2, len(spectra), rank.max()))
    for row, (spectrum_, (aligned, _)) in enumerate(zip(spectra, alignments, strict=True)):
        values[row, : spectrum_.rank], c[row, : spectrum_.rank] = spectrum_.eigenvalues, aligned
    return DevSpectra(values, c, np.array([outside for _, outside in alignments]), rank, dimension)
