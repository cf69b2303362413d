"""Null distributions of the projection ECE in calibrated worlds, and with a wrong temperature.

    python -m benchmarks.nulls [WORLDS]

Worlds are calibrated by construction: lambda_max is served by a map, and c_1 has this mean and the spread of
the recorded c_1 at similar lambda_max. Without the recorded data next to the checkout, both are synthetic.
"""

import sys
from dataclasses import dataclass

import numpy as np

from benchmarks.spectral_worlds import prompts, recorded
from lab.vectors import Answers, dev_set, spectrum
from service.spectral.fit import fit
from service.spectral.reliability import (
    bin_index,
    equal_mass_bins,
    neighbourhoods,
    projection_null,
)
from service.spectral.spectrum import CalibrationMap, DepolarizedMap, Spectrum, TemperatureMap

FITTED, DRAWS, OFF = 150, 1000, 1.5
SIZES = (30, 100, 250)


@dataclass(frozen=True)
class Rows:
    """Prompts with their spectra, c_1, and maps fitted on the first prompts."""

    answers: list[Answers]
    spectra: list[Spectrum]
    c1: np.ndarray
    maps: dict[str, CalibrationMap]

    def largest(self, map_: CalibrationMap) -> np.ndarray:
        served = [map_.serve(spectrum_.eigenvalues, spectrum_.dimension) for spectrum_ in self.spectra]
        return np.clip([served_.lambda_max for served_ in served], 0.0, 1.0)


def rows() -> Rows:
    recorded_ = recorded(400)
    answers = recorded_ or prompts(400, 20, 0.5)
    dimension = answers[0].vectors.shape[1]
    c1 = np.clip(dev_set(answers, dimension).alignment[:, 0], 0.0, 1.0)
    first = dev_set(answers[:FITTED], dimension)
    maps: dict[str, CalibrationMap] = {"raw": TemperatureMap(1.0)}
    maps |= {name: fit(first, name).map for name in ("temperature", "depolarized")}
    spectra = [spectrum(a.vectors, np.bincount(a.index)) for a in answers]
    return Rows(answers, spectra, c1, maps)


class Worlds:
    """Worlds that are calibrated for the map `truth` but served with `served`, resampled from all rows."""

    def __init__(self, of: Rows, truth: CalibrationMap, served: CalibrationMap) -> None:
        self.true, self.served = of.largest(truth), of.largest(served)
        near = neighbourhoods(self.true, np.random.default_rng(0))
        self.residuals = of.c1[near] - of.c1[near].mean(axis=1, keepdims=True)

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the served lambda_max and c_1, (size,) each."""
        picked = rng.permutation(self.true.size)[:size]
        column = rng.integers(0, self.residuals.shape[1], size)
        return self.served[picked], self.true[picked] + self.residuals[picked, column]


def ece(lambda_max: np.ndarray, c1: np.ndarray) -> float:
    """Return the projection ECE. c_1 of a world may slightly exceed [0, 1], which does not bias means."""
    bins = bin_index(lambda_max, equal_mass_bins(lambda_max, 8))
    return float(np.abs(np.bincount(bins, weights=c1 - lambda_max)).sum() / lambda_max.size)


def trial(worlds: Worlds, size: int, count: int) -> dict[str, float]:
    rng = np.random.default_rng(size)
    figures = []
    for _ in range(count):
        lambda_max, c1 = worlds.draw(size, rng)
        null = projection_null(lambda_max, c1, rng, num_draws=DRAWS)
        band, read = null.band, ece(lambda_max, c1)
        width, rejected = band.ece_high - band.ece_low, null.p_value <= 0.05
        figures.append((read, band.ece_mean, width, band.holds(read), rejected))
    names = ("read", "told", "width", "inside", "rejected")
    return dict(zip(names, np.mean(figures, axis=0).tolist(), strict=True))


def line(label: str, size: int, figures: dict[str, float], count: int) -> str:
    error = (figures["inside"] * (1 - figures["inside"]) / count) ** 0.5
    return (
        f"{label:34} {size:4}  {figures['read']:.4f}  {figures['told']:.4f}  {figures['width']:.4f}  "
        f"{figures['inside']:.3f} +- {error:.3f}  {figures['rejected']:.3f}"
    )


def off(map_: CalibrationMap, factor: float) -> CalibrationMap:
    """Return the map with its temperature multiplied by a factor."""
    if isinstance(map_, DepolarizedMap):
        return DepolarizedMap(map_.temperature * factor, map_.depolarization)
    assert isinstance(map_, TemperatureMap)
    return TemperatureMap(map_.temperature * factor, map_.eps)


def simulated(of: Rows, count: int) -> None:
    print(f"{count} worlds a line; inside: ECE in the 95 % band; rejected: p <= 0.05")
    print(f"{'world':34} {'n':>4}  {'ECE':6}  {'null':6}  {'width':6}  {'inside':14}  rejected")
    for name in ("depolarized", "temperature"):
        truth = of.maps[name]
        cases = {"calibrated": 1.0, f"T x {OFF}": OFF, f"T / {OFF}": 1 / OFF}
        for case, factor in cases.items():
            worlds = Worlds(of, truth, off(truth, factor))
            for size in SIZES:
                figures = trial(worlds, size, count)
                print(line(f"{name}, {case}", size, figures, count), flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    of = rows()
    simulated(of, count)


if __name__ == "__main__":
    main()
