"""A report judges each prompt by fits without it, and decides by paired differences."""

from typing import Any

import numpy as np
import pytest

from service.calibration.diagnostics import CrossValidated
from service.calibration.fitting import fit_all
from service.spectral.resampling import mean_difference
from tests.support.reports import FEW, MADE, small_material


@pytest.fixture(scope="module")
def bench() -> CrossValidated:
    material = small_material()
    fitted = fit_all(material, "depolarized", resamples=FEW)
    return CrossValidated(fitted, resamples=FEW)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    made: dict[str, Any] = MADE["report"]()
    return made


def test_deciding_interval_is_the_paired_bootstrap(bench: CrossValidated, report: dict[str, Any]) -> None:
    risks, random = bench.fitted.risks, np.random.default_rng([0, 3])
    difference = mean_difference(risks["depolarized"], risks["raw"], random, resamples=FEW.difference)
    difference_ = report["decision"]["difference"]
    assert (difference_["value"], difference_["low"], difference_["high"]) == (
        difference.value,
        difference.low,
        difference.high,
    )


def test_each_prompt_is_judged_out_of_fold(bench: CrossValidated) -> None:
    maps, fold = bench.fitted.maps["depolarized"], bench.fitted.fold
    place = int(np.flatnonzero(fold == 3)[0])
    spectrum = bench.test.spectra[place]
    expected = maps[3].serve(spectrum.eigenvalues, spectrum.dimension).lambda_max
    assert bench.served["depolarized"].lambda_max[place] == pytest.approx(expected)
    assert len({maps[k] for k in range(5)}) > 1
