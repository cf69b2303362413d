"""The maps of a calibration, one for each number of answers, fitted on the first answers of each row."""

from itertools import pairwise

import pytest

from service.calibration.fitting import fit_all
from service.calibration.labels import LabelledRows, fitted_sizes
from service.spectral.fit import fit
from service.spectral.spectrum import TemperatureMap
from tests.support.decisions import judged_material, judged_rows
from tests.support.first_answers import first_answers


@pytest.mark.parametrize("method", ["temperature", "depolarized", "evidence"])
def test_map_of_each_number_is_fitted_on_that_many_first_answers(method: str) -> None:
    material = judged_material(judged_rows(60))
    fitted = fit_all(LabelledRows(material), method)
    assert sorted(fitted.parameters) == [2, 3, 4]
    assert sorted(fitted.evidence_table) == ([1, 2, 3, 4] if method == "evidence" else [])
    for m, map_ in fitted.parameters.items():
        dev = LabelledRows(first_answers(material, m)).dev
        expected = fit(dev, "temperature" if method == "temperature" else "depolarized").map
        assert map_.temperature == pytest.approx(expected.temperature, rel=1e-9)
        g = 0.0 if isinstance(expected, TemperatureMap) else expected.depolarization
        assert map_.depolarization == pytest.approx(g, rel=1e-9)
    for m, map_ in fitted.evidence_table.items():
        expected = fit(LabelledRows(first_answers(material, m)).dev, "evidence").map
        assert (map_.temperature, map_.intercept, map_.slope) == pytest.approx(
            (expected.temperature, expected.intercept, expected.slope), rel=1e-9
        )


def test_scores_and_correctness_use_one_map() -> None:
    fitted = fit_all(LabelledRows(judged_material(judged_rows(160))), "evidence")
    used = {m: selector.map for m, selector in fitted.selectors().items() if m}
    assert used
    assert used == {m: fitted.evidence_table[m] for m in used}


def test_maps_between_fitted_numbers_are_interpolated() -> None:
    fitted = fit_all(
        LabelledRows(judged_material(judged_rows(40, num_samples=80, logprobs=False))), "depolarized"
    )
    table, sizes = fitted.parameters, fitted_sizes(80)
    assert list(table) == list(range(2, 81))
    between = set(table) - set(sizes)
    assert between
    for m in between:
        low, high = sorted([table[m - 1].depolarization, table[m + 1].depolarization])
        assert low <= table[m].depolarization <= high


def test_large_numbers_are_fitted_on_a_grid_that_keeps_both_ends() -> None:
    assert fitted_sizes(20) == list(range(1, 21))
    grid = fitted_sizes(256)
    assert (grid[0], grid[-1]) == (1, 256)
    assert len(grid) <= 64
    assert max(b / a for a, b in pairwise(grid[8:])) < 1.15
