"""Evidence over HTTP with fakes: its fields, single answers, and invalid log-probabilities."""

import math
from dataclasses import replace
from typing import Any

import pytest

from service.app import serving_of
from service.calibration.calibration import Calibration, service_fingerprint
from service.settings import Settings
from tests.api.conftest import Client
from tests.support.calibrations import Active, add
from tests.support.evidence import TellingLLM, by_evidence
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore

DIMENSION = 64
SERVING = serving_of(Settings())


@pytest.fixture
def llm() -> TellingLLM:
    return TellingLLM(told={"question 0": math.log(0.75)})


def fitting(llm: FakeLLM) -> Calibration:
    request = SERVING.request(prompt="question 0")
    made_by = FakeEmbedder(DIMENSION).identity
    return by_evidence(fingerprint=service_fingerprint(llm.identity(request), request.sampling, made_by))


async def test_evidence_score_reports_its_evidence(client: Client, llm: TellingLLM) -> None:
    async with client(calibrations=Active(fitting(llm))) as http:
        body = (await http.post("/score", json={"prompt": "question 0", "num_samples": 3})).json()
    assert body["num_samples"] == 3
    used = body["calibration"]
    assert (used["method"], used["evidence_intercept"], used["evidence_slope"]) == ("evidence", 0.0, 1.0)
    assert used["depolarization"] == pytest.approx(0.25)
    assert body["evidence"] == pytest.approx({"missing_mass": 0.25, "mean_logprob": math.log(0.75)})
    assert body["lambda_max"] == pytest.approx(0.75 + 0.25 / DIMENSION)
    assert (body["calibrated"], body["warnings"]) == (True, [])


async def test_evidence_calibration_is_shown_with_its_table(client: Client, llm: TellingLLM) -> None:
    made = replace(fitting(llm), fingerprint=replace(fitting(llm).fingerprint, evidence="token_sums"))
    store = SqliteStore()
    await add(store.calibrations, made, {"version": 1})
    async with client(calibrations=store.calibrations) as http:
        body = (await http.get(f"/calibrations/{made.id}")).json()
    assert body["method"] == "evidence"
    assert [score["num_samples"] for score in body["evidence"]] == [1, 2, 3, 4, 5]
    assert body["evidence"][0] == {
        "num_samples": 1,
        "temperature": 1.0,
        "evidence_intercept": 0.0,
        "evidence_slope": 0.5,
    }
    assert body["fingerprint"]["evidence"] == "token_sums"
    assert body["fingerprint_key"] == fitting(llm).fingerprint.key()
    await store.stop()


@pytest.mark.parametrize("method", ["evidence", "auto", "both", "depolarized", "temperature", None])
async def test_all_methods_can_be_requested(client: Client, method: str | None) -> None:
    examples: list[dict[str, Any]] = [
        {"prompt": f"q{i}", "reference": "r", "samples": ["a", "b"], "logprobs": [-1.0, -2.0]}
        for i in range(30)
    ]
    sent = {"examples": examples} | ({"method": method} if method else {})
    async with client() as http:
        assert (await http.post("/calibrate", json=sent)).status_code == 202
        assert (await http.post("/calibrate", json={**sent, "method": "best"})).status_code == 422
