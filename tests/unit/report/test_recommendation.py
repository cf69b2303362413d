"""The recommended number of answers: worlds in which one, three or all are right, or no number is."""

import numpy as np
import pytest

from service.calibration import diagnostics
from service.calibration.diagnostics import Candidate

PROMPTS = 200
RNG = np.random.default_rng(4)
COMMON = RNG.gamma(2.0, 0.2, PROMPTS)  # some prompts are hard for any number of answers
NOISE = RNG.normal(size=PROMPTS)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1)  # standard error of c * NOISE: c / sqrt(n)
ERROR = 0.1 / np.sqrt(PROMPTS)


def world(gaps: dict[int, float], name: str = "evidence", tokens: bool = True) -> list[Candidate]:
    """Return candidates with losses that exceed the best by given numbers of standard errors."""
    return [
        Candidate(m, name, COMMON + (0.1 * NOISE + k * ERROR if k else 0.0), 7.0 * m if tokens else None)
        for m, k in gaps.items()
    ]


def recommend(candidates: list[Candidate], base: np.ndarray = COMMON + 1.0) -> tuple[str, Candidate | None]:
    return diagnostics.recommend(candidates, base)


@pytest.mark.parametrize(
    ("gaps", "right"),
    [
        ({1: 0.9, 3: 0.5, 8: 0.2, 20: 0.0}, 1),
        ({1: 3.0, 3: 0.9, 8: 0.9, 20: 0.0}, 3),
        ({1: 5.0, 3: 3.0, 8: 1.1, 20: 0.0}, 20),
    ],
)
def test_smallest_number_within_one_standard_error_is_recommended(gaps: dict[int, float], right: int) -> None:
    _, chosen = recommend(world(gaps))
    assert chosen is not None
    assert chosen.num_samples == right


def test_no_recommendation_if_the_base_rate_is_as_good() -> None:
    base = COMMON + 0.1 * NOISE + 0.9 * ERROR
    assert recommend(world({1: 0.9, 20: 0.0}), base)[1] is None
    assert recommend(world({1: 0.9, 20: 0.0}), base + 2 * ERROR)[1]


def test_no_recommendation_without_alternatives() -> None:
    assert recommend(world({2: 0.0}))[1] is None
