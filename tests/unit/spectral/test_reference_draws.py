import numpy as np
import pytest

from service.spectral.density import DensityStack
from service.spectral.gram import spectrum
from service.spectral.maps import DepolarizedMap, Identity
from service.spectral.reference_draws import draw_reference, draw_references, null_direction


@pytest.fixture
def answers():
    vectors = np.random.default_rng(0).standard_normal((3, 10))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_eigenvectors_come_with_their_probabilities(answers):
    raw, rng = spectrum(answers, [5, 3, 2]), np.random.default_rng(0)
    served = DepolarizedMap(1.5, 0.4).serve(raw.eigenvalues, 10)
    drawn = np.stack([draw_reference(answers, raw, served, rng) for _ in range(4000)])
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(1)
    found = np.square(drawn @ raw.eigenvectors(answers).T)
    assert np.isclose(found, 0, atol=1e-9).sum() + np.isclose(found, 1, atol=1e-9).sum() == found.size
    assert found.mean(axis=0) == pytest.approx(served.eigenvalues, abs=0.03)
    assert 1 - found.sum(axis=1).mean() == pytest.approx(7 * served.null_value, abs=0.03)


def test_a_sample_spectrum_never_draws_a_null_direction(answers):
    raw, rng = spectrum(answers), np.random.default_rng(0)
    served = Identity().serve(raw.eigenvalues, 10)
    drawn = np.stack([draw_reference(answers, raw, served, rng) for _ in range(200)])
    assert np.square(drawn @ raw.eigenvectors(answers).T).sum(axis=1) == pytest.approx(1)


def test_null_directions_are_random_and_orthogonal(answers):
    rng = np.random.default_rng(0)
    basis = spectrum(answers).eigenvectors(answers)
    first, second = null_direction(basis, rng), null_direction(basis, rng)
    assert basis @ first == pytest.approx(0, abs=1e-14)
    assert abs(first @ second) < 0.999


def test_one_reference_for_each_prompt_and_the_seed_decides(answers):
    stack = DensityStack.of([answers, answers[:1], answers[1:]])
    spectra = [spectrum(stack.vectors[stack.rows(i)]) for i in range(3)]
    served = [DepolarizedMap(1, 0.5).serve(s.eigenvalues, 10) for s in spectra]
    first, second = (draw_references(stack, spectra, served, np.random.default_rng(7)) for _ in range(2))
    assert len(first) == 3
    assert first.vectors.tolist() == second.vectors.tolist()
