"""Matrix log risk of calibration maps on a dev set (method, section 3), vectorised over prompts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.spectral.gram import Spectrum
from service.spectral.maps import CalibrationMap

Floats = NDArray[np.float64]

# 1 - sum c of a reference inside the span is rounding, not mass: it must not meet log 0 where g = 0.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class DevSet:
    """Spectra of n prompts and where their references lie, zero padded to R columns.

    eigenvalues: (n, R) descending, each row of sum 1.
    alignment: (n, R), c_i = u_i^T Y u_i in [0, 1], 0 where padded.
    outside: (n,), 1 - sum_i c_i in [0, 1].
    rank: (n,), number of non-zero eigenvalues.
    dimension: d of the embedding space.
    log_eigenvalues: (n, R), -inf where padded; derived.
    """

    eigenvalues: Floats
    alignment: Floats
    outside: Floats
    rank: NDArray[np.int_]
    dimension: int
    log_eigenvalues: Floats = field(init=False)

    def __post_init__(self) -> None:
        with np.errstate(divide="ignore"):
            object.__setattr__(self, "log_eigenvalues", np.log(self.eigenvalues))

    def __len__(self) -> int:
        return int(self.rank.size)

    def take(self, rows: NDArray[np.int_] | NDArray[np.bool_]) -> "DevSet":
        """Return the prompts selected by an index or mask."""
        kept = self.eigenvalues[rows], self.alignment[rows], self.outside[rows], self.rank[rows]
        return DevSet(*kept, self.dimension)


def pack(spectra: Sequence[Spectrum], alignments: Sequence[tuple[Floats, float]], dimension: int) -> DevSet:
    """Return the dev set of n spectra with their (c (r,), outside) from `gram.alignment`.

    Raises ValueError for no spectra or lists of different length.
    """
    if not spectra or len(spectra) != len(alignments):
        raise ValueError("spectra and alignments must be of the same length, at least one")
    rank = np.array([s.rank for s in spectra])
    values, c = np.zeros((2, len(spectra), rank.max()))
    for row, (one, (aligned, _)) in enumerate(zip(spectra, alignments, strict=True)):
        values[row, : one.rank], c[row, : one.rank] = one.eigenvalues, aligned
    return DevSet(values, c, np.array([outside for _, outside in alignments]), rank, dimension)


def _charge(mass: Floats, log_probability: Floats, least: float = 0.0) -> Floats:
    """Return -mass * log p, 0 wherever there is no mass, whatever p."""
    # `where` computes both branches: 0 times -inf is NaN, and thrown away.
    with np.errstate(invalid="ignore"):
        return np.where(mass > least, -mass * log_probability, 0.0)


def risks(map_: CalibrationMap, dev: DevSet) -> Floats:
    """Return the matrix log risk of the fitted operator per prompt, (n,), in nats. Lower = better.

    -sum_i c_i log p_i - c_out log q (method, section 3). Infinite where a reference lies outside the span and
    the map gives nothing to null directions.
    """
    log_p, log_q = map_.log_fitted(dev.log_eigenvalues, dev.rank, dev.dimension)
    return np.asarray(_charge(dev.alignment, log_p).sum(axis=1) + _charge(dev.outside, log_q, ROUNDING))


def risk(map_: CalibrationMap, dev: DevSet) -> float:
    """Return the mean matrix log risk in nats. Lower = better."""
    return float(risks(map_, dev).mean())


def mean_entropy(map_: CalibrationMap, dev: DevSet) -> float:
    """Return the mean von Neumann entropy of the fitted operators on the full space, in nats."""
    return float(_entropies(*map_.log_fitted(dev.log_eigenvalues, dev.rank, dev.dimension), dev).mean())


def served_entropies(map_: CalibrationMap, dev: DevSet) -> Floats:
    """Return the von Neumann entropy of each served spectrum, (n,), in nats. Higher = less certain."""
    return _entropies(*map_.log_served(dev.log_eigenvalues, dev.rank, dev.dimension), dev)


def _entropies(log_p: Floats, log_q: Floats, dev: DevSet) -> Floats:
    # A depolarised map gives padded columns q, too: they are no eigenvalues of the prompt.
    inside = np.arange(log_p.shape[1]) < dev.rank[:, None]
    p = np.where(inside, np.exp(log_p), 0.0)
    null = np.exp(log_q) * np.maximum(dev.dimension - dev.rank, 0)
    return np.asarray(_charge(p, log_p).sum(axis=1) + _charge(null, log_q))


def served_lambda_max(map_: CalibrationMap, dev: DevSet) -> Floats:
    """Return the largest served eigenvalue per prompt, (n,), in (0, 1]. Higher = more certain."""
    log_p, _ = map_.log_served(dev.log_eigenvalues, dev.rank, dev.dimension)
    return np.asarray(np.exp(log_p[:, 0]))
