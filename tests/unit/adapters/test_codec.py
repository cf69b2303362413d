"""What the store keeps is read back as it was, and by earlier releases where nothing is new in it."""

import json
from dataclasses import replace

import pytest

from service.adapters.store.codec import (
    decode_calibration,
    decode_fingerprint,
    encode_calibration,
    encode_fingerprint,
)
from service.domain.calibration import Calibration
from service.domain.models import EMBEDDED, OUTCOME
from tests.support.calibrations import calibration, fingerprint
from tests.support.evidence import by_evidence


@pytest.mark.parametrize("empty_answers", [OUTCOME, EMBEDDED])
def test_a_fingerprint_comes_back(empty_answers: str) -> None:
    one = replace(fingerprint(), empty_answers=empty_answers)
    assert decode_fingerprint(encode_fingerprint(one)) == one


def test_the_default_way_of_empty_answers_is_not_written() -> None:
    """Replicas of an earlier release on the same database know no such part."""
    assert "empty_answers" not in encode_fingerprint(fingerprint())
    assert "empty_answers" not in encode_calibration(calibration())["fingerprint"]


def kept(one: Calibration) -> Calibration:
    body = json.loads(json.dumps(encode_calibration(one)))
    return decode_calibration({"id": one.id, "body": body, "created_at": one.created_at})  # type: ignore[arg-type]


def test_a_calibration_by_evidence_comes_back() -> None:
    one = by_evidence(fingerprint=replace(fingerprint(), evidence="supplied"))
    assert kept(one) == one


def test_a_calibration_stored_before_there_was_evidence_is_valid() -> None:
    one = calibration()
    body = encode_calibration(one)
    assert "evidence" not in body
    assert "evidence" not in body["fingerprint"]
    assert kept(one) == one
