"""The kernel that compares answers (method, section 1)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.claims.kernel import COMMON, NEGATION, kernel_of, read_texts
from service.spectral.spectrum import spectrum_from_gram

QUESTION = "What is the capital of Italy?"


def kernel(texts: list[str], question: str = "", num_drawn: int | None = None) -> np.ndarray:
    """Return the kernel (n, n) of texts with equal embeddings: the product of the other factors."""
    return kernel_of(read_texts(texts, question, num_drawn), np.ones((len(texts), 2)))


@pytest.mark.parametrize(
    ("first", "second", "question"),
    [
        ("It takes 5 million dollars", "It takes 5,000,000 dollars", ""),
        ("within 30 days", "30 days at most", ""),
        ("within thirty days", "30 Tage", ""),
        ("It costs $5", "5 dollars", ""),
        ("It costs 5 %", "It costs five per cent", ""),
        ("at 5 pm", "at 17:00", ""),
        ("in twenty-one days", "in 21 days", ""),
        ("minus 5 degrees Celsius", "-5 °C", ""),
        ("five million years", "5,000,000 years", ""),
        ("It is 20 degrees Celsius", "20 °C", ""),
        ("The capital of Italy is Rome.", "It is Rome.", QUESTION),
        ("It is Rome.", "it is rome", QUESTION),  # the name is capitalised in a sample
        ("Not at all", "Never", ""),
        ("It isn't allowed", "It is not allowed", ""),
    ],
)
def test_paraphrases_with_the_same_facts_are_close(first: str, second: str, question: str) -> None:
    assert kernel([first, second], question, 1)[0, 1] == pytest.approx(1.0)


NUMBERS = COMMON / (COMMON + 4.0)
UNITS = (COMMON + 1.0) / (COMMON + 4.0)
NAMES = COMMON / (COMMON + 1.0)  # also of single numbers without units
AMOUNTS = (COMMON + 3.0) / (COMMON + 4.0)


@pytest.mark.parametrize(
    ("first", "second", "question", "expected"),
    [
        ("within 30 days", "within 90 days", "", NUMBERS),
        ("within 30 days", "within 30 months", "", UNITS),
        ("within 30 days", "within 30", "", np.sqrt(UNITS)),
        ("It costs $5", "It costs €5", "", UNITS),
        ("after 90 minutes", "after 1.5 hours", "", AMOUNTS),
        ("within 90 minutes", "within 1.5 days", "", NUMBERS),
        ("at 8 am", "at 8 pm", "", NAMES),
        ("in Python 3.10", "in Python 3.1", "", NAMES),
        ("It is Rome.", "It is Milan.", QUESTION, NAMES),
        ("Rome", "Milan", QUESTION, NAMES),
        ("It is allowed", "It is not allowed", "", NEGATION),
        ("Hunde sind erlaubt", "Hunde sind nicht erlaubt", "", NEGATION),
        ("It is allowed", "It isn't allowed", "Why isn't it allowed?", NEGATION),
        ("Norway", "Norway is not in the EU", "Which country is not in the EU?", 1.0),  # it restates
        ("It is safe", "No doubt it is safe", "", 1.0),
        ("safe", "not safe", "Is it safe? Do not explain.", NEGATION),
        ("the left one", "the right one", "", NAMES),
        ("more than 5", "less than 5", "", (COMMON + 1.0) / (COMMON + 4.0)),
        ("below 1990", "< 1990", "", 1.0),
        ("before 1990", "after 1990", "", (COMMON + 1.0) / (COMMON + 4.0)),
        ("after 3 days", "3 days", "", 1.0),
        ("3-2", "2-3", "", COMMON / np.sqrt((COMMON + 1.0) * (COMMON + 2.0))),
        ("1:2", "2:1", "", NAMES),
        ("03/04/2020", "04/03/2020", "", NAMES),
        ("5 mW", "5 MW", "", UNITS),
        ("It is Paris, or not.\nAnswer: Lyon", "**Lyon**", "", 1.0),
        ("12 May 2024", "2024-05-12", "", 1.0),
        ("12 May 2024", "12 May 2023", "", (COMMON + 1.0) / (COMMON + 5.0)),
        ("made of Steel", "made of Wood", "Is it made of Steel or Wood?", NAMES),  # the question offers both
    ],
)
def test_different_facts_are_far(first: str, second: str, question: str, expected: float) -> None:
    assert kernel([first, second], question)[0, 1] == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text("aBc 019.,-%€ n't not Rome Milan days", max_size=30), min_size=1, max_size=6, unique=True
    ),
    st.text("aBc? or Rome", max_size=20),
    st.integers(0, 1000),
)
def test_kernel_is_positive_semidefinite_for_any_texts(texts: list[str], question: str, seed: int) -> None:
    embeddings = np.random.default_rng(seed).normal(size=(len(texts), 5))
    matrix = kernel_of(read_texts(texts, question), embeddings)
    assert np.diag(matrix) == pytest.approx(np.ones(len(texts)))
    assert np.linalg.eigvalsh(matrix).min() >= -1e-12
    assert spectrum_from_gram(matrix, None, 5).eigenvalues.sum() == pytest.approx(1.0)


def test_long_text_takes_no_quadratic_time() -> None:
    long = "In 1912 Rome had 500 citizens, but not Milan. " * 5000
    assert kernel([long, "Rome"], QUESTION)[0, 0] == pytest.approx(1.0)
