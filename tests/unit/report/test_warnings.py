"""Warnings about few answers of a kind, and about files that are not alike."""

import numpy as np
import pytest

from service.evaluation.experiments import files_differ
from service.report.words import few_of_a_kind


def labels(right, size=100):
    return np.arange(size) < right


def codes(found):
    return [one["code"] for one in found]


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (0, []),  # one kind alone is another warning
        (1, ["few_right"]),
        (19, ["few_right"]),
        (20, []),
        (80, []),
        (81, ["few_wrong"]),
        (99, ["few_wrong"]),
        (100, []),
    ],
)
def test_few_of_a_kind_are_warned_of(right, expected):
    assert codes(few_of_a_kind(labels(right))) == expected


def test_the_warning_names_the_file_and_how_many():
    [told] = few_of_a_kind(labels(11), " of the test file")
    assert told["text"].startswith("Only 11 of 100 answers of the test file are right: ")


def test_a_small_file_may_have_few_of_both():
    found = list(few_of_a_kind(labels(11, 25)))
    assert codes(found) == ["few_right", "few_wrong"]
    assert found[0]["text"].startswith("Only 11 of 25 answers are right")


def differ(right=(30, 30), shift=0.0, size=100):
    rng = np.random.default_rng(0)
    lambda_max = rng.uniform(0.2, 0.8, size), rng.uniform(0.2, 0.8, size) + shift
    return list(files_differ((labels(right[0], size), labels(right[1], size)), lambda_max))


def test_files_that_are_alike_are_not_warned_of():
    assert differ() == []
    assert differ(right=(30, 35), shift=0.01) == []


def test_files_that_differ_are_named_by_what_differs():
    [accuracy] = differ(right=(10, 40))
    assert accuracy["code"] == "files_differ_accuracy"
    assert "0.100 against 0.400 (p = 1e-06)" in accuracy["text"]  # Fisher's exact test of 10:90 and 40:60
    [largest] = differ(shift=0.15)
    assert largest["code"] == "files_differ_lambda_max"
    assert codes(differ(right=(10, 40), shift=0.15)) == ["files_differ_accuracy", "files_differ_lambda_max"]


def test_alike_files_are_called_different_once_in_fifty_at_most():
    rng, warned = np.random.default_rng(1), 0
    for _ in range(300):
        right = rng.random(120) < 0.2, rng.random(150) < 0.2
        warned += bool(list(files_differ(right, (rng.beta(3, 2, 120), rng.beta(3, 2, 150)))))
    assert warned <= 12  # expected: under 6


@pytest.mark.parametrize("values", [(np.ones(40), np.ones(50)), (np.array([0.3]), np.ones(50))])
def test_no_spread_is_no_difference(values):
    assert list(files_differ((labels(5, 40), labels(6, 50)), values)) == []
