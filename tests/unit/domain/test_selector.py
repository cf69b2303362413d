"""What decides whether an answer is let through: kept as JSON, and honest about what it lacks."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from service.calibration.calibration import Selector, features
from service.spectral.correctness_model import CorrectnessModel
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.support.decisions import selector

MAPS = [DepolarizedMap(0.9, 0.5), TemperatureMap(1.2, 1e-8), EvidenceMap(0.9, -0.5, 0.4)]


@pytest.mark.parametrize("map_", MAPS)
def test_it_comes_back_from_json(map_: DepolarizedMap | TemperatureMap | EvidenceMap) -> None:
    one = selector(map_)
    adapter = TypeAdapter(Selector)
    assert adapter.validate_json(adapter.dump_json(one)) == one


def test_a_map_by_evidence_is_made_at_the_missing_mass() -> None:
    one = selector(EvidenceMap(1.0, 0.0, 1.0))
    found = one.map_for(0.25)
    assert isinstance(found, DepolarizedMap)
    assert found.depolarization == pytest.approx(0.25)
    assert one.map_for(None) is None


def test_a_plain_map_serves_answers_without_log_probabilities_unless_the_model_takes_them() -> None:
    plain = DepolarizedMap(0.9, 0.5)
    assert selector(plain).map_for(None) == plain
    with_mass = selector(plain, ("logit_probability", "logit_missing_mass"))
    assert with_mass.map_for(None) is None
    assert with_mass.map_for(0.5) == plain


@pytest.mark.parametrize(("evidence", "number"), [((), 2), ((0.5, -1.0, -0.5), 5)])
def test_the_features_are_those_that_models_know(evidence: tuple[float, ...], number: int) -> None:
    columns = features(0.5, 1.0, *evidence)
    assert len(columns) == number
    names = tuple(columns)
    zeros = (0.0,) * number
    model = CorrectnessModel(names, zeros, (1.0,) * number, zeros, 0.0, zeros, zeros)
    assert model.predict(columns) == pytest.approx(np.array([0.5]))
