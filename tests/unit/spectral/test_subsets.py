from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from service.spectral.dev_set import dev_set, overlaps
from service.spectral.fit import fit
from service.spectral.subsets import draw_subsets, fit_by_num_samples, fitted_sizes
from tests.unit.spectral.worlds import answers


def prompts(size: int = 25, draws: int = 8, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    return [answers(rng, draws) for _ in range(size)]


@pytest.mark.parametrize("method", ["temperature", "depolarized"])
def test_every_number_of_answers_has_its_parameters_and_the_last_is_the_headline(method: str) -> None:
    made = prompts()
    table = fit_by_num_samples(iter(made), method, dimension=16, eps=1e-6)
    assert list(table) == [2, 3, 4, 5, 6, 7, 8]
    headline = fit(dev_set(made, 16), method, eps=1e-6).map
    assert table[8].temperature == pytest.approx(headline.temperature, rel=1e-7)
    assert type(table[2]) is type(headline)
    assert len({entry.temperature for entry in table.values()}) == 7


def test_subsets_have_no_repeats_and_short_prompts_are_left_out() -> None:
    made = [overlaps(prompt_) for prompt_ in prompts(3)]
    short = replace(made[0], index=made[0].index[:4])
    taken = draw_subsets([short, *made[1:]], 6, 0)
    assert len(taken) == 8
    assert all(len(set(draws.tolist())) == 6 and draws.max() < 8 for _, draws in taken)
    assert all(prompt is not short for prompt, _ in taken)
    whole = draw_subsets(made, 8, 0)
    assert [draws.tolist() for _, draws in whole] == [list(range(8))] * 3


def test_the_table_ends_where_too_few_prompts_have_as_many_answers() -> None:
    made = prompts(20, draws=5) + prompts(3, draws=8, seed=1)
    assert max(fit_by_num_samples(made, "depolarized", dimension=16)) == 8
    assert max(fit_by_num_samples(made, "depolarized", dimension=16, min_prompts=4)) == 5
    with pytest.raises(ValueError, match="too few prompts"):
        fit_by_num_samples(made, "depolarized", dimension=16, min_prompts=24)
    with pytest.raises(ValueError, match="too few prompts"):
        fit_by_num_samples(prompts(5, draws=1), "depolarized", dimension=16)
    with pytest.raises(ValueError, match="too few prompts"):
        fit_by_num_samples([], "depolarized", dimension=16)


def test_large_numbers_are_fitted_on_a_grid_that_keeps_both_ends() -> None:
    assert fitted_sizes(20) == list(range(2, 21))
    grid = fitted_sizes(256)
    assert grid[0] == 2
    assert grid[-1] == 256
    assert len(grid) <= 64
    assert max(b / a for a, b in pairwise(grid[8:])) < 1.15
