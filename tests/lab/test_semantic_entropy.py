"""Entropies of meanings: small exact cases and written-out definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.semantic_entropy import (
    class_shares,
    discrete_entropy,
    heat_kernel,
    kernel_entropy,
    kernel_language_entropy,
    sample_graph,
    semantic_classes,
    semantic_entropy,
)


def expm(matrix):
    """Return the matrix exponential by its series, with scaling and squaring."""
    small, out = matrix / 2**10, np.eye(len(matrix))
    term = np.eye(len(matrix))
    for k in range(1, 20):
        term = term @ small / k
        out = out + term
    return np.linalg.matrix_power(out, 2**10)


def symmetric(seed, size=5):
    raw = np.random.default_rng(seed).random((size, size))
    return (raw + raw.T) / 2


def test_two_classes_of_equal_share():
    same = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    assert semantic_classes(same).tolist() == [0, 0, 1]
    assert semantic_entropy(same, [1, 2, 3]) == pytest.approx(np.log(2))


def test_one_class_is_certain_and_all_different_uncertain():
    assert semantic_entropy(np.ones((3, 3)), [5, 1, 1]) == 0.0
    assert semantic_entropy(np.eye(4), [1, 1, 1, 1]) == pytest.approx(np.log(4))


def test_answer_joins_a_class_only_with_entailment_in_both_directions():
    one_way = np.array([[1, 1], [0, 1]])
    assert semantic_classes(one_way).tolist() == [0, 1]


def test_answer_is_compared_with_the_first_member_of_a_class():
    chain = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    assert semantic_classes(chain).tolist() == [0, 0, 1]


def test_shares_count_samples():
    assert class_shares(np.array([0, 1, 0]), [1, 2, 1]).tolist() == [0.5, 0.5]
    assert discrete_entropy([0.5, 0.5, 0.0]) == pytest.approx(np.log(2))
    with pytest.raises(ValueError, match="square"):
        semantic_classes(np.ones((2, 3)))


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 2.0))
def test_the_heat_kernel_is_the_exponential_of_the_laplacian(seed, time):
    graph = symmetric(seed)
    np.fill_diagonal(graph, 0.0)
    laplacian = np.diag(graph.sum(axis=1)) - graph
    assert heat_kernel(graph, time) == pytest.approx(expm(-time * laplacian), abs=1e-8)


def test_graph_without_edges_is_uncertain_and_complete_hot_graph_certain():
    assert kernel_entropy(heat_kernel(np.zeros((4, 4)))) == pytest.approx(np.log(4))
    whole = 1.0 - np.eye(4)
    assert kernel_entropy(heat_kernel(whole, 50.0)) == pytest.approx(0.0, abs=1e-6)


def test_repeated_answers_are_separate_nodes():
    similarity, index = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 0, 1])
    graph = sample_graph(similarity, index)
    assert graph.tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]]
    assert kernel_language_entropy(similarity, index) < np.log(3)


@given(st.integers(0, 2**32 - 1))
def test_kernel_entropy_is_in_range_and_independent_of_order(seed):
    rng = np.random.default_rng(seed)
    similarity, index = symmetric(seed, 4), rng.integers(0, 4, 9)
    entropy = kernel_language_entropy(similarity, index)
    assert 0 <= entropy <= np.log(9) + 1e-9
    assert kernel_language_entropy(similarity, rng.permutation(index)) == pytest.approx(entropy, abs=1e-9)


def test_invalid_kernel_is_refused():
    with pytest.raises(ValueError, match="time"):
        heat_kernel(np.zeros((2, 2)), 0.0)
    with pytest.raises(ValueError, match="negative"):
        sample_graph([[1.0, -1.0], [-1.0, 1.0]], np.array([0, 1]))
