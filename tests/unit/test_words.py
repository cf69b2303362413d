"""Wording about the two numbers."""

import pytest

from service.app import DESCRIPTION
from service.scoring.score import Score

HONEST = "not the probability that the answer is right"
SAID = {
    "the schema": Score.model_json_schema()["properties"]["lambda_max"]["description"],
    "the API's description": DESCRIPTION,
}


@pytest.mark.parametrize("where", SAID)
def test_confidence_is_not_called_a_probability_of_being_right(where: str) -> None:
    text = " ".join(SAID[where].split())
    assert "confidence" in text
    assert HONEST in text
    assert "share" in text
