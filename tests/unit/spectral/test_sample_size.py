import numpy as np
import pytest

from service.spectral.spectrum import gram, spectrum
from service.spectral.subsets import lambda_max_by_size, subset_lambda_max, subset_sizes


def prompt(seed, distinct=8, samples=20):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((distinct, 32)) + rng.standard_normal(32)
    return vectors, rng.integers(0, distinct, samples)


def test_sizes_step_up_to_the_full_number():
    assert subset_sizes(20).tolist() == [5, 10, 15, 20]
    assert subset_sizes(12).tolist() == [5, 10, 12]
    assert subset_sizes(3).tolist() == [3]
    with pytest.raises(ValueError, match="at least 1"):
        subset_sizes(0)


def test_the_full_subset_is_the_spectrum_itself():
    vectors, outcomes = prompt(0)
    found = subset_lambda_max(gram(vectors), outcomes, 20, 3, np.random.default_rng(0))
    whole = spectrum(vectors[outcomes]).eigenvalues[0]
    assert found == pytest.approx([whole] * 3, abs=1e-12)


def test_subsets_are_those_of_the_answers_drawn():
    vectors, outcomes = prompt(1)
    pairs = subset_lambda_max(gram(vectors), outcomes, 2, 400, np.random.default_rng(0))
    cosines = gram(vectors)
    possible = {
        round((1 + abs(cosines[outcomes[i], outcomes[j]])) / 2, 9) for i in range(20) for j in range(i)
    }
    assert {round(float(value), 9) for value in pairs} <= possible
    assert subset_lambda_max(cosines, outcomes, 1, 5, np.random.default_rng(0)) == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("size", [0, 21])
def test_no_more_answers_than_drawn(size):
    vectors, outcomes = prompt(0)
    with pytest.raises(ValueError, match=r"size must be in 1 \.\. 20"):
        subset_lambda_max(gram(vectors), outcomes, size, 3, np.random.default_rng(0))


def test_fewer_samples_read_more_certain_and_spread_more():
    prompts = [prompt(seed) for seed in range(10)]
    cosines, outcomes = [gram(v) for v, _ in prompts], [o for _, o in prompts]
    curve = lambda_max_by_size(cosines, outcomes, np.random.default_rng(0))
    assert curve.sizes.tolist() == [5, 10, 15, 20]
    assert (np.diff(curve.mean) < 0).all()
    assert (np.diff(curve.std) < 0).all()
    assert curve.std[-1] == pytest.approx(0, abs=1e-9)


def test_the_smallest_prompt_sets_the_sizes():
    short, long = prompt(0, samples=7), prompt(1, samples=20)
    curve = lambda_max_by_size([gram(short[0]), gram(long[0])], [short[1], long[1]], np.random.default_rng(0))
    assert curve.sizes.tolist() == [5, 7]


def test_there_must_be_prompts():
    with pytest.raises(ValueError, match="at least one prompt"):
        lambda_max_by_size([], [], np.random.default_rng(0))
