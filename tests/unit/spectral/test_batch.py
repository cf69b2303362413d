import numpy as np
import pytest
from hypothesis import given, settings

from lab.vectors import dev_set, overlaps, spectrum
from service.spectral.dev_set import solve, weighted
from tests.unit.spectral.worlds import answers, seeds


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_subset_equals_the_spectrum_of_its_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers_ = answers(rng, 9)
    draws = rng.permutation(9)[:4]
    solution = solve([weighted(overlaps(answers_), draws)], 16)
    repeated = spectrum(answers_.vectors[answers_.index[draws]])
    assert solution.rank[0] == repeated.rank
    assert solution.eigenvalues[0] == pytest.approx(repeated.eigenvalues, abs=1e-12)


def test_no_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        dev_set([], 16)
