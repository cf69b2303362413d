"""Checks of what all else rests on: lambda_max settles as answers are added, the risk is lowest at T = 1."""

import numpy as np

from service.domain.calibrating.fitting import Stream
from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, ran
from service.spectral.batch import overlaps
from service.spectral.constant import best_temperature, constant_predictor
from service.spectral.maps import TemperatureMap
from service.spectral.risk import mean_entropy, risk
from service.spectral.sample_size import lambda_max_by_size

CONVERGENCE_NAME, CONVERGENCE_TITLE = (
    "estimator_convergence",
    "Estimator convergence: λmax by number of answers",
)
# A mean over 500 prompts is known to a percent; thousands of them would take minutes.
MOST_PROMPTS = 500
CONSTANT_NAME, CONSTANT_TITLE = "constant_predictor", "Constant predictor: the check of the risk"
# Even about 1 on the log scale, and 1 is one of them: there the risk has to be lowest.
TEMPERATURES = np.geomspace(0.2, 5.0, 41)


def convergence(bench: Bench) -> Experiment:
    """Return mean and deviation of the raw lambda_max over random subsets of the answers in the files."""
    deep = bench.deep
    parts = [overlaps(deep.answers[i]) for i in deep.full[:MOST_PROMPTS]]
    pairs = [p.cosines for p in parts], [p.index for p in parts]
    found = lambda_max_by_size(*pairs, bench.rng(Stream.SUBSETS), step=_step(deep.num_samples))
    columns = zip(found.sizes, found.mean, found.std, strict=True)
    points = [
        {"num_samples": int(m), "mean": float(mean), "deviation": float(std)} for m, mean, std in columns
    ]
    headline: TableRow = {
        "prompts": len(parts),
        "from_num_samples": int(found.sizes[0]),
        "to_num_samples": int(found.sizes[-1]),
        "mean_at_first": float(found.mean[0]),
        "mean_at_last": float(found.mean[-1]),
        "last_step": float(found.mean[-1] - found.mean[-2]) if found.sizes.size > 1 else None,
    }
    return ran(CONVERGENCE_NAME, CONVERGENCE_TITLE, headline, points)


def _step(num_samples: int) -> int:
    """Return by how many answers to go on: eight steps at most, in fives; each number below ten answers."""
    return 5 * -(-num_samples // 40) if num_samples >= 10 else 1


def constant(bench: Bench) -> Experiment:
    """Return risk and entropy of the mean reference over temperatures, and where the risk is lowest."""
    test = bench.test
    predictor = constant_predictor(test.targets, test.material.dimension)
    best, interval = best_temperature(predictor, bench.rng(Stream.CONSTANT), eps=bench.eps)
    dev = predictor.dev_set()
    maps = [TemperatureMap(float(t), bench.eps) for t in TEMPERATURES]
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
    return ran(CONSTANT_NAME, CONSTANT_TITLE, headline, points)
