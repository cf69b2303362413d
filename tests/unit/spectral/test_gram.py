import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.spectrum import (
    RANK_TOLERANCE,
    Identity,
    alignment,
    gram,
    shares,
    spectrum,
    spectrum_from_gram,
    unit_rows,
)
from tests.support.alignment import reference_alignment
from tests.unit.spectral.worlds import seeds, unit

sizes = st.integers(1, 8)


def dense(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of the d x d density matrix, descending."""
    return np.linalg.eigvalsh((vectors * weights[:, None]).T @ vectors)[::-1]


def test_weights_are_normalised() -> None:
    assert shares([1, 3], 2) == pytest.approx([0.25, 0.75])


def test_four_equal_answers_are_certain() -> None:
    spectrum_ = spectrum(np.tile([0.6, 0.8, 0.0], (4, 1)))
    served = Identity().serve(spectrum_.eigenvalues, spectrum_.dimension)
    assert spectrum_.rank == 1
    assert served.lambda_max == pytest.approx(1.0, abs=1e-12)
    assert served.entropy == pytest.approx(0.0, abs=1e-12)


def test_four_orthogonal_answers_have_maximal_entropy() -> None:
    served = Identity().serve(spectrum(np.eye(4, 9)).eigenvalues, 9)
    assert served.lambda_max == pytest.approx(0.25, abs=1e-12)
    assert served.entropy == pytest.approx(np.log(4), abs=1e-12)
    assert served.entropy_normalized(4) == pytest.approx(1.0, abs=1e-12)


@settings(deadline=None)
@given(seeds, sizes)
def test_gram_route_equals_the_density_matrix(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, weights = unit(rng, k, 12), rng.dirichlet(np.ones(k))
    spectrum_ = spectrum(vectors, weights)
    assert spectrum_.eigenvalues == pytest.approx(dense(vectors, weights)[: spectrum_.rank], abs=1e-9)
    u = spectrum_.eigenvectors(vectors)
    matrix = (u.T * spectrum_.eigenvalues) @ u
    assert np.abs(matrix - (vectors * weights[:, None]).T @ vectors).max() < 1e-8
    assert spectrum_.projections == pytest.approx(vectors @ u.T, abs=1e-6)


@settings(deadline=None)
@given(seeds, sizes)
def test_rotation_and_order_of_the_answers_change_nothing(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, counts, references = unit(rng, k, 10), rng.integers(1, 5, k), unit(rng, 2, 10)
    rotation = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    order = rng.permutation(k)
    before, after = spectrum(vectors, counts), spectrum(vectors[order] @ rotation, counts[order])
    assert after.eigenvalues == pytest.approx(before.eigenvalues, abs=1e-9)
    outside = reference_alignment(before, vectors, references)[1]
    turned = reference_alignment(after, vectors[order] @ rotation, references @ rotation)[1]
    assert turned == pytest.approx(outside, abs=1e-6)


@settings(deadline=None)
@given(seeds, sizes)
def test_repeated_rows_equal_weights(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, counts = unit(rng, k, 10), rng.integers(1, 5, k)
    repeated = spectrum(np.repeat(vectors, counts, axis=0))
    weighted = spectrum(vectors, counts)
    assert repeated.rank == weighted.rank
    assert repeated.eigenvalues == pytest.approx(weighted.eigenvalues, abs=1e-10)


@settings(deadline=None)
@given(seeds, sizes)
def test_bounds_of_the_scores(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    spectrum_ = spectrum(unit(rng, k, 10))
    served = Identity().serve(spectrum_.eigenvalues, 10)
    assert spectrum_.eigenvalues.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(spectrum_.eigenvalues) <= 0).all()
    assert 1 / k - 1e-12 <= served.lambda_max <= 1 + 1e-12
    assert -1e-12 <= served.entropy <= np.log(k) + 1e-12


@settings(deadline=None)
@given(seeds, sizes)
def test_alignment_splits_the_reference_into_span_and_rest(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, references = unit(rng, k, 12), unit(rng, 3, 12)
    spectrum_ = spectrum(vectors)
    c, outside = reference_alignment(spectrum_, vectors, references)
    u = spectrum_.eigenvectors(vectors)
    assert c == pytest.approx(np.square(references @ u.T).mean(axis=0), abs=1e-7)
    assert c.sum() + outside == pytest.approx(1.0, abs=1e-7)
    assert alignment(spectrum_, references @ vectors.T)[0] == pytest.approx(c, abs=1e-12)


def test_a_reference_among_the_answers_lies_inside() -> None:
    vectors = unit(np.random.default_rng(0), 4, 12)
    _, outside = reference_alignment(spectrum(vectors), vectors, vectors[2:3])
    assert outside == pytest.approx(0.0, abs=1e-12)


def test_float32_rounding_adds_no_eigenvalue() -> None:
    rng = np.random.default_rng(1)
    row = unit(rng, 1, 768).astype(np.float32)
    noisy = np.repeat(row, 6, axis=0) + rng.uniform(-1, 1, (6, 768)).astype(np.float32) * np.float32(3e-8)
    assert len(np.unique(noisy, axis=0)) == 6
    assert spectrum(noisy).rank == 1


def test_rows_are_scaled_to_length_one() -> None:
    vectors = unit(np.random.default_rng(2), 5, 9)
    scaled = vectors * np.arange(1, 6)[:, None]
    assert spectrum(scaled).eigenvalues == pytest.approx(spectrum(vectors).eigenvalues, abs=1e-12)
    assert gram(scaled).diagonal() == pytest.approx(np.ones(5), abs=1e-12)


def test_signs_of_eigenvectors_are_fixed() -> None:
    vectors = unit(np.random.default_rng(3), 5, 9)
    assert spectrum(vectors).combination == pytest.approx(spectrum(-vectors).combination, abs=1e-9)


def test_the_dimension_is_never_below_the_rank() -> None:
    assert spectrum(np.eye(3), dimension=2).dimension == 3
    assert spectrum(np.eye(3), dimension=768).dimension == 768
    assert spectrum(np.eye(3, 5)).dimension == 5


def test_answer_with_zero_weight_does_not_count() -> None:
    vectors = unit(np.random.default_rng(4), 3, 9)
    spectrum_ = spectrum(vectors, [2, 1, 0])
    assert spectrum_.eigenvalues == pytest.approx(spectrum(vectors[:2], [2, 1]).eigenvalues, abs=1e-12)
    assert spectrum_.projections.shape == (3, 2)


def test_the_tolerance_is_an_argument() -> None:
    assert spectrum([[1.0, 0.0], [1.0, 1e-3]]).rank == 2
    assert spectrum([[1.0, 0.0], [1.0, 1e-3]], tolerance=1e-5).rank == 1
    assert spectrum([[1.0, 0.0], [1.0, 0.1 * RANK_TOLERANCE**0.5]]).rank == 1


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
