"""Fits shrunk to a prior, between the optimum of the rows and the prior, by their weights."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from service.spectral.dev_set import DevSpectra, dev_set, overlaps, risks
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, bootstrap, cross_validated_risks, fit, fit_depolarized, fit_evidence
from service.spectral.spectrum import DepolarizedMap
from service.spectral.subsets import draw_subsets, fit_by_num_samples, subset_dev_set
from tests.unit.spectral.test_evidence_fit import calibrated_rows, random_rows
from tests.unit.spectral.test_subsets import prompts

HESSIAN = np.array([[0.3, 0.02, 0.1], [0.02, 0.15, 0.4], [0.1, 0.4, 2.0]])
CENTER = np.array([np.log(0.65), -0.1, 0.3])


def rows(count: int = 12) -> DevSpectra:
    return calibrated_rows(EvidenceMap(1.4, 0.5, 0.8), count, 3)


def theta(map_: EvidenceMap) -> np.ndarray:
    return np.array([np.log(map_.temperature), map_.intercept, map_.slope])


@pytest.mark.parametrize("count", [5, 10, 30, 70])
def test_fit_minimises_risk_plus_penalty(count: int) -> None:
    """Compared with another minimiser of the sum in the method (section 9)."""
    rows_ = rows(count)

    def total(point: np.ndarray) -> float:
        map_ = EvidenceMap(float(np.exp(point[0])), float(point[1]), max(float(point[2]), 0.0))
        away = point - CENTER
        return float(risks(map_, rows_).sum() + 15 * away @ HESSIAN @ away)

    fit_ = fit_evidence(rows_, prior=Prior(CENTER, HESSIAN, 30.0))
    other = minimize(total, CENTER, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    np.testing.assert_allclose(theta(fit_.map), other.x, atol=1e-5)
    assert fit_.stationarity_gap < 1e-8


@pytest.mark.parametrize("method", ["temperature", "depolarized"])
def test_plain_maps_are_shrunk_alike(method: str) -> None:
    dev = rows()
    center = np.array([np.log(3.0), 1.0])[: 1 if method == "temperature" else 2]
    hessian = np.eye(center.size)
    own, pulled, held = (
        fit(dev, method, prior=Prior(center, hessian, weight)).map.temperature for weight in (0.0, 5.0, 1e9)
    )
    assert own == pytest.approx(fit(dev, method).map.temperature, rel=1e-7)
    assert held == pytest.approx(3.0, rel=1e-6)
    assert min(own, 3.0) < pulled < max(own, 3.0)


def test_zero_weight_gives_no_prior() -> None:
    alone, none = fit_evidence(rows()), fit_evidence(rows(), prior=Prior(CENTER, HESSIAN, 0.0))
    np.testing.assert_allclose(theta(none.map), theta(alone.map), atol=1e-6)


def test_resamples_weigh_the_prior_like_the_rows() -> None:
    """A resample has as many rows as the file, with repeats, so the weight of the prior is unchanged."""
    dev, prior = random_rows(2, 12), Prior(CENTER, HESSIAN, 30.0)
    bootstrap_ = bootstrap(dev, "evidence", rng=np.random.default_rng(0), resamples=5, prior=prior)
    counts = np.random.default_rng(0).multinomial(12, np.full(12, 1 / 12), size=5)
    for row, parameters in zip(counts, np.transpose(list(bootstrap_.parameters.values())), strict=True):
        refit = fit_evidence(dev.take(np.repeat(np.arange(12), row)), prior=prior).map
        assert parameters == pytest.approx([refit.temperature, refit.intercept, refit.slope], abs=1e-6)


def test_fold_fits_are_shrunk() -> None:
    prior = Prior(np.array([np.log(2.0), 0.0]), np.eye(2), 1e9)
    risks_ = cross_validated_risks(
        rows(), {"ours": "depolarized"}, rng=np.random.default_rng(0), priors={"depolarized": prior}
    )
    for map_ in risks_.maps["ours"]:
        assert isinstance(map_, DepolarizedMap)
        assert (map_.temperature, map_.depolarization) == pytest.approx((2.0, 0.5), rel=1e-6)


def test_subsets_of_one_prompt_do_not_count_as_more_labels() -> None:
    """With four subsets per prompt, the prior has four times its weight."""
    made, prior = prompts(), Prior(np.array([0.0, 0.0]), np.eye(2), 30.0)
    table = fit_by_num_samples(made, "depolarized", dimension=16, priors=lambda _: prior)
    assert table[8] == fit_depolarized(dev_set(made, 16), prior=prior).map
    subsets = subset_dev_set(draw_subsets([overlaps(item) for item in made], 2, 0), 16)
    assert len(subsets) == 4 * len(made)
    assert table[2] == fit_depolarized(subsets, prior=replace(prior, weight=4 * prior.weight)).map
