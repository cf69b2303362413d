"""What is said of the two numbers, in the words that users act on."""

import pytest

from service.app import DESCRIPTION
from service.scoring.score import Score
from service.spectral.maps import DepolarizedMap, Identity

HONEST = "not the probability that the answer is right"
SAID = {
    "the schema": Score.model_json_schema()["properties"]["lambda_max"]["description"],
    "the API's description": DESCRIPTION,
}


@pytest.mark.parametrize("where", SAID)
def test_confidence_is_not_sold_as_the_probability_of_being_right(where: str) -> None:
    said = " ".join(SAID[where].split())
    assert "confidence" in said
    assert HONEST in said
    assert "share" in said


def test_unanimity_is_1_and_0_for_raw_values_only() -> None:
    raw, calibrated = (map_.serve([1.0], 768) for map_ in (Identity(), DepolarizedMap(1.0, 0.3)))
    assert (raw.lambda_max, raw.entropy) == (1.0, 0.0)
    assert calibrated.lambda_max < 0.8
    assert calibrated.entropy > 1.0
