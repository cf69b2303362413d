"""The constant predictor built from the references: its risk must be lowest at T = 1."""

import numpy as np

from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, ran
from service.spectral.constant import best_temperature, constant_predictor
from service.spectral.maps import TemperatureMap
from service.spectral.risk import mean_entropy, risk

NAME, TITLE = "constant_predictor", "Constant predictor: the check of the risk"
GRID = np.geomspace(0.2, 5.0, 41)


def constant(bench: Bench) -> Experiment:
    """Return risk and entropy of the mean reference over temperatures, and where the risk is lowest."""
    test = bench.test
    predictor = constant_predictor(test.targets, test.material.dimension)
    best, interval = best_temperature(predictor, bench.rng(6), eps=bench.eps)
    dev = predictor.dev_set()
    maps = [TemperatureMap(float(t), bench.eps) for t in GRID]
    points = [
        {"temperature": m.temperature, "risk": risk(m, dev), "entropy": mean_entropy(m, dev)} for m in maps
    ]
    headline: TableRow = {
        "best_temperature": best,
        "low": interval.low,
        "high": interval.high,
        "one_within": interval.low <= 1.0 <= interval.high,
        "rank": int(predictor.eigenvalues.size),
        "risk_at_one": risk(TemperatureMap(1.0, bench.eps), dev),
    }
    return ran(NAME, TITLE, headline, points)
