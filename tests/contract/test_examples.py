"""The examples of the contract are real responses, and they fit it."""

import json

import pytest

from service.api.errors import STATUS
from service.api.openapi import EXAMPLES, recorded
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
    # rate_limited stands in the table for the limits to come; nothing answers with it yet.
    assert set(EXAMPLES) == set(STATUS) - {"rate_limited"}
    for code, example in EXAMPLES.items():
        assert example["status"] == STATUS[code]
