"""What each map costs: risk over temperature (the paper's map), risk over the missing mass g (ours)."""

import numpy as np

from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, ran
from service.spectral.fit import DepolarizedFit
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.risk import mean_entropy, risk

RISK_NAME, RISK_TITLE = "risk_and_entropy", "Risk and mean entropy against temperature"
TEMPERATURES = np.geomspace(0.05, 50.0, 61)
MASS_NAME, MASS_TITLE = "depolarized_map", "Depolarised map: risk against the missing mass g"
MASSES = np.linspace(0.02, 0.98, 49)


def temperature(bench: Bench) -> Experiment:
    """Return both curves over a log grid of T, and the fit with its bootstrap interval."""
    dev, test, found = bench.dev.dev, bench.test.dev, bench.fits["temperature"]
    spread = bench.bootstraps["temperature"].temperature
    maps = [TemperatureMap(float(t), bench.eps) for t in TEMPERATURES]
    points = [
        {
            "temperature": m.temperature,
            "dev_risk": risk(m, dev),
            "dev_entropy": mean_entropy(m, dev),
            "test_risk": risk(m, test),
            "test_entropy": mean_entropy(m, test),
        }
        for m in maps
    ]
    headline: TableRow = {
        "temperature": found.map.temperature,
        "low": spread.low,
        "high": spread.high,
        "eps": bench.eps,
        "dev_risk": found.risk,
        "dev_entropy": found.mean_entropy,
        "test_risk": risk(found.map, test),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(RISK_NAME, RISK_TITLE, headline, points)


def depolarized(bench: Bench) -> Experiment:
    """Return the risk on both files over g, at the fitted temperature, and the fit with its intervals."""
    found, spread = bench.fits["depolarized"], bench.bootstraps["depolarized"]
    assert isinstance(found, DepolarizedFit)
    assert spread.depolarization is not None
    fitted = found.map
    maps = [DepolarizedMap(fitted.temperature, float(g)) for g in MASSES]
    points = [
        {
            "depolarization": m.depolarization,
            "dev_risk": risk(m, bench.dev.dev),
            "test_risk": risk(m, bench.test.dev),
        }
        for m in maps
    ]
    headline: TableRow = {
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
    return ran(MASS_NAME, MASS_TITLE, headline, points)
