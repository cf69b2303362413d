import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.text_scores import (
    correct_by_rouge_l,
    lexical_similarity,
    pairwise_rouge_l,
    per_word,
    rouge_l,
)
from service.claims.facts import words

TEXTS = ["Paris", "in Paris", "Lyon", "the city of Lyon", ""]


def longest_common(a, b):
    """Return the length of the longest common subsequence by the textbook recurrence."""
    row = [0] * (len(b) + 1)
    for x in a:
        previous = row[:]
        for j, y in enumerate(b):
            row[j + 1] = previous[j] + 1 if x == y else max(previous[j + 1], row[j])
    return row[-1]


sentences = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat"]), max_size=9)


@given(sentences, sentences)
def test_rouge_l_equals_the_definition(a, b):
    common = longest_common(a, b)
    expected = 2 * common / (len(a) + len(b)) if common else 0.0
    assert rouge_l(" ".join(a), [" ".join(b)]) == pytest.approx(expected)


@given(st.text(), st.text())
def test_rouge_l_is_symmetric_bounded_and_one_for_equal_texts(a, b):
    value = rouge_l(a, [b])
    assert 0 <= value <= 1
    assert value == rouge_l(b, [a])
    assert rouge_l(a, [a]) == (1.0 if words(a) else 0.0)


def test_order_of_words_matters():
    assert rouge_l("a b c", ["c b a"]) == pytest.approx(1 / 3)


def test_best_reference_counts():
    assert rouge_l("Sir Winston Churchill", ["Attlee", "Winston Churchill"]) == pytest.approx(0.8)
    assert rouge_l("anything", []) == 0


def test_the_threshold_is_strict():
    answer, reference = "a b c", "a x y z v w r"  # 2 * 1 / (3 + 7) = 0.2
    assert rouge_l(answer, [reference]) == pytest.approx(0.2)
    assert not correct_by_rouge_l(answer, [reference], threshold=0.2)
    assert correct_by_rouge_l(answer, [reference], threshold=0.19)
    assert not correct_by_rouge_l("", ["Winston Churchill"])


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
