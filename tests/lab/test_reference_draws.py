import numpy as np
import pytest

from lab import algorithm1 as reference_draws
from lab.algorithm1 import (
    draw_reference,
    drawn_blocks,
    rescaled_blocks,
)
from lab.density import DensityStack
from lab.vectors import eigenvectors, spectrum
from service.spectral.spectrum import DepolarizedMap, TemperatureMap


@pytest.fixture
def answers():
    vectors = np.random.default_rng(0).standard_normal((3, 10))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_eigenvectors_are_drawn_with_their_probabilities(answers):
    raw, rng = spectrum(answers, [5, 3, 2]), np.random.default_rng(0)
    served = DepolarizedMap(1.5, 0.4).serve(raw.eigenvalues, 10)
    drawn = draw_reference(answers, raw, served, rng, 4000)
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(1)
    squares = np.square(drawn @ eigenvectors(raw, answers).T)
    assert np.isclose(squares, 0, atol=1e-9).sum() + np.isclose(squares, 1, atol=1e-9).sum() == squares.size
    assert squares.mean(axis=0) == pytest.approx(served.eigenvalues, abs=0.03)
    assert 1 - squares.sum(axis=1).mean() == pytest.approx(7 * served.null_value, abs=0.03)


class Prompts:
    """Prompts with answers and references in a cone; every other prompt has two references."""

    def __init__(self, size, dimension=12, seed=0):
        rng = np.random.default_rng(seed)
        vectors = [rng.standard_normal((3, dimension)) + 2 for _ in range(size)]
        self.stack = DensityStack.of(vectors, [rng.integers(1, 9, 3) for _ in range(size)])
        pairs = [
            (self.stack.vectors[self.stack.rows(i)], self.stack.weights[self.stack.rows(i)])
            for i in range(size)
        ]
        self.spectra = [spectrum(v, w) for v, w in pairs]
        self.bases = [eigenvectors(s, v) for s, (v, _) in zip(self.spectra, pairs, strict=True)]
        self.targets = DensityStack.of([rng.standard_normal((1 + i % 2, dimension)) + 2 for i in range(size)])

    def served(self, map_):
        return [map_.serve(s.eigenvalues, self.stack.dimension) for s in self.spectra]


def gathered(blocks):
    return np.concatenate([block.vectors for block in blocks])


def test_blocks_contain_all_worlds_for_any_block_size(monkeypatch):
    prompts = Prompts(5)
    served = prompts.served(DepolarizedMap(1, 0.4))
    monkeypatch.setattr(reference_draws, "BLOCK_ENTRIES", 5 * 12 * 7)
    rng = np.random.default_rng(0)
    drawn = gathered(drawn_blocks(prompts.stack, prompts.spectra, served, rng, 20))
    assert drawn.shape == (20, 5, 12)
    rescaled = gathered(rescaled_blocks(prompts.stack, prompts.spectra, served, prompts.targets, rng, 20))
    assert rescaled.shape == (20, 7, 12)
    for result in (drawn, rescaled):
        assert np.linalg.norm(result, axis=2) == pytest.approx(1)


@pytest.mark.parametrize("map_", [DepolarizedMap(1.2, 0.4), TemperatureMap(1.0)])
def test_rescaled_references_have_the_served_spectrum_as_their_expectation(map_):
    prompts = Prompts(40)
    served = prompts.served(map_)
    rng = np.random.default_rng(0)
    gathered_ = gathered(rescaled_blocks(prompts.stack, prompts.spectra, served, prompts.targets, rng, 3000))
    for row, i in enumerate(np.repeat(np.arange(40), np.diff(prompts.targets.bounds))):
        squares = np.square(gathered_[:, row] @ prompts.bases[i].T)
        assert squares.mean(axis=0) == pytest.approx(served[i].eigenvalues, abs=0.02)
        assert 1 - squares.sum(axis=1).mean() == pytest.approx(
            served[i].null_count * served[i].null_value, abs=0.02
        )
        assert squares[:, 0].std() > 0  # as real ones vary


def test_full_rank_and_rank_one_spectra_are_supported():
    prompts = Prompts(30, dimension=3)
    for map_ in (TemperatureMap(1.0), DepolarizedMap(1, 0.5)):
        served = prompts.served(map_)
        blocks = rescaled_blocks(
            prompts.stack, prompts.spectra, served, prompts.targets, np.random.default_rng(0), 20
        )
        assert np.linalg.norm(gathered(blocks), axis=2) == pytest.approx(1)
    sure = DensityStack.of([np.eye(4)[:1]] * 30)
    spectra = [spectrum(np.eye(4)[:1])] * 30
    served = [TemperatureMap(1.0).serve(s.eigenvalues, 4) for s in spectra]
    targets = DensityStack.of([np.ones(4)] * 30)
    gathered_ = gathered(rescaled_blocks(sure, spectra, served, targets, np.random.default_rng(0), 20))
    assert gathered_[..., 0] == pytest.approx(1)
