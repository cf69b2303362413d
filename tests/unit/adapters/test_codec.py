"""What the store keeps is read back as it was, and by earlier releases where nothing is new in it."""

import json
from dataclasses import replace

import pytest
from service.store.codec import (
    decode_calibration,
    decode_draws,
    decode_fingerprint,
    encode_calibration,
    encode_draws,
    encode_fingerprint,
    encode_row,
)

from service.calibration.calibration import Calibration
from service.llm.port import EMBEDDED, OUTCOME, Draw
from service.spectral.evidence import EvidenceMap
from tests.support.calibrations import calibration, fingerprint, rows
from tests.support.decisions import decider
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
    return decode_calibration({"id": one.id, "body": body, "created_at": one.created_at})


def test_a_calibration_by_evidence_comes_back() -> None:
    one = by_evidence(fingerprint=replace(fingerprint(), evidence="supplied"))
    assert kept(one) == one


def test_a_calibration_with_deciders_comes_back() -> None:
    one = by_evidence(deciders={1: decider(EvidenceMap(0.9, 0.0, 1.0)), 3: decider()})
    assert kept(one) == one


def test_a_calibration_stored_before_there_was_evidence_is_valid() -> None:
    one = calibration()
    body = encode_calibration(one)
    assert not {"evidence", "deciders"} & body.keys()
    assert "evidence" not in body["fingerprint"]
    assert kept(one) == one


def test_answers_come_back_with_their_log_probabilities() -> None:
    draws = (Draw("a", True, -0.5, -2.0, 4), Draw("", logprob=-1.0), Draw("b", total_logprob=0.005))
    assert decode_draws(json.loads(json.dumps(encode_draws(draws)))) == draws


def test_answers_of_earlier_releases_have_none() -> None:
    assert decode_draws([["a", True, -0.5], ["", 0, None]]) == (Draw("a", True, -0.5), Draw(""))


def test_a_row_is_kept_without_its_answers_and_what_belongs_to_them() -> None:
    row = next(rows(samples=("a", "b"), logprobs=(-1.0, -2.0)))
    assert not {"samples", "logprobs", "line"} & encode_row(row).keys()
