"""Fits shrunk to a prior, between the optimum of the rows and the prior, by their weights."""

import numpy as np
import pytest
from scipy.optimize import minimize

from service.spectral.dev_set import DevSpectra, risks
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Prior, fit_evidence
from tests.unit.spectral.test_evidence_fit import calibrated_rows

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
