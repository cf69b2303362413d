"""Scores of texts: small exact cases and written-out definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.spectral.text_scores import (
    lexical_similarity,
    pairwise_rouge_l,
    per_word,
    rouge_l,
)

TEXTS = ["Paris", "in Paris", "Lyon", "the city of Lyon", ""]


def test_pairs_are_scored_by_rouge_l():
    scores = pairwise_rouge_l(TEXTS)
    for a, b in itertools.combinations(range(len(TEXTS)), 2):
        assert scores[a, b] == pytest.approx(rouge_l(TEXTS[a], [TEXTS[b]]))
    assert np.diagonal(scores).tolist() == [1.0] * len(TEXTS)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_lexical_similarity_is_the_mean_over_pairs_of_samples(counts):
    texts = TEXTS[: len(counts)]
    samples = [text for text, count in zip(texts, counts, strict=True) for _ in range(count)]
    pairs = itertools.combinations(samples, 2)
    expected = np.mean([1.0 if a == b else rouge_l(a, [b]) for a, b in pairs])
    assert lexical_similarity(texts, counts) == pytest.approx(expected)


def test_one_sample_agrees_with_itself():
    assert lexical_similarity(["x"], [1]) == 1.0


def test_log_probabilities():
    assert per_word([-4.0, -3.0, -1.0], ["two words", "one", ""]).tolist() == [-2.0, -3.0, -1.0]
