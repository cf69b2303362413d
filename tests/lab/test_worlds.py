"""Worlds with known answers: calibrated by construction, and with a true T of 2."""

import numpy as np
import pytest

from lab.density import DensityStack
from lab.vectors import Answers, dev_set, spectrum
from service.spectral.fit import fit_temperature
from service.spectral.reliability import label_band, reliability_diagram
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.lab.worlds import draw_references

DIMENSION, SAMPLES = 16, 6


class World:
    """Prompts with references drawn from the served density matrix of their spectra."""

    def __init__(self, truth, prompts, seed):
        self.rng = np.random.default_rng(seed)
        common = 1.5 * self.rng.standard_normal((prompts, 1, DIMENSION)) * self.rng.random((prompts, 1, 1))
        self.vectors = list(self.rng.standard_normal((prompts, SAMPLES, DIMENSION)) + common)
        self.spectra = [spectrum(v) for v in self.vectors]
        self.stack = DensityStack.of(self.vectors)
        self.truth = [truth.fitted(s.eigenvalues, DIMENSION) for s in self.spectra]

    def dev(self):
        """Return the dev set with freshly drawn references."""
        drawn = draw_references(self.stack, self.spectra, self.truth, self.rng)
        index = np.arange(SAMPLES)
        pairs = zip(self.vectors, drawn.vectors, strict=True)
        return dev_set([Answers(v, index, y[None]) for v, y in pairs], DIMENSION)

    def largest(self, map_):
        """Return the largest eigenvalue of each prompt under a map."""
        return np.array([map_.fitted(s.eigenvalues, DIMENSION).lambda_max for s in self.spectra])


def test_projection_ece_is_in_its_band_at_least_90_percent_of_the_time():
    truth = DepolarizedMap(1.3, 0.3)
    world = World(truth, 150, seed=0)
    predicted = world.largest(truth)
    inside = 0
    for _ in range(100):
        c1 = np.clip(world.dev().alignment[:, 0], 0, 1)
        band = label_band(predicted, world.rng, num_draws=200)
        inside += band.holds(reliability_diagram(predicted, c1).ece)
    assert inside >= 90


def test_raw_spectrum_is_outside_the_band_and_the_fit_recovers_t_of_two():
    for seed in range(5):
        world = World(TemperatureMap(2.0), 300, seed)
        dev = world.dev()
        c1, raw = np.clip(dev.alignment[:, 0], 0, 1), world.largest(TemperatureMap(1.0))
        assert reliability_diagram(raw, c1).ece > label_band(raw, world.rng).ece_high
        assert fit_temperature(dev).map.temperature == pytest.approx(2.0, rel=0.25)
