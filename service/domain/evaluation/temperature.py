"""Risk and mean entropy of the paper's map against temperature, on both files."""

import numpy as np

from service.domain.evaluation.bench import Bench
from service.domain.evaluation.model import Experiment, Row, ran
from service.spectral.maps import TemperatureMap
from service.spectral.risk import mean_entropy, risk

NAME, TITLE = "risk_and_entropy", "Risk and mean entropy against temperature"
GRID = np.geomspace(0.05, 50.0, 61)


def temperature(bench: Bench) -> Experiment:
    """Return both curves over a log grid of T, and the fit with its bootstrap interval."""
    dev, test, found = bench.dev.dev, bench.test.dev, bench.fits["temperature"]
    spread = bench.bootstraps["temperature"].temperature
    maps = [TemperatureMap(float(t), bench.eps) for t in GRID]
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
    headline: Row = {
        "temperature": found.map.temperature,
        "low": spread.low,
        "high": spread.high,
        "eps": bench.eps,
        "dev_risk": found.risk,
        "dev_entropy": found.mean_entropy,
        "test_risk": risk(found.map, test),
        "at_bound": ", ".join(found.at_bound),
    }
    return ran(NAME, TITLE, headline, points)
