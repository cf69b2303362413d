"""Equal answers are one outcome; all empty answers are another."""

import numpy as np
import pytest

from service.embedding.port import distinct, outcome_vectors, supplied_draws, texts_to_embed, totals
from service.llm.port import Draw
from service.spectral.spectrum import spectrum


def test_distinct_keeps_the_order_of_appearance() -> None:
    texts, index = distinct(["b", "a", "b", "", "a", ""])
    assert texts == ["b", "a", ""]
    assert index.tolist() == [0, 1, 0, 2, 1, 2]
    assert texts_to_embed(texts, "outcome") == ["b", "a"]
    assert texts_to_embed(texts, "embedded") == texts


def test_an_empty_answer_is_orthogonal_to_every_other() -> None:
    embedded = np.eye(3, dtype=np.float32)[:2]
    vectors = outcome_vectors(["b", "", "a"], embedded)
    assert vectors.shape == (3, 4)
    assert np.array_equal(vectors @ vectors.T, np.eye(3))
    assert np.array_equal(vectors[[0, 2], :3], embedded)


def test_vectors_are_unchanged_without_empty_answers() -> None:
    embedded = np.ones((2, 3), dtype=np.float32)
    assert outcome_vectors(["a", "b"], embedded) is embedded


def test_embedded_empty_answer_keeps_its_vector() -> None:
    embedded = np.ones((2, 3), dtype=np.float32)
    assert outcome_vectors(["a", ""], embedded) is embedded


@pytest.mark.parametrize("number", [1, 4])
def test_only_empty_answers_are_one_outcome(number: int) -> None:
    texts, index = distinct([""] * number)
    vectors = outcome_vectors(texts, np.empty((0, 3), dtype=np.float32))
    spectrum_ = spectrum(vectors, np.bincount(index), dimension=3)
    assert spectrum_.eigenvalues.tolist() == [1.0]
    assert spectrum_.dimension == 3


def test_supplied_answers_are_stripped_and_keep_their_log_probabilities() -> None:
    assert supplied_draws([" a\n", " "]) == (Draw("a"), Draw(""))
    draws = supplied_draws([" a\n", " "], [-1.5, 0.005])
    assert draws == (Draw("a", total_logprob=-1.5), Draw("", total_logprob=0.005))
    assert totals(draws) == (-1.5, 0.005)
    with pytest.raises(ValueError, match="shorter"):
        supplied_draws(["a", "b"], [-1.0])


def test_totals_exist_for_all_answers_or_none() -> None:
    assert totals([]) is None
    assert totals([Draw("a", total_logprob=-1.0), Draw("b")]) is None
    assert totals([Draw("a", total_logprob=0.0)]) == (0.0,)
