"""The examples of the contract are real responses, and they fit it."""

import json

import pytest

from service import errors
from service.http.openapi import EXAMPLES, recorded
from service.scoring.request import ScoreRequest
from service.scoring.score import Score

RECORDED = recorded("examples.json")


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_score_fits_the_schema(name: str) -> None:
    example = RECORDED[name]
    ScoreRequest.model_validate_json(json.dumps(example["request"]))
    response = Score.model_validate(example["response"])
    assert response.model_dump(mode="json", exclude_unset=True) == example["response"]


def test_every_error_code_has_an_example_with_its_status() -> None:
    kinds = {kind.code: kind for kind in vars(errors).values() if hasattr(kind, "code")}
    assert set(EXAMPLES) == set(kinds)
    for code, example in EXAMPLES.items():
        assert example["status"] == kinds[code].status
