"""POST /verify and GET /health, in the form that vLLM's semantic router uses."""

import math
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.spectral.correctness_model import agreement, sigmoid
from tests.api.conftest import Client
from tests.support.fakes import FakeLLM
from tests.support.replica_apps import ORTHOGONAL, orthogonal, replica_app

ASKED = {"question": "Which?", "answer": "Paris", "threshold": 0.4}
FIELDS = {
    "confidence",
    "should_escalate",
    "verified_count",
    "total_samples",
    "samples",
    "threshold",
    "claims",
}
FOUR_OF_FIVE = ["Paris", "Paris", "Lyon", "Paris", "Paris"]


def service(folder: Path, llm: FakeLLM, **settings: Any) -> Any:
    request = {"num_samples": 5, "decides": True} | settings
    return replica_app(folder, "one", llm=llm, embedder=orthogonal(), **request)


async def verified(http: httpx.AsyncClient, **sent: Any) -> dict[str, Any]:
    response = await http.post("/verify", json=ASKED | sent)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert body.keys() == FIELDS
    assert math.isfinite(body["confidence"]) and 0 <= body["confidence"] <= 1
    return body


async def test_the_confidence_is_the_probability_of_being_right(tmp_path: Path) -> None:
    async with service(tmp_path, FakeLLM(default=FOUR_OF_FIVE)) as http:
        body = await verified(http)
        score = (await http.post("/score", json={"prompt": "Which?", "candidate": "Paris"})).json()
    assert body["confidence"] == score["candidate"]["probability_correct"]
    assert body["confidence"] == pytest.approx(0.5 * 0.8 + 0.5 / ORTHOGONAL)
    assert body["confidence"] != pytest.approx(score["candidate"]["probability"])
    assert (body["verified_count"], body["total_samples"]) == (4, 5)
    assert body["samples"] == FOUR_OF_FIVE
    assert (body["threshold"], body["should_escalate"]) == (0.4, False)


@pytest.mark.parametrize(
    ("answer", "count", "probability"), [("Lyon", 1, 0.5 * 0.2 + 0.5 / ORTHOGONAL), ("Nice", 0, None)]
)
async def test_answers_with_the_same_meaning_are_counted(
    tmp_path: Path, answer: str, count: int, probability: float | None
) -> None:
    """An answer given by nobody has count 0 and confidence 0, whatever the largest mode is."""
    async with service(tmp_path, FakeLLM(default=FOUR_OF_FIVE)) as http:
        body = await verified(http, answer=answer)
    assert (body["verified_count"], body["should_escalate"]) == (count, True)
    top = 0.5 * 0.8 + 0.5 / ORTHOGONAL
    expected = 0.0 if probability is None else sigmoid(agreement(top, probability)).item()
    assert body["confidence"] == pytest.approx(expected)


async def test_a_context_is_a_system_message(tmp_path: Path) -> None:
    llm = FakeLLM(default=FOUR_OF_FIVE)
    async with service(tmp_path, llm) as http:
        await verified(http, context="The country is France.")
        await verified(http, context="")
        await verified(
            http, context=None, model="small", trace={"a": 1}
        )  # further fields that the router may send
    conversation, *prompts = llm.requests
    user = {"role": "user", "content": "Which?"}
    system = {"role": "system", "content": "The country is France."}
    assert conversation.prompt.members == {"messages": [system, user]}
    assert [one.prompt.members for one in prompts] == [{"messages": [user]}] * 2


async def test_without_a_calibration_there_is_no_confidence(client: Client) -> None:
    async with client() as http:
        refused = await http.post("/verify", json=ASKED)
        metrics = (await http.get("/metrics")).text
    assert (refused.status_code, refused.json()["code"]) == (503, "no_probability")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "no calibration is applied" in refused.json()["detail"]
    assert 'eigencal_score_errors_total{code="no_probability"} 1.0' in metrics


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 1.5}, {"question": " "}],
)
async def test_invalid_request_is_refused(client: Client, wrong: dict[str, Any]) -> None:
    async with client() as http:
        refused = await http.post("/verify", json=ASKED | wrong)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


async def test_verify_accepts_a_score_key(client: Client) -> None:
    async with client(score_key="key") as http:
        assert (await http.post("/verify", json=ASKED)).status_code == 401
        held = await http.post("/verify", json=ASKED, headers={"Authorization": "Bearer key"})
        assert held.json()["code"] == "no_probability"
        assert (await http.get("/health")).json()["status"] == "ok"
