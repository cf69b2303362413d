"""What the store keeps is read back as it was, and by earlier releases where nothing is new in it."""

from dataclasses import replace

import pytest

from service.adapters.store.codec import decode_fingerprint, encode_calibration, encode_fingerprint
from service.domain.models import EMBEDDED, OUTCOME
from tests.support.calibrations import calibration, fingerprint


@pytest.mark.parametrize("empty_answers", [OUTCOME, EMBEDDED])
def test_a_fingerprint_comes_back(empty_answers: str) -> None:
    one = replace(fingerprint(), empty_answers=empty_answers)
    assert decode_fingerprint(encode_fingerprint(one)) == one


def test_the_default_way_of_empty_answers_is_not_written() -> None:
    """Replicas of an earlier release on the same database know no such part."""
    assert "empty_answers" not in encode_fingerprint(fingerprint())
    assert "empty_answers" not in encode_calibration(calibration())["fingerprint"]
