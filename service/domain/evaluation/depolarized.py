"""The depolarised map (ours): its fit, and its risk over the missing mass g."""

import numpy as np

from service.domain.evaluation.bench import Bench
from service.domain.evaluation.model import Experiment, Row, ran
from service.spectral.fit import DepolarizedFit
from service.spectral.maps import DepolarizedMap
from service.spectral.risk import risk

NAME, TITLE = "depolarized_map", "Depolarised map: risk against the missing mass g"
GRID = np.linspace(0.02, 0.98, 49)


def depolarized(bench: Bench) -> Experiment:
    """Return the risk on both files over g, at the fitted temperature, and the fit with its intervals."""
    found, spread = bench.fits["depolarized"], bench.bootstraps["depolarized"]
    assert isinstance(found, DepolarizedFit)
    assert spread.depolarization is not None
    fitted = found.map
    maps = [DepolarizedMap(fitted.temperature, float(g)) for g in GRID]
    points = [
        {
            "depolarization": m.depolarization,
            "dev_risk": risk(m, bench.dev.dev),
            "test_risk": risk(m, bench.test.dev),
        }
        for m in maps
    ]
    headline: Row = {
        "temperature": fitted.temperature,
        "temperature_low": spread.temperature.low,
        "temperature_high": spread.temperature.high,
        "depolarization": fitted.depolarization,
        "depolarization_low": spread.depolarization.low,
        "depolarization_high": spread.depolarization.high,
        "dev_risk": found.risk,
        "test_risk": risk(fitted, bench.test.dev),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(NAME, TITLE, headline, points)
