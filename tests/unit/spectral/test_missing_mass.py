import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.evidence import (
    MIN_LOG_PROBABILITY,
    MISSING_MASS_CLIP,
    checked_log_probabilities,
    logit_missing_mass,
    mean_log_probability,
    missing_mass,
)

sums = st.one_of(st.floats(-60.0, 0.0), st.just(-math.inf), st.floats(0.0, 1e-3))
draws = st.lists(st.tuples(sums, st.integers(0, 5)), min_size=1, max_size=12)


def test_three_sums_by_hand() -> None:
    """Texts A, B, A with probabilities 0.4, 0.1 and 0.35 (other tokens): 1 - 0.4 - 0.1."""
    assert missing_mass(np.log([0.4, 0.1, 0.35]), [0, 1, 0]) == pytest.approx(0.5, abs=1e-12)
    assert missing_mass(np.log([0.4, 0.4, 0.4]), [0, 0, 0]) == pytest.approx(0.6, abs=1e-12)


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([0.0], MISSING_MASS_CLIP),  # all of the mass
        ([1e-6], MISSING_MASS_CLIP),  # above 0 by rounding
        ([-math.inf], 1 - MISSING_MASS_CLIP),  # none of it
        ([-math.inf, math.log(0.25)], 0.75),
        ([-1e300], 1 - MISSING_MASS_CLIP),
        ([-0.1, -0.1], MISSING_MASS_CLIP),  # two texts of 0.9 each: more than 1
    ],
)
def test_clipped_values(totals: list[float], expected: float) -> None:
    assert missing_mass(totals, np.arange(len(totals))) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.02, 0.7, 12.0])
def test_invalid_values_are_refused(bad: float) -> None:
    for reads in (checked_log_probabilities, mean_log_probability, lambda v: missing_mass(v, [0, 1])):
        with pytest.raises(ValueError, match="log-probability"):
            reads([-1.0, bad])


@pytest.mark.parametrize("index", [[0], [0, -1], [0.0, 1.0], [[0, 1]]])
def test_mismatched_index_is_refused(index: list) -> None:
    with pytest.raises(ValueError, match="index"):
        missing_mass([-1.0, -2.0], index)
    with pytest.raises(ValueError, match="non-empty"):
        missing_mass([], index)


@settings(deadline=None)
@given(draws)
def test_missing_mass_is_clipped_and_falls_with_more_answers(drawn: list) -> None:
    totals, index = np.array([t for t, _ in drawn]), np.array([i for _, i in drawn])
    mass = missing_mass(totals, index)
    assert MISSING_MASS_CLIP <= mass <= 1 - MISSING_MASS_CLIP
    assert math.isfinite(logit_missing_mass(mass))
    fewer = [missing_mass(totals[:m], index[:m]) for m in range(1, len(drawn) + 1)]
    assert fewer == sorted(fewer, reverse=True)


@settings(deadline=None)
@given(draws, st.randoms(use_true_random=False))
def test_order_and_repeats_do_not_matter(drawn: list, random) -> None:
    shuffled = [*drawn, drawn[0]]
    random.shuffle(shuffled)
    both = [missing_mass([t for t, _ in d], [i for _, i in d]) for d in (drawn, shuffled)]
    assert both[0] == pytest.approx(both[1], abs=1e-12)


def test_logits_are_finite_at_the_ends_and_exact_between() -> None:
    logits = logit_missing_mass([0.0, 0.25, 0.5, 1.0])
    end = math.log(MISSING_MASS_CLIP / (1 - MISSING_MASS_CLIP))
    assert logits == pytest.approx([end, -math.log(3), 0.0, -end], abs=1e-9)
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="missing mass"):
            logit_missing_mass([0.5, bad])


def test_the_mean_log_probability_is_finite() -> None:
    assert mean_log_probability([-1.0, -4.0]) == -2.5
    assert mean_log_probability([-math.inf, 0.0]) == MIN_LOG_PROBABILITY / 2
