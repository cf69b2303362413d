"""Selectors: JSON round trip, and behaviour with missing parts."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from service.calibration.calibration import (
    Selector,
    answer_columns,
    answer_features,
    claim_features,
    token_features,
)
from service.spectral.correctness_model import FEATURES, CorrectnessModel
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.support.decisions import selector

MAPS = [DepolarizedMap(0.9, 0.5), TemperatureMap(1.2, 1e-8), EvidenceMap(0.9, -0.5, 0.4)]


@pytest.mark.parametrize("map_", MAPS)
def test_json_round_trip(map_: DepolarizedMap | TemperatureMap | EvidenceMap) -> None:
    selector_ = selector(map_)
    adapter = TypeAdapter(Selector)
    assert adapter.validate_json(adapter.dump_json(selector_)) == selector_


def test_evidence_map_is_evaluated_at_the_missing_mass() -> None:
    selector_ = selector(EvidenceMap(1.0, 0.0, 1.0))
    map_ = selector_.map_for(0.25)
    assert isinstance(map_, DepolarizedMap)
    assert map_.depolarization == pytest.approx(0.25)
    assert selector_.map_for(None) is None


def test_a_plain_map_serves_answers_with_and_without_log_probabilities() -> None:
    plain = DepolarizedMap(0.9, 0.5)
    assert selector(plain).map_for(None) == selector(plain).map_for(0.5) == plain


def test_features_are_selected_by_name() -> None:
    groups = (
        answer_features([0.5], [0.5]),
        claim_features([0.5], [1.0]),
        token_features(np.array([-3.0]), np.array([-2.0]), np.array([-4.0])),
        answer_columns([0.5, 0.9], [0, 0]),
    )
    results: set[str] = set()
    for columns in groups:
        results |= set(columns)
        number = len(columns)
        zeros, ones = (0.0,) * number, (1.0,) * number
        model = CorrectnessModel(tuple(columns), zeros, ones, zeros, 0.0, zeros, zeros)
        assert model.predict(columns) == pytest.approx(np.array([0.5]))
    assert results == set(FEATURES)
