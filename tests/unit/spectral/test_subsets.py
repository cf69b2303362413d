from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from service.spectral import subsets
from service.spectral.dev_set import dev_set, overlaps
from service.spectral.fit import fit
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
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


def test_subsets_depend_on_the_seed() -> None:
    made = prompts()
    first = fit_by_num_samples(made, "depolarized", dimension=16, seed=1)
    assert first == fit_by_num_samples(made, "depolarized", dimension=16, seed=1)
    other = fit_by_num_samples(made, "depolarized", dimension=16, seed=2)
    assert first[3] != other[3]
    assert first[8] == other[8]


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


@pytest.mark.parametrize("method", ["temperature", "depolarized"])
def test_parameters_between_fitted_numbers_are_interpolated(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(subsets, "MAX_FITTED", 4)
    table = fit_by_num_samples(prompts(), method, dimension=16, eps=1e-6)
    assert list(table) == list(range(2, 9))
    between = set(table) - set(fitted_sizes(8))
    assert between
    low, high = sorted([table[5].temperature, table[8].temperature])
    assert all(low <= table[m].temperature <= high for m in between if m > 5)
    kinds = {"temperature": TemperatureMap, "depolarized": DepolarizedMap}
    assert {type(entry) for entry in table.values()} == {kinds[method]}


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    fit_by_num_samples(prompts(5, 4), "temperature", dimension=16, progress=lambda *p: seen.append(p))
    assert seen == [(1, 3), (2, 3), (3, 3)]
