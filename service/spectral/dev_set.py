"""Batched spectra and reference alignments of many prompts, and the risks of maps on them.

The numbers equal those of `spectrum` for single prompts. The matrix log risk is defined in method, section 3.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import RANK_TOLERANCE, CalibrationMap, bounded, is_supported

Floats = NDArray[np.float64]
AnyMap = CalibrationMap | EvidenceMap  # an EvidenceMap depends on the missing mass of each prompt

# For a reference inside the span, 1 - sum c is rounding, not mass; with g = 0 it must not multiply log 0.
NO_OVERLAP = 1e-12
STACK_ENTRIES = 2_000_000  # of one stack of matrices: 16 MB
TIE = 1e-9  # of squared projections, which differ in their last bits


@dataclass(frozen=True, slots=True, eq=False)
class DevSpectra:
    """Spectra of n prompts and the alignment of their references, zero padded to R columns.

    eigenvalues: (n, R) descending, each row of sum 1.
    alignment: (n, R), c_i = u_i^T Y u_i in [0, 1], 0 where padded.
    outside: (n,), 1 - sum_i c_i in [0, 1].
    rank: (n,), number of non-zero eigenvalues.
    dimension: d of the embedding space.
    missing_mass: (n,), u of the answers; None if an answer has no log-probability.
    log_eigenvalues: (n, R), -inf where padded; derived.
    Raises ValueError unless there is one missing mass per prompt.
    """

    eigenvalues: Floats
    alignment: Floats
    outside: Floats
    rank: NDArray[np.int_]
    dimension: int
    missing_mass: Floats | None = None
    log_eigenvalues: Floats = field(init=False)

    def __post_init__(self) -> None:
        if self.missing_mass is not None and self.missing_mass.shape != self.rank.shape:
            raise ValueError("every prompt of the dev set needs a missing mass")
        with np.errstate(divide="ignore"):
            object.__setattr__(self, "log_eigenvalues", np.log(self.eigenvalues))

    def __len__(self) -> int:
        return int(self.rank.size)

    def take(self, rows: NDArray[np.int_] | NDArray[np.bool_]) -> "DevSpectra":
        """Return the prompts selected by an index or mask."""
        kept = self.eigenvalues[rows], self.alignment[rows], self.outside[rows], self.rank[rows]
        return DevSpectra(
            *kept, self.dimension, None if self.missing_mass is None else self.missing_mass[rows]
        )

    def mapped_by(self, map_: AnyMap) -> CalibrationMap:
        """Return the eigenvalue map for these prompts.

        Raises ValueError for an EvidenceMap if the prompts have no missing masses.
        """
        if not isinstance(map_, EvidenceMap):
            return map_
        if self.missing_mass is None:
            raise ValueError("the map needs a log-probability of every answer")
        return map_.over(self.missing_mass)

    def log_served(self, map_: AnyMap) -> tuple[Floats, Floats]:
        """Return log p (n, R) and log q (n,) of the served spectra; see `CalibrationMap`."""
        return self.mapped_by(map_).log_served(self.log_eigenvalues, self.rank, self.dimension)

    def log_fitted(self, map_: AnyMap) -> tuple[Floats, Floats]:
        """Return log p (n, R) and log q (n,) of the fitted operators; see `CalibrationMap`."""
        return self.mapped_by(map_).log_fitted(self.log_eigenvalues, self.rank, self.dimension)


@dataclass(frozen=True, slots=True, eq=False)
class Overlaps:
    """The answers to one prompt and its references, sufficient for the spectra of any subset of its answers.

    cosines: (k, k) of the distinct answers. targets: (t, k), <y_j, e_a> / sqrt(t), so that a sum of squares
    over the references is a mean. Without references, the right answer is an outcome that no answer has.
    index: (m,), the distinct answer of each draw.
    """

    cosines: Floats
    targets: Floats
    index: NDArray[np.int_]

    @classmethod
    def of(
        cls, kernel: Floats, answers: Sequence[int], references: Sequence[int], index: NDArray[np.int_]
    ) -> "Overlaps":
        """Return the overlaps from a kernel (n, n) and the places of answers and references in it."""
        scale = math.sqrt(max(len(references), 1))
        return cls(kernel[np.ix_(answers, answers)], kernel[np.ix_(references, answers)] / scale, index)


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """A subset of a prompt's draws to compute a spectrum from: distinct answers (k,) and their shares (k,).

    It refers to the overlaps without copying them, so many subsets of one prompt need little memory.
    """

    overlaps: Overlaps
    present: NDArray[np.int_]
    share: Floats

    @property
    def cosines(self) -> Floats:
        """Cosines (k, k) of the answers present."""
        if self.present.size == len(self.overlaps.cosines):
            return self.overlaps.cosines
        return self.overlaps.cosines[self.present[:, None], self.present]

    @property
    def targets(self) -> Floats:
        """Scaled reference cosines (t, k)."""
        return self.overlaps.targets[:, self.present]


def weighted(prompt: Overlaps, draws: NDArray[np.int_] | None = None) -> Weighted:
    """Return the distinct answers among the draws (positions in `index`; None: all) with their shares."""
    index = prompt.index if draws is None else prompt.index[draws]
    counts = np.bincount(index, minlength=len(prompt.cosines))
    present = np.flatnonzero(counts)
    return Weighted(prompt, present, counts[present] / index.size)


def _chunks(problems: Sequence[Weighted]) -> Iterable[list[int]]:
    """Yield positions of problems of equal size, few enough for one stack."""
    # Grouped by size, because the matrices of a stack for numpy's eigh have one size.
    groups: dict[int, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.share.size].append(position)
    for size, members in groups.items():
        step = max(STACK_ENTRIES // size**2, 1)
        yield from (members[i : i + step] for i in range(0, len(members), step))


def _stack_targets(problems: Sequence[Weighted]) -> Floats:
    """Return targets (n, t, k), padded with zero rows, which add nothing to the sums of squares."""
    targets = [problem.targets for problem in problems]
    stack = np.zeros((len(problems), max(map(len, targets)), problems[0].share.size))
    for row, rows in zip(stack, targets, strict=True):
        row[: len(rows)] = rows
    return stack


def _solve(problems: Sequence[Weighted], tolerance: float) -> tuple[Floats, Floats]:
    """Return eigenvalues (n, k) descending, 0 where null, and alignments c (n, k)."""
    root = np.sqrt(np.stack([p.share for p in problems]))
    kernel = np.stack([p.cosines for p in problems])
    kernel *= root[:, :, None] * root[:, None, :]
    values, columns = np.linalg.eigh(kernel)
    along = (_stack_targets(problems) * root[:, None, :]) @ columns
    positive = values > tolerance
    kept = np.where(positive, values, 0.0)
    # Null eigenvalues are divided by 1: c is already 0 there, and 0 / 0 would warn.
    c = np.where(positive, np.square(along).sum(axis=1), 0.0) / np.where(positive, values, 1.0)
    # eigh is ascending, a spectrum descending. The sum restores the trace lost by the cut.
    return (kept / kept.sum(axis=1, keepdims=True))[:, ::-1], c[:, ::-1]


def solve(problems: Sequence[Weighted], dimension: int, *, tolerance: float = RANK_TOLERANCE) -> DevSpectra:
    """Return the dev set of n problems, in their order. Raises ValueError without problems."""
    if not problems:
        raise ValueError("no prompts")
    width = max(p.share.size for p in problems)
    values, c = np.zeros((2, len(problems), width))
    for rows in _chunks(problems):
        size = problems[rows[0]].share.size
        values[rows, :size], c[rows, :size] = _solve([problems[i] for i in rows], tolerance)
    rank = np.count_nonzero(values, axis=1)
    used = int(rank.max())
    outside = np.clip(1.0 - c.sum(axis=1), 0.0, 1.0)
    # Copied, because views would keep the wider tables alive.
    return DevSpectra(values[:, :used].copy(), c[:, :used].copy(), outside, rank, dimension)


def dominant(problems: Sequence[Weighted]) -> NDArray[np.int_]:
    """Return the distinct answer (n,) of each problem with the largest squared projection on u_1.

    Ties go to the most frequent answer, then to the first. Scores name this answer.
    """
    dominant = np.empty(len(problems), dtype=np.int_)
    for rows in _chunks(problems):
        dominant[rows] = _dominant([problems[i] for i in rows])
    return dominant


def _dominant(problems: Sequence[Weighted]) -> NDArray[np.int_]:
    share = np.stack([p.share for p in problems])
    root, cosines = np.sqrt(share), np.stack([p.cosines for p in problems])
    values, columns = np.linalg.eigh(root[:, :, None] * cosines * root[:, None, :])
    # <u_1, e_a> = sum_b <e_a, e_b> root_b v_b / sqrt(lambda_1), as in `spectrum.spectrum_from_gram`.
    along = np.einsum("nab,nb->na", cosines, root * columns[:, :, -1])
    squared = np.square(along) / values[:, -1:]
    tied = squared >= squared.max(axis=1, keepdims=True) - TIE
    best = np.where(tied, share, -1.0).argmax(axis=1)
    return np.array([p.present[i] for p, i in zip(problems, best, strict=True)])


def _charge(mass: Floats, log_probability: Floats, least: float = 0.0) -> Floats:
    """Return -mass * log p; 0 for a mass up to `least`, even if p is 0."""
    # `where` computes both branches; the NaN of 0 times -inf is discarded.
    with np.errstate(invalid="ignore"):
        return np.where(mass > least, -mass * log_probability, 0.0)


def risks(map_: AnyMap, dev: DevSpectra) -> Floats:
    """Return the matrix log risk of the fitted operator per prompt, (n,), in nats. Lower = better.

    -sum_i c_i log p_i - c_out log q (method, section 3). Infinite if a reference lies outside the span and
    the map gives null directions probability 0.
    """
    log_p, log_q = dev.log_fitted(map_)
    return np.asarray(_charge(dev.alignment, log_p).sum(axis=1) + _charge(dev.outside, log_q, NO_OVERLAP))


def risk(map_: AnyMap, dev: DevSpectra) -> float:
    """Return the mean matrix log risk in nats. Lower = better."""
    return float(risks(map_, dev).mean())


def mean_entropy(map_: AnyMap, dev: DevSpectra) -> float:
    """Return the mean von Neumann entropy of the fitted operators on the full space, in nats."""
    return float(_entropies(*dev.log_fitted(map_), dev).mean())


def served_entropies(map_: AnyMap, dev: DevSpectra) -> Floats:
    """Return the von Neumann entropy of each served spectrum, (n,), in nats. Higher = less certain."""
    return _entropies(*dev.log_served(map_), dev)


def _entropies(log_p: Floats, log_q: Floats, dev: DevSpectra) -> Floats:
    # A depolarized map also gives q to padded columns, which are not eigenvalues of the prompt.
    inside = np.arange(log_p.shape[1]) < dev.rank[:, None]
    p = np.where(inside, np.exp(log_p), 0.0)
    null = np.exp(log_q) * np.maximum(dev.dimension - dev.rank, 0)
    return np.asarray(_charge(p, log_p).sum(axis=1) + _charge(null, log_q))


def served_lambda_max(map_: AnyMap, dev: DevSpectra) -> Floats:
    """Return the largest served eigenvalue per prompt, (n,), in (0, 1]. Higher = more certain."""
    log_p, _ = dev.log_served(map_)
    return np.asarray(np.exp(log_p[:, 0]))


def born_probabilities(map_: AnyMap, candidates: DevSpectra) -> Floats:
    """Return p(y) (n,) in [0, lambda_max] for one text per prompt, under the served spectra.

    candidates: solved with each text in place of the references. p is linear in the target, so several texts
    give their mean.
    """
    log_p, log_q = candidates.log_served(map_)
    inside, outside = _parts(candidates)
    mean = (inside * np.exp(log_p)).sum(axis=1) + outside * np.exp(log_q)
    # As in `born_probability`, only rounding puts this mean above the largest eigenvalue.
    return np.asarray(np.minimum(mean, np.exp(log_p[:, 0])))


def supported(candidates: DevSpectra) -> NDArray[np.bool_]:
    """Return a mask (n,) of the texts, one per prompt, that have a mode: an answer drawn supports them.

    candidates: as in `born_probabilities`. The result does not depend on a map, since maps keep eigenvectors.
    """
    inside, outside = _parts(candidates)
    return is_supported(inside.max(axis=1), outside)


def _parts(candidates: DevSpectra) -> tuple[Floats, Floats]:
    """Return squared lengths on the eigenvectors (n, R) and outside the answers' span (n,)."""
    inside = bounded(candidates.alignment)
    return inside, np.asarray(np.maximum(1.0 - inside.sum(axis=1), 0.0))
