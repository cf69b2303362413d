"""Overlaps from vectors."""

import numpy as np
import pytest

from lab.vectors import Answers, overlaps


@pytest.mark.parametrize(
    ("vectors", "index", "references", "message"),
    [
        (np.eye(2), [0, 2], np.eye(2), "index"),
        (np.eye(2), [0, -1], np.eye(2), "index"),
        (np.eye(2), [], np.eye(2), "at least one"),
        (np.empty((0, 2)), [0], np.eye(2), "at least one"),
        (np.zeros((1, 2)), [0], np.eye(2), "zero row"),
        (np.eye(2), [0], np.zeros((1, 2)), "zero row"),
        (np.array([[np.nan, 1.0]]), [0], np.eye(2), "not finite"),
        (np.array([[np.inf, 1.0]]), [0], np.eye(2), "not finite"),
        (np.eye(2), [0], np.ones((1, 1)), "one dimension"),
        (np.eye(2), [0], np.ones((2, 3)), "one dimension"),
        (np.eye(2), [0], np.ones(2), "one dimension"),
        (np.ones(2), [0], np.eye(2), "one dimension"),
    ],
)
def test_unusable_answers_are_refused(
    vectors: np.ndarray, index: list[int], references: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        overlaps(Answers(vectors, np.array(index, dtype=np.int64), references))


@pytest.mark.parametrize("index", [[0.5], [np.inf], ["0"], [True]])
def test_index_must_be_integers(index: list[object]) -> None:
    with pytest.raises(ValueError, match="index"):
        overlaps(Answers(np.eye(2), np.array(index), np.eye(2)))
