"""Warnings about few answers of one kind."""

import numpy as np
import pytest

from service.report.words import few_of_a_kind


def labels(right, size=100):
    return np.arange(size) < right


def codes(warnings):
    return [warning["code"] for warning in warnings]


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (0, []),  # a single kind gives another warning
        (1, ["few_right"]),
        (19, ["few_right"]),
        (20, []),
        (80, []),
        (81, ["few_wrong"]),
        (99, ["few_wrong"]),
        (100, []),
    ],
)
def test_few_answers_of_a_kind_give_a_warning(right, expected):
    assert codes(few_of_a_kind(labels(right))) == expected


def test_a_small_file_may_have_few_of_both():
    assert codes(few_of_a_kind(labels(11, 25))) == ["few_right", "few_wrong"]
