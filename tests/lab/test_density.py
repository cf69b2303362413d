import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.density import DensityStack, frobenius_cosines, frobenius_inner


def ragged(rng, sizes, dimension=12, dtype=np.float64):
    vectors = [rng.standard_normal((size, dimension)).astype(dtype) for size in sizes]
    return vectors, [rng.integers(1, 5, size) for size in sizes]


def dense(vectors, weights):
    """Return the d x d matrices by the definition."""
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    return np.stack([(u.T * (w / w.sum())) @ u for u, w in zip(units, weights, strict=True)])


def dense_cosines(matrices):
    flat = matrices.reshape(len(matrices), -1)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    return flat @ flat.T


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_cosines_equal_flattened_matrices(sizes, block_rows, seed):
    vectors, weights = ragged(np.random.default_rng(seed), sizes)
    stack = DensityStack.of(vectors, weights)
    matrices = dense(vectors, weights)
    inner = frobenius_inner(stack, np.arange(len(sizes)), block_rows=block_rows)
    assert inner == pytest.approx(np.einsum("iab,jab->ij", matrices, matrices), abs=1e-12)
    assert frobenius_cosines(stack) == pytest.approx(dense_cosines(matrices), abs=1e-12)


def test_mean_spectrum_by_either_gram_matrix():
    vectors, weights = ragged(np.random.default_rng(0), [2, 3, 4, 5, 6])
    stack = DensityStack.of(vectors, weights)
    for members in (np.array([1]), np.arange(5)):
        expected = np.linalg.eigvalsh(dense(vectors, weights)[members].mean(axis=0))
        mean_ = stack.mean_spectrum(members)
        assert mean_ == pytest.approx(expected[-mean_.size :], abs=1e-12)
        assert mean_.sum() == pytest.approx(1)


def test_memory_does_not_grow_with_dense_matrices():
    vectors, _ = ragged(np.random.default_rng(0), [20] * 100, 256, np.float32)
    stack = DensityStack.of(vectors)
    tracemalloc.start()
    frobenius_cosines(stack)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 256 * 256 * 4 / 5


@pytest.mark.parametrize(
    ("vectors", "weights", "message"),
    [
        ([], None, "at least one density matrix"),
        ([np.zeros((1, 2))], None, "zero or not finite"),
        ([np.full((1, 2), np.nan)], None, "zero or not finite"),
        ([np.ones((1, 2)), np.ones((0, 2))], None, "at least one vector"),
        ([np.ones((2, 2))], [[1.0]], "one entry per vector"),
        ([np.ones((2, 2))], [[-1.0, 2.0]], "not negative"),
        ([np.ones((2, 2))], [[0.0, 0.0]], "positive sum"),
        ([np.ones((2, 2))], [[np.inf, 1.0]], "finite"),
    ],
)
def test_unusable_input_is_refused(vectors, weights, message):
    with pytest.raises(ValueError, match=message):
        DensityStack.of(vectors, weights)
