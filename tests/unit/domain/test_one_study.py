"""A calibration's report and the evaluation give one figure for one thing."""

import numpy as np

from service.domain.calibrating.fitting import fit_all
from service.spectral.paired import mean_difference
from tests.support.reports import small_material, small_report


def test_the_interval_that_decides_is_the_paired_bootstrap_of_every_comparison() -> None:
    risks = fit_all(small_material(), "depolarized").held_out.risks
    found = mean_difference(risks["depolarized"], risks["raw"], np.random.default_rng([0, 3]))
    told = small_report()["decision"]["difference"]
    assert (told["value"], told["low"], told["high"]) == (found.value, found.low, found.high)
