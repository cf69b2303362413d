from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import DevSpectra, risk, risks
from service.spectral.evidence import EvidenceMap, logit_missing_mass, missing_mass
from service.spectral.fit import (
    SLOPE_START,
    Objective,
    bootstrap,
    cross_validated_risks,
    fit_depolarized,
    fit_evidence,
    minimize,
    objective,
)
from service.spectral.subsets import (
    FittedMap,
    draw_subsets,
    fit_by_num_samples,
    fitted_sizes,
    subset_dev_set,
    with_totals,
)
from tests.unit.spectral.worlds import answers, calibrated_world, random_dev_set, seeds, spectra

BOTH = {"d": "depolarized", "e": "evidence"}


def random_rows(seed: int, prompts: int = 30) -> DevSpectra:
    rng = np.random.default_rng(seed)
    return replace(random_dev_set(seed, prompts), missing_mass=rng.beta(0.5, 0.5, prompts))


def calibrated_rows(map_: EvidenceMap, prompts: int, seed: int, width: int = 6) -> DevSpectra:
    """Return rows with references distributed as in `map_`, which therefore has the lowest risk."""
    rng = np.random.default_rng(seed)
    missing = rng.beta(0.7, 0.7, prompts)
    world = calibrated_world(map_.over(missing), spectra(rng, prompts, width), 40)
    return replace(world, missing_mass=missing)


def differences(risk_of: Objective, point: np.ndarray, part: int) -> np.ndarray:
    step = 1e-5 * np.eye(3)
    return np.array([(risk_of(point + h)[part] - risk_of(point - h)[part]) / 2e-5 for h in step])


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(-2.0, 3.0), st.floats(-4.0, 4.0), st.floats(0.0, 1.0))
def test_gradient_and_hessian_are_the_derivatives_of_the_risk(
    seed: int, x: float, a: float, b: float
) -> None:
    rows, point = random_rows(seed), np.array([x, a, b])
    risk_of = objective(rows, "evidence")
    value, gradient, hessian = risk_of(point)
    assert gradient == pytest.approx(differences(risk_of, point, 0), rel=1e-5, abs=1e-6)
    assert hessian == pytest.approx(differences(risk_of, point, 1), rel=1e-5, abs=1e-6)
    assert value == pytest.approx(risk(EvidenceMap(float(np.exp(x)), a, b), rows), abs=1e-9)


def test_prompt_with_clipped_g_does_not_affect_the_fit() -> None:
    rows = random_rows(1)
    clipped = replace(rows, missing_mass=np.full(len(rows), 1.0))
    value, gradient, hessian = objective(clipped, "evidence")(np.array([0.0, 12.0, 5.0]))
    assert value == pytest.approx(risk(EvidenceMap(1.0, 12.0, 5.0), clipped))
    assert gradient[1:].tolist() == [0.0, 0.0]
    assert not hessian[1:].any()


@settings(deadline=None, max_examples=30)
@given(seeds, st.floats(0.3, 10.0), st.floats(-1.5, 1.5), st.floats(0.1, 1.5))
def test_true_parameters_are_recovered(seed: int, t: float, a: float, b: float) -> None:
    fit = fit_evidence(calibrated_rows(EvidenceMap(t, a, b), 60, seed))
    assert fit.map.temperature == pytest.approx(t, rel=1e-4)
    assert (fit.map.intercept, fit.map.slope) == pytest.approx((a, b), abs=1e-4)
    assert fit.at_bound == ()
    assert fit.stationarity_gap < 1e-6


@settings(deadline=None, max_examples=60)
@given(seeds)
def test_fit_is_no_worse_than_the_depolarized_fit(seed: int) -> None:
    rows = random_rows(seed)
    fit, flat = fit_evidence(rows), fit_depolarized(rows)
    assert fit.risk <= flat.risk + 1e-12
    assert fit.stationarity_gap < 1e-6
    if fit.map.slope == 0:
        assert "slope" in fit.at_bound
        assert fit.map.temperature == pytest.approx(flat.map.temperature, rel=1e-5)


@pytest.mark.parametrize("seed", [409, 1362])
def test_each_start_is_needed(seed: int) -> None:
    """Few prompts with extreme masses have several minima; each single start ends in the wrong one here."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([5, 8, 12, 30]))
    dev = random_dev_set(seed, size, dimension=int(rng.choice([8, 24, 768])))
    rows = replace(dev, missing_mass=rng.beta(0.3, 0.3, size))
    risk_of = objective(rows, "evidence")
    low, high = np.array([np.log(0.05), -12.0, 0.0]), np.array([np.log(50.0), 12.0, 5.0])
    flat = fit_depolarized(rows).map
    z = np.log(flat.depolarization / (1 - flat.depolarization))
    mean = logit_missing_mass(rows.missing_mass).mean()
    ends = [
        minimize(risk_of, np.array([np.log(flat.temperature), z - b * mean, b]), low, high).value
        for b in (0.0, SLOPE_START)
    ]
    assert abs(ends[0] - ends[1]) > 0.01
    assert fit_evidence(rows).risk == pytest.approx(min(ends), abs=1e-9)


@settings(deadline=None, max_examples=10)
@given(seeds)
def test_no_point_of_a_fine_grid_beats_the_fit(seed: int) -> None:
    rows = random_rows(seed)
    best = fit_evidence(rows).risk
    grid = product(np.geomspace(0.05, 50, 12), np.linspace(-6, 6, 13), (0, 0.1, 0.3, 0.6, 1, 2, 5))
    for t, a, b in grid:
        assert best <= risk(EvidenceMap(float(t), float(a), b), rows) + 1e-9


def test_misleading_evidence_is_left_out_and_the_bound_reported() -> None:
    """References are outside if the answers cover all mass: a positive slope can only do harm."""
    rows = calibrated_rows(EvidenceMap(1.2, 0.3, 1.0), 80, 0)
    fit = fit_evidence(replace(rows, missing_mass=1 - rows.missing_mass))
    assert fit.map.slope == 0.0
    assert fit.at_bound == ("slope",)


def two_kinds(sharp: float, blunt: float) -> DevSpectra:
    """Return 40 prompts with u = 1e-4 and c_1 = sharp, and 40 with 1 - 1e-4 and c_1 = blunt."""
    c = np.repeat([sharp, blunt], 40)[:, None]
    dev = DevSpectra(np.ones((80, 1)), c, 1 - c[:, 0], np.ones(80, dtype=int), 40)
    return replace(dev, missing_mass=np.repeat([1e-4, 1 - 1e-4], 40))


def test_intercept_at_its_bound_is_reported() -> None:
    fit = fit_evidence(two_kinds(1.0, 1.0))
    assert fit.map.intercept == pytest.approx(-12.0)
    assert "intercept" in fit.at_bound


def test_no_temperature_is_fitted_with_one_answer_per_prompt() -> None:
    fit = fit_evidence(two_kinds(0.9, 0.3))
    assert fit.map.temperature == 1.0
    assert fit.at_bound == ()
    for mass, c in ((1e-4, 0.9), (1 - 1e-4, 0.3)):  # two parameters fit two kinds of prompts exactly
        assert fit.map.at(mass).serve([1.0], 40).lambda_max == pytest.approx(c, abs=1e-6)


def test_bootstrap_covers_the_truth_and_resamples_like_other_maps() -> None:
    rows = calibrated_rows(EvidenceMap(1.3, -0.4, 0.5), 120, 3)
    bootstrap_ = bootstrap(rows, "evidence", rng=np.random.default_rng(7), resamples=40)
    assert [values.shape for values in bootstrap_.parameters.values()] == [(40,)] * 3
    truths = {"temperature": 1.3, "intercept": -0.4, "slope": 0.5}
    for interval, truth in ((bootstrap_.intervals[name], truth) for name, truth in truths.items()):
        assert interval.low - 1e-4 <= truth <= interval.high + 1e-4
    noisy = random_rows(5)
    again = bootstrap(noisy, "evidence", rng=np.random.default_rng(7), resamples=4)
    counts = np.random.default_rng(7).multinomial(30, np.full(30, 1 / 30), size=4)
    for parameters, row in zip(np.transpose(list(again.parameters.values())), counts, strict=True):
        refit = fit_evidence(noisy.take(np.repeat(np.arange(30), row))).map
        fitted = (refit.temperature, refit.intercept, refit.slope)
        assert parameters == pytest.approx(fitted, rel=1e-4, abs=1e-5)
    flat = replace(noisy, missing_mass=np.full(30, 0.5))  # logit 0 everywhere: only T and a matter
    plain = bootstrap(noisy, "depolarized", rng=np.random.default_rng(7), resamples=4)
    same = bootstrap(flat, "evidence", rng=np.random.default_rng(7), resamples=4)
    assert same.parameters["temperature"] == pytest.approx(plain.parameters["temperature"], rel=1e-4)


def test_held_out_risks_use_the_folds_of_the_other_maps() -> None:
    rows = random_rows(3, prompts=40)
    risks_ = cross_validated_risks(rows, BOTH, rng=np.random.default_rng(1))
    fold, maps = risks_.fold, risks_.maps["e"]
    others = cross_validated_risks(rows, {"d": "depolarized"}, rng=np.random.default_rng(1))
    assert fold.tolist() == others.fold.tolist()
    for number in range(5):
        assert maps[number] == fit_evidence(rows.take(fold != number)).map
        expected = risks(maps[number], rows.take(fold == number))
        assert risks_.risks["e"][fold == number] == pytest.approx(expected)


def test_evidence_wins_held_out_only_if_informative() -> None:
    rows = calibrated_rows(EvidenceMap(1.0, -0.3, 0.6), 100, 0)
    noise = replace(rows, missing_mass=np.random.default_rng(1).permutation(rows.missing_mass))
    informative, uninformative = (
        cross_validated_risks(item, BOTH, rng=np.random.default_rng(2)).risks for item in (rows, noise)
    )
    assert informative["e"].mean() < informative["d"].mean() - 0.05
    assert uninformative["e"].mean() > uninformative["d"].mean() - 0.01


def recorded(size: int = 25, draws: int = 8, seed: int = 0) -> tuple[list, list[np.ndarray]]:
    """Return repeated answers, with equal log-probabilities for equal texts."""
    rng = np.random.default_rng(seed)
    made = [answers(rng, draws) for _ in range(size)]
    texts = [np.log(rng.dirichlet(np.ones(len(answers_.vectors) + 1))) for answers_ in made]
    return made, [of[answers_.index] for answers_, of in zip(made, texts, strict=True)]


def by_num_samples(made: Iterable, sums: Iterable, **options: Any) -> dict[int, FittedMap]:
    return fit_by_num_samples(made, "evidence", log_probabilities=sums, dimension=16, **options)


def test_every_number_of_answers_from_one_has_its_parameters() -> None:
    made, sums = recorded()
    seen: list[tuple[int, int]] = []
    table = by_num_samples(iter(made), iter(sums), progress=lambda *p: seen.append(p))
    assert list(table) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert seen[-1] == (8, 8)
    assert table[1].temperature == 1.0
    assert len({entry.temperature for entry in table.values()}) == 8
    whole = [missing_mass(lp, answers_.index) for answers_, lp in zip(made, sums, strict=True)]
    headline = replace(
        subset_dev_set(draw_subsets(with_totals(made, sums), 8, 0), 16), missing_mass=np.array(whole)
    )
    assert table[8] == fit_evidence(headline).map


def test_subsets_equal_those_of_other_maps_with_their_own_mass() -> None:
    made, sums = recorded()
    totals = with_totals(made, sums)
    subsets = draw_subsets(totals, 3, 4)
    rows, same = subset_dev_set(subsets, 16, totals), subset_dev_set(subsets, 16)
    assert rows.eigenvalues.tolist() == same.eigenvalues.tolist()
    whole = np.repeat([missing_mass(lp, answers_.index) for answers_, lp in zip(made, sums, strict=True)], 4)
    assert (rows.missing_mass >= whole - 1e-12).all()
    assert rows.missing_mass.mean() > whole.mean() + 0.05


def test_the_seed_decides_and_short_prompts_serve_small_numbers_only() -> None:
    made, sums = recorded()
    tables = [by_num_samples(made, sums, seed=seed) for seed in (1, 1, 2)]
    assert tables[0] == tables[1]
    assert tables[0][3] != tables[2][3]
    short, short_sums = recorded(4, draws=12, seed=1)
    both = by_num_samples([*made, *short], [*sums, *short_sums], min_prompts=5)
    assert max(both) == 8
    with pytest.raises(ValueError, match="too few prompts"):
        by_num_samples(made, sums, min_prompts=26)


def test_log_probabilities_must_fit_the_answers() -> None:
    made, sums = recorded(3)
    with pytest.raises(ValueError, match="every answer drawn"):
        with_totals(made, [*sums[:2], sums[2][:-1]])
    with pytest.raises(ValueError, match="shorter"):
        with_totals(made, sums[:2])
    with pytest.raises(ValueError, match="log-probability"):
        with_totals(made, [*sums[:2], np.full(8, np.nan)])


def test_parameters_between_fitted_numbers_are_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.spectral.subsets.MAX_FITTED", 4)
    table = by_num_samples(*recorded())
    assert list(table) == list(range(1, 9))
    for m in set(table) - {1, *fitted_sizes(8)}:
        low, high = sorted([table[m - 1].slope, table[m + 1].slope])
        assert low <= table[m].slope <= high
