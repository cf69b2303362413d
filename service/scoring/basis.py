"""What a score rests on: the answers drawn, their spectrum, the calibration applied, the time it took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.calibration.calibration import Calibration, Method
from service.embedding.outcomes import log_probabilities
from service.llm.port import Draw, Generation
from service.scoring.command import ScoreCommand
from service.scoring.score import Evidence, Mode
from service.spectral.evidence import EvidenceMap, mean_log_probability, missing_mass
from service.spectral.maps import DepolarizedMap, Identity, ServedSpectrum, TemperatureMap
from service.spectral.spectrum import Spectrum

MAX_MODES = 5


@dataclass(frozen=True, slots=True)
class Applied:
    """The calibration that a score used: the map for its number of answers, and for its evidence.

    `evidence`: the one that `map` was made by; None where the answers have no log-probabilities, or the
    calibration needs none.
    """

    calibration: Calibration
    map: DepolarizedMap | TemperatureMap
    evidence: EvidenceMap | None = None

    @property
    def method(self) -> Method:
        """Return how the score was served, which without log-probabilities is not by evidence."""
        if self.evidence is not None:
            return "evidence"
        return "depolarized" if isinstance(self.map, DepolarizedMap) else "temperature"


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The answers and what was made of them. `served` is what to act on, `raw` the spectrum as it came.

    `texts`: the distinct answers.
    """

    generation: Generation
    texts: Sequence[str]
    raw: ServedSpectrum
    served: ServedSpectrum
    applied: Applied | None
    evidence: Evidence | None
    modes: tuple[Mode, ...]

    @property
    def answer(self) -> str:
        """Return the answer most aligned with the dominant eigenvector."""
        return self.modes[0].answer


def basis_of(
    spectrum: Spectrum,
    texts: Sequence[str],
    counts: NDArray[np.int_],
    generation: Generation,
    applied: Applied | None,
    evidence: Evidence | None,
) -> Basis:
    """Return what a score of these answers rests on."""
    raw = Identity().serve(spectrum.eigenvalues, spectrum.dimension)
    served = applied.map.serve(spectrum.eigenvalues, spectrum.dimension) if applied else raw
    modes = find_modes(spectrum, served, texts, counts)
    return Basis(generation, texts, raw, served, applied, evidence, modes)


def evidence_of(draws: Sequence[Draw], index: NDArray[np.int_]) -> Evidence | None:
    """Return the evidence of the answers, None unless each has a log-probability.

    index: (m,) which distinct text each answer is.
    """
    totals = log_probabilities(draws)
    return (
        None
        if totals is None
        else Evidence(missing_mass=missing_mass(totals, index), mean_logprob=mean_log_probability(totals))
    )


def find_modes(
    spectrum: Spectrum, served: ServedSpectrum, texts: Sequence[str], counts: NDArray[np.int_]
) -> tuple[Mode, ...]:
    """Return a mode for each of the leading eigenvectors (at most MAX_MODES), largest eigenvalue first.

    The answer of a mode is the one with the largest squared projection, ties to the most frequent.
    """
    squared = np.square(spectrum.projections)
    share = shares_by_mode(spectrum)
    modes = []
    for i in range(min(spectrum.rank, MAX_MODES)):
        # Equal but for rounding.
        tied = np.flatnonzero(squared[:, i] >= squared[:, i].max() - 1e-9)
        best = tied[np.argmax(counts[tied])]
        modes.append(
            Mode.model_construct(
                probability=float(served.eigenvalues[i]), share=float(share[i]), answer=texts[best]
            )
        )
    return tuple(modes)


def shares_by_mode(spectrum: Spectrum) -> NDArray[np.float64]:
    """Return the shares (r,) of the answers that lie closest to each eigenvector; they sum to 1."""
    nearest = np.square(spectrum.projections).argmax(axis=1)
    return np.bincount(nearest, weights=spectrum.weights, minlength=spectrum.rank).astype(np.float64)


class Stopwatch:
    """Where the time of a score went: seconds by stage, from the arrival of the request on."""

    def __init__(self, start: float | None = None) -> None:
        self._start = self._last = time.perf_counter() if start is None else start
        self.laps: dict[str, float] = {}

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start

    def lap(self, stage: str) -> None:
        """Close a stage."""
        now = time.perf_counter()
        self.laps[stage] = now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds of one stage to another."""
        # `seconds` was not measured between laps, so it may be more than the stage has.
        moved = min(seconds, self.laps[source])
        self.laps[source] -= moved
        self.laps[target] += moved

    def resume(self) -> None:
        """Leave out the time since the last stage: nothing was done in it."""
        gap = time.perf_counter() - self._last
        self._start += gap
        self._last += gap

    def total(self) -> dict[str, float]:
        """Return the laps and their total."""
        return {**self.laps, "total": self._last - self._start}


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Answers that wait to be scored, and the command that asked for them.

    `chosen`: the calibration that it names, None for the active one or none. `marks`: the time until now.
    """

    command: ScoreCommand
    chosen: Calibration | None
    generation: Generation
    marks: Stopwatch
