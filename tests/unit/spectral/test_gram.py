import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.vectors import eigenvectors, spectrum
from service.spectral.spectrum import alignment, spectrum_from_gram, unit_rows
from tests.support.alignment import reference_alignment
from tests.unit.spectral.worlds import seeds, unit

sizes = st.integers(1, 8)


def dense(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of the d x d density matrix, descending."""
    return np.linalg.eigvalsh((vectors * weights[:, None]).T @ vectors)[::-1]


@settings(deadline=None)
@given(seeds, sizes)
def test_gram_route_equals_the_density_matrix(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, weights = unit(rng, k, 12), rng.dirichlet(np.ones(k))
    spectrum_ = spectrum(vectors, weights)
    assert spectrum_.eigenvalues == pytest.approx(dense(vectors, weights)[: spectrum_.rank], abs=1e-9)
    u = eigenvectors(spectrum_, vectors)
    matrix = (u.T * spectrum_.eigenvalues) @ u
    assert np.abs(matrix - (vectors * weights[:, None]).T @ vectors).max() < 1e-8
    assert spectrum_.projections == pytest.approx(vectors @ u.T, abs=1e-6)


@settings(deadline=None)
@given(seeds, sizes)
def test_alignment_splits_the_reference_into_span_and_rest(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, references = unit(rng, k, 12), unit(rng, 3, 12)
    spectrum_ = spectrum(vectors)
    c, outside = reference_alignment(spectrum_, vectors, references)
    u = eigenvectors(spectrum_, vectors)
    assert c == pytest.approx(np.square(references @ u.T).mean(axis=0), abs=1e-7)
    assert c.sum() + outside == pytest.approx(1.0, abs=1e-7)
    assert alignment(spectrum_, references @ vectors.T)[0] == pytest.approx(c, abs=1e-12)


def test_rows_are_scaled_to_length_one() -> None:
    vectors = unit(np.random.default_rng(2), 5, 9)
    scaled = vectors * np.arange(1, 6)[:, None]
    assert spectrum(scaled).eigenvalues == pytest.approx(spectrum(vectors).eigenvalues, abs=1e-12)
    assert np.linalg.norm(unit_rows(scaled), axis=1) == pytest.approx(np.ones(5), abs=1e-12)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([1.0, 2.0], "matrix"),
        (np.empty((0, 3)), "matrix"),
        ([[0.0, 0.0], [1.0, 0.0]], "zero row"),
        ([[np.nan, 0.0]], "not finite"),
        ([[np.inf, 0.0]], "not finite"),
    ],
)
def test_unusable_vectors_are_refused(vectors: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unit_rows(vectors)


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0], [[1.0, 1.0]]])
def test_unusable_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        spectrum(np.eye(2), weights)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square"),
        (np.full((2, 2), np.nan), "not finite"),
        (np.zeros((2, 2)), "no eigenvalue"),
    ],
)
def test_unusable_gram_matrices_are_refused(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spectrum_from_gram(matrix, None, 2)
