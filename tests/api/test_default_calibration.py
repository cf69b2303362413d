"""Scores without a matching calibration use the packaged default, and say so."""

import math
from typing import Any

import numpy as np
import pytest

from service.calibration.default import DEFAULT_IDS, packaged
from service.embedding.port import PAPER
from service.errors import EmbedderUnavailable
from service.spectral.spectrum import DepolarizedMap
from tests.api.conftest import Client
from tests.api.test_score import calibration
from tests.support.calibrations import Active
from tests.support.fakes import FakeEmbedder

D = 8
ANSWERS = {name: np.eye(D)[i] for i, name in enumerate("abcd")}
SENT = {"samples": ["a", "a", "b"], "logprobs": [math.log(0.4), math.log(0.4), math.log(0.2)]}


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(D, vectors=ANSWERS)


async def scored(client: Client, sent: dict[str, Any], **settings: Any) -> Any:
    async with client(**settings) as http:
        response = await http.post("/score", json=sent)
    assert response.status_code == 200, response.text
    return response.json()


def codes(score: Any) -> list[str]:
    return [warning["code"] for warning in score["warnings"]]


DEFAULT = ["default_calibration", "default_probability"]


async def test_logprobs_are_served_by_the_evidence_map(client: Client) -> None:
    score = await scored(client, SENT)
    used, default = score["calibration"], packaged(PAPER).under(FakeEmbedder(D).identity)
    map_ = default.evidence[3].at(0.4)
    assert (used["id"], used["origin"], used["method"]) == (DEFAULT_IDS[PAPER], "default", "evidence")
    assert used["kernel"] == "paper"
    assert (score["calibrated"], codes(score)) == (False, DEFAULT)
    assert score["lambda_max"] == map_.serve(np.array([2 / 3, 1 / 3]), D).lambda_max
    assert used["depolarization"] == pytest.approx(map_.depolarization)
    assert score["uncalibrated"]["lambda_max"] == pytest.approx(2 / 3)
    assert score["probability_correct"] == pytest.approx(score["lambda_max"])


async def test_answers_without_logprobs_are_served_by_the_plain_map(client: Client) -> None:
    score = await scored(client, {"samples": SENT["samples"]})
    plain = packaged(PAPER).under(FakeEmbedder(D).identity).parameters[3]
    map_ = DepolarizedMap(plain.temperature, plain.depolarization)
    assert score["calibration"]["method"] == "depolarized"
    assert score["lambda_max"] == map_.serve(np.array([2 / 3, 1 / 3]), D).lambda_max
    assert codes(score) == DEFAULT
    assert score["probability_correct"] == pytest.approx(score["lambda_max"])


async def test_one_answer_is_scored_by_its_logprob(client: Client) -> None:
    few, many = ([math.log(p)] for p in (0.2, 0.9))
    scores = [await scored(client, {"samples": ["a"], "logprobs": item}) for item in (few, many)]
    assert 0.1 < scores[0]["lambda_max"] < scores[1]["lambda_max"] < 0.9
    async with client() as http:
        refused = await http.post("/score", json={"samples": ["a"]})
    assert refused.json()["code"] == "too_few_samples"


async def test_default_names_the_calibration_that_does_not_match(client: Client) -> None:
    """An active or requested calibration is not applied to another set-up."""
    other = calibration(
        FakeEmbedder(D).identity and packaged(PAPER).under(FakeEmbedder(D).identity).fingerprint
    )
    for calibration_id in ("active", other.id):
        score = await scored(client, SENT | {"calibration": calibration_id}, calibrations=Active(other))
        assert score["calibration"]["origin"] == "default"
        assert codes(score) == ["calibration_mismatch", *DEFAULT]
        assert score["warnings"][0]["differs"]


async def test_raw_values_can_be_requested(client: Client) -> None:
    by_request = await scored(client, SENT | {"calibration": "none"})
    by_setting = await scored(client, SENT, default_calibration=False)
    for score in (by_request, by_setting):
        assert score["calibration"] is None
        assert score["lambda_max"] == pytest.approx(2 / 3)


async def test_default_gives_p_correct_without_verdicts(client: Client) -> None:
    """A supported answer is likelier right than an unsupported one; a raw score gives no probability."""
    results = []
    for sent in (SENT, SENT | {"candidate": "b"}, {"samples": SENT["samples"]}):
        score = await scored(client, sent)
        judged = score["candidate"] or score
        assert score["rank_score"] == judged["probability_correct"]
        results.append(score["rank_score"])
    assert 0 < results[1] < results[0] < 1
    assert results[2] != results[0]
    surer = await scored(client, SENT | {"logprobs": [math.log(0.9), math.log(0.9), math.log(0.05)]})
    assert surer["probability_correct"] > results[0]
    raw = await scored(client, SENT | {"calibration": "none"})
    assert (raw["rank_score"], raw["probability_correct"]) == (None, None)


async def test_default_decides_for_a_requested_target_without_a_promise(client: Client) -> None:
    correct = (await scored(client, SENT))["probability_correct"]
    for error, action in ((1 - correct + 1e-6, "answer"), (1 - correct - 1e-6, "abstain")):
        score = await scored(client, SENT | {"target_error": error})
        decision = score["decision"]
        assert (decision["action"], decision["coverage"]) == (action, None)
        assert decision["threshold"] == pytest.approx(1 - error)
        assert "This is not a promise" in decision["reason"] and codes(score) == DEFAULT
    assert (await scored(client, SENT))["decision"] is None


async def test_default_gives_an_ood_p_value_from_its_rows(client: Client) -> None:
    """It has question vectors for the packaged embedders; for others only lengths count."""
    usual = await scored(client, {"samples": ["a", "b"]})
    strange = await scored(client, {"samples": ["a " * 300, "b " * 300]})
    assert usual["ood_p_value"] > 0.1
    assert strange["ood_p_value"] < 0.02 and "out_of_distribution" in codes(strange)


async def test_embedder_started_later_is_identified_at_the_first_score(
    client: Client, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedder may be identified only by its first answer."""
    identity = embedder.identity

    def unknown(_: FakeEmbedder) -> Any:
        raise EmbedderUnavailable("It has not answered yet.")

    monkeypatch.setattr(FakeEmbedder, "identity", property(unknown))
    embed = embedder.embed

    async def embed_late(texts: Any) -> Any:
        monkeypatch.setattr(FakeEmbedder, "identity", property(lambda _: identity))
        return await embed(texts)

    monkeypatch.setattr(embedder, "embed", embed_late)
    assert (await scored(client, SENT | {"prompt": "Which?"}))["calibration"]["origin"] == "default"


async def test_unsupported_candidate_has_no_p_correct(client: Client) -> None:
    score = await scored(client, SENT | {"candidate": "d"})
    assert (score["rank_score"], score["candidate"]["probability_correct"]) == (None, None)
    assert score["probability_correct"] is not None and "default_probability" in codes(score)
    score = await scored(client, SENT | {"candidate": "d", "target_error": 0.9})
    assert score["decision"]["action"] == "abstain"
    assert "None of the answers drawn agrees with it" in score["decision"]["reason"]
