"""Conformal p-values of prompts: small exact cases, and the false alarm rate."""

import numpy as np
import pytest

from service.spectral.conformal import ConformalReference


def unit(rng: np.random.Generator, count: int, around: float = 0.0) -> np.ndarray:
    rows = rng.standard_normal((count, 24)) + around
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def lengths(*means: int) -> np.ndarray:
    return np.array([[mean] * 3 for mean in means], dtype=np.int32)


def test_length_is_two_sided_and_used_alone_without_a_question() -> None:
    none = np.empty((0, 24), dtype=np.float32)
    reference = ConformalReference(none, lengths(*range(1, 100)))
    for far in (0, 200):
        assert reference.p_value(None, np.array([far] * 3)) == pytest.approx(2 / 100)
    assert reference.p_value(None, np.array([50])) == 1.0


def test_lengths_are_compared_for_the_same_number_of_answers() -> None:
    rng = np.random.default_rng(0)
    rows = rng.geometric(0.2, (400, 20)).astype(np.int32)
    reference = ConformalReference(np.empty((0, 24), dtype=np.float32), rows)
    single = [reference.p_value(None, item[:1]) for item in rng.geometric(0.2, (2000, 20))]
    assert np.mean(np.array(single) < 0.1) < 0.12


def test_false_alarm_rate_is_at_most_the_level() -> None:
    rng = np.random.default_rng(1)
    alarms = []
    for _ in range(10):
        reference = ConformalReference(unit(rng, 300, 0.4), rng.poisson(5, (300, 4)).astype(np.int32))
        fresh = zip(unit(rng, 100, 0.4), rng.poisson(5, (100, 4)), strict=True)
        alarms += [reference.p_value(question, words) < 0.1 for question, words in fresh]
    assert np.mean(alarms) < 0.1 + 3 * np.sqrt(0.09 / 1000)
    assert reference.p_value(unit(rng, 1, -0.4)[0], np.array([5] * 4)) < 0.02


def test_equally_distant_questions_tie() -> None:
    """Questions e1, e1, e2 are each scored among the others: 0.5, 0.5 and 1."""
    axes = np.eye(3, 24, dtype=np.float32)
    reference = ConformalReference(axes[[0, 0, 1]], lengths(2, 2, 2))
    values = np.array([2])
    assert reference.p_value(axes[0], values) == 1.0  # at 1/3: all three are as far, or farther
    assert reference.p_value(axes[2], values) == pytest.approx(2 * (1 + 1) / 4)  # at 1, as e2 is
    assert reference.p_value(-axes[1], values) == pytest.approx(2 * 1 / 4)  # at 4/3: none is
