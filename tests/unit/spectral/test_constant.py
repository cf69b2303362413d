"""The constant predictor: the risk must be lowest at T = 1, or the risk is wrong."""

import numpy as np
import pytest

from service.spectral.constant import best_temperature, constant_predictor
from service.spectral.density import DensityStack
from service.spectral.dev_set import risk
from service.spectral.maps import TemperatureMap


def targets(seed=0, prompts=80, dimension=12, references=1):
    rng = np.random.default_rng(seed)
    spread = rng.standard_normal((prompts, references, dimension)) * np.geomspace(1, 0.1, dimension)
    return DensityStack.of(list(spread))


@pytest.mark.parametrize("references", [1, 3])
def test_the_optimum_is_at_one_within_its_interval(references):
    predictor = constant_predictor(targets(references=references), 12)
    best, interval = best_temperature(predictor, np.random.default_rng(0), resamples=100)
    assert best == pytest.approx(1.0, abs=1e-3)
    assert interval.low < 1.0 < interval.high
    assert interval.high - interval.low < 0.5


def test_it_is_the_mean_of_the_targets():
    stack = targets()
    predictor = constant_predictor(stack, 12)
    mean = stack.vectors.T @ stack.vectors / len(stack)
    assert predictor.eigenvalues == pytest.approx(np.linalg.eigvalsh(mean)[::-1])
    assert predictor.alignment.sum(axis=1) == pytest.approx(np.ones(len(stack)))


def test_one_row_holds_the_risk_of_all():
    predictor = constant_predictor(targets(), 12)
    map_ = TemperatureMap(1.7)
    served = map_.fitted(predictor.eigenvalues, 12)
    per_prompt = -predictor.alignment @ np.log(served.eigenvalues)
    assert risk(map_, predictor.dev_set()) == pytest.approx(per_prompt.mean())
    weights = np.zeros(80)
    weights[3] = 1.0
    assert risk(map_, predictor.dev_set(weights)) == pytest.approx(per_prompt[3])


def test_references_outside_of_the_predictor_cost_the_null_eigenvalue():
    few = constant_predictor(targets(prompts=3), 12)
    assert few.eigenvalues.size == 3
    assert few.dev_set().outside[0] == pytest.approx(0.0, abs=1e-9)
