import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import algorithm1 as reference_draws
from lab.algorithm1 import (
    draw_reference,
    drawn_blocks,
    null_directions,
    rescaled_blocks,
    rescaled_shares,
)
from lab.density import DensityStack
from service.spectral.spectrum import DepolarizedMap, Identity, spectrum
from tests.lab.worlds import draw_references


@pytest.fixture
def answers():
    vectors = np.random.default_rng(0).standard_normal((3, 10))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_eigenvectors_are_drawn_with_their_probabilities(answers):
    raw, rng = spectrum(answers, [5, 3, 2]), np.random.default_rng(0)
    served = DepolarizedMap(1.5, 0.4).serve(raw.eigenvalues, 10)
    drawn = draw_reference(answers, raw, served, rng, 4000)
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(1)
    squares = np.square(drawn @ raw.eigenvectors(answers).T)
    assert np.isclose(squares, 0, atol=1e-9).sum() + np.isclose(squares, 1, atol=1e-9).sum() == squares.size
    assert squares.mean(axis=0) == pytest.approx(served.eigenvalues, abs=0.03)
    assert 1 - squares.sum(axis=1).mean() == pytest.approx(7 * served.null_value, abs=0.03)


def test_a_sample_spectrum_never_draws_a_null_direction(answers):
    raw, rng = spectrum(answers), np.random.default_rng(0)
    served = Identity().serve(raw.eigenvalues, 10)
    drawn = draw_reference(answers, raw, served, rng, 200)
    assert np.square(drawn @ raw.eigenvectors(answers).T).sum(axis=1) == pytest.approx(1)


def test_null_directions_are_random_and_orthogonal(answers):
    rng = np.random.default_rng(0)
    basis = spectrum(answers).eigenvectors(answers)
    first, second = null_directions(basis, rng, 2)
    assert basis @ first == pytest.approx(0, abs=1e-14)
    assert abs(first @ second) < 0.999


def test_one_reference_for_each_prompt_and_the_seed_decides(answers):
    stack = DensityStack.of([answers, answers[:1], answers[1:]])
    spectra = [spectrum(stack.vectors[stack.rows(i)]) for i in range(3)]
    served = [DepolarizedMap(1, 0.5).serve(s.eigenvalues, 10) for s in spectra]
    first, second = (draw_references(stack, spectra, served, np.random.default_rng(7)) for _ in range(2))
    assert len(first) == 3
    assert first.vectors.tolist() == second.vectors.tolist()


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
        self.bases = [s.eigenvectors(v) for s, (v, _) in zip(self.spectra, pairs, strict=True)]
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


@given(st.integers(0, 10_000))
def test_rescaled_shares_have_the_served_mean_and_sum_to_one(seed):
    rng = np.random.default_rng(seed)
    shares, expected = rng.dirichlet([2, 1, 3], (6, 20)), rng.dirichlet([2, 2, 2], 6)
    shares_ = rescaled_shares(shares, expected)
    assert shares_.mean(axis=1) == pytest.approx(expected, abs=1e-4)
    assert shares_.sum(axis=2) == pytest.approx(1)
    odds, before = shares_[..., 0] / shares_[..., 2], shares[..., 0] / shares[..., 2]
    assert odds / before == pytest.approx((odds / before)[:, :1].repeat(20, axis=1), rel=1e-3)


def test_calibrated_shares_are_not_changed():
    shares = np.random.default_rng(0).dirichlet([1, 1, 1], (1, 30))
    assert rescaled_shares(shares, shares.mean(axis=1)) == pytest.approx(shares, abs=1e-6)


def test_equal_shares_become_the_expectation_and_unserved_shares_zero():
    inside = np.tile([0.0, 1.0, 0.0], (1, 5, 1))
    assert rescaled_shares(inside, np.array([[0.3, 0.2, 0.5]]))[0, 0] == pytest.approx([0.3, 0.2, 0.5])
    drawn = np.random.default_rng(0).dirichlet([1, 1, 1], (1, 5))
    shares = rescaled_shares(drawn, np.array([[0.4, 0.6, 0.0]]))
    assert shares[..., 2].max() == 0
    assert shares.mean(axis=1)[0] == pytest.approx([0.4, 0.6, 0.0], abs=1e-5)


@pytest.mark.parametrize("map_", [DepolarizedMap(1.2, 0.4), Identity()])
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


def test_rescaled_references_keep_signs_and_outside_direction():
    prompts = Prompts(40)
    served = prompts.served(DepolarizedMap(1.2, 0.4))
    rng = np.random.default_rng(0)
    [block] = rescaled_blocks(prompts.stack, prompts.spectra, served, prompts.targets, rng, 20)
    assert block.bounds.tolist() == prompts.targets.bounds.tolist()
    for row, i in enumerate(np.repeat(np.arange(40), np.diff(prompts.targets.bounds))):
        basis, real = prompts.bases[i], prompts.targets.vectors[row]
        assert (np.sign(block.vectors[:, row] @ basis.T) == np.sign(basis @ real)).all()
        own = real - (basis @ real) @ basis
        outside = block.vectors[:, row] - (block.vectors[:, row] @ basis.T) @ basis
        cosine = outside @ own / np.linalg.norm(outside, axis=1) / np.linalg.norm(own)
        assert cosine == pytest.approx(1)


def test_reference_within_the_span_gets_a_real_outside_direction():
    """Not a random one, because real texts lie in a cone outside the span."""
    prompts = Prompts(40, dimension=60)
    inside = [prompts.stack.vectors[prompts.stack.rows(0)][:1]]
    others = [prompts.targets.vectors[prompts.targets.rows(i)] for i in range(1, 40)]
    targets = DensityStack.of(inside + others)
    served = prompts.served(DepolarizedMap(1, 0.5))
    [block] = rescaled_blocks(prompts.stack, prompts.spectra, served, targets, np.random.default_rng(0), 20)
    basis = prompts.bases[0]
    outside = block.vectors[0, 0] - (basis @ block.vectors[0, 0]) @ basis
    rests = targets.vectors[1:] - (targets.vectors[1:] @ basis.T) @ basis
    cosines = rests @ outside / np.linalg.norm(rests, axis=1) / np.linalg.norm(outside)
    assert cosines.max() == pytest.approx(1)


def test_full_rank_and_rank_one_spectra_are_supported():
    prompts = Prompts(30, dimension=3)
    for map_ in (Identity(), DepolarizedMap(1, 0.5)):
        served = prompts.served(map_)
        blocks = rescaled_blocks(
            prompts.stack, prompts.spectra, served, prompts.targets, np.random.default_rng(0), 20
        )
        assert np.linalg.norm(gathered(blocks), axis=2) == pytest.approx(1)
    sure = DensityStack.of([np.eye(4)[:1]] * 30)
    spectra = [spectrum(np.eye(4)[:1])] * 30
    served = [Identity().serve(s.eigenvalues, 4) for s in spectra]
    targets = DensityStack.of([np.ones(4)] * 30)
    gathered_ = gathered(rescaled_blocks(sure, spectra, served, targets, np.random.default_rng(0), 20))
    assert gathered_[..., 0] == pytest.approx(1)
