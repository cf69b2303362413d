"""POST /score over HTTP, with fakes."""

import asyncio
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from anyio import fail_after, to_thread

from service.calibration.calibration import Calibration, caller_fingerprint
from service.errors import EmbedderUnavailable, LLMError, LLMUnavailable, ModelNotFound, Overloaded
from service.spectral.spectrum import DepolarizedMap
from tests.api.conftest import Client
from tests.support.calibrations import Active
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import fake_app, on_socket

ORTHOGONAL = {name: np.eye(8)[i] for i, name in enumerate("abcd")}


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(8, vectors=ORTHOGONAL)


def calibration(fingerprint, num_samples=4, temperature=1.0, depolarization=0.5) -> Calibration:
    table = {m: DepolarizedMap(temperature, depolarization + m / 1000) for m in range(2, num_samples)}
    return Calibration(
        id="cal_" + "0" * 26,
        method="depolarized",
        fingerprint=fingerprint,
        num_samples=num_samples,
        parameters={**table, num_samples: DepolarizedMap(temperature, depolarization)},
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


async def test_samples_answers_for_a_prompt(client: Client, llm: FakeLLM) -> None:
    llm.answers["Which?"] = ["a", "a", "a", "b"]
    async with client() as http:
        response = await http.post("/score", json={"prompt": "Which?", "num_samples": 4, "return": []})
        with_modes = await http.post("/score", json={"prompt": "Which?", "num_samples": 4})
    body = response.json()
    assert body["lambda_max"] == pytest.approx(0.75)
    assert body["answer"] == "a"
    assert body["model"] == "fake-llm"
    assert body["usage"]["completion_tokens"] == 5  # one of the self-check
    assert "modes" not in body and "modes" in with_modes.json()
    assert response.headers["x-score-id"] == body["id"]
    assert set(body["timings_ms"]) == {"queue", "generate", "embed", "self_check", "spectrum", "total"}


async def test_sampling_settings_reach_the_llm(client: Client, llm: FakeLLM) -> None:
    sampling = {"temperature": 1, "top_p": 0.9, "top_k": 5, "max_tokens": 7, "stop": ["x"], "seed": 3}
    async with client(num_samples=6, max_tokens=9) as http:
        await http.post("/score", json={"prompt": "p", "sampling": sampling, "model": "other"})
        await http.post("/score", json={"messages": [{"role": "user", "content": "hi"}]})
    first, second = llm.requests
    assert first.sampling.stop == ("x",)
    assert (first.sampling.top_k, first.sampling.seed, first.model) == (5, 3, "other")
    assert (second.num_samples, second.sampling.max_tokens) == (6, 9)
    assert second.prompt.members == {"messages": [{"role": "user", "content": "hi"}]}


async def test_empty_samples_do_not_count(client: Client) -> None:
    async with client() as http:
        body = (await http.post("/score", json={"samples": ["a", "", "  ", "a", "b"]})).json()
        none = await http.post("/score", json={"samples": ["", " ", "a"]})
        blank = await http.post("/score", json={"samples": ["a", "b"], "candidate": " \n"})
    assert (body["num_samples"], body["num_distinct"], body["num_empty"]) == (3, 2, 2)
    assert body["lambda_max"] == pytest.approx(2 / 3, abs=0.05)
    assert (none.status_code, none.json()["code"]) == (422, "too_few_samples")
    assert "2 of 3 samples are empty" in none.json()["detail"]
    assert (blank.status_code, blank.json()["errors"][0]["loc"]) == (422, ["body", "candidate"])


async def test_modes_and_samples_on_request(client: Client) -> None:
    sent = ["b", "a", "a", "a"]
    async with client() as http:
        wanted = {"samples": sent, "return": ["samples", "modes"]}
        body = (await http.post("/score", json=wanted)).json()
    assert body["samples"] == sent
    assert [mode["answer"] for mode in body["modes"]] == ["a", "b"]
    assert [mode["share"] for mode in body["modes"]] == [0.75, 0.25]
    assert [mode["samples"] for mode in body["modes"]] == [[1, 2, 3], [0]]


async def test_matching_calibration_is_served(client: Client, embedder: FakeEmbedder) -> None:
    fitted = calibration(caller_fingerprint("lab", embedder.identity))
    request = {"samples": ["a"] * 4, "source_label": "lab"}
    async with client(calibrations=Active(fitted)) as http:
        body = (await http.post("/score", json=request)).json()
        fewer = (await http.post("/score", json={**request, "samples": ["a"] * 3})).json()
        named = (await http.post("/score", json={**request, "calibration": fitted.id})).json()
    # (1 - g) + g / d with g = 0.5, d = 8.
    assert body["lambda_max"] == pytest.approx(0.5625)
    assert body["uncalibrated"]["lambda_max"] == pytest.approx(1.0)
    assert body["calibrated"] is True and body["calibration"]["id"] == fitted.id
    assert fewer["calibration"]["depolarization"] == pytest.approx(0.503)
    assert named["lambda_max"] == body["lambda_max"]
    entropy = -(0.5625 * math.log(0.5625) + 7 * 0.0625 * math.log(0.0625))
    assert body["entropy"] == pytest.approx(entropy)
    assert body["entropy_normalized"] == pytest.approx(entropy / math.log(8))


@pytest.mark.parametrize("named", [False, True])
async def test_unmatched_calibration_is_never_applied(
    client: Client, embedder: FakeEmbedder, named: bool
) -> None:
    fitted = calibration(caller_fingerprint("lab", embedder.identity))
    choice = {"calibration": fitted.id} if named else {}
    async with client(calibrations=Active(fitted)) as http:
        sent = [
            {"samples": ["a", "b"], "source_label": "field"},
            {"samples": ["a"] * 5, "source_label": "lab"},
        ]
        other, more = [(await http.post("/score", json=body | choice)).json() for body in sent]
    assert other["calibrated"] is False
    assert other["warnings"][0]["code"] == "calibration_mismatch"
    assert other["warnings"][0]["differs"] == ["source_label"]
    assert other["lambda_max"] == other["uncalibrated"]["lambda_max"]
    assert more["warnings"][0]["differs"] == ["num_samples"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LLMUnavailable("The LLM server cannot be reached.", retry_after_s=7), 503, "llm_unavailable"),
        (LLMError("Status 400.", llm_status=400, llm_message="too long"), 502, "llm_error"),
        (ModelNotFound("No such model."), 404, "model_not_found"),
        (Overloaded("Too many."), 503, "overloaded"),
        (EmbedderUnavailable("Cannot embed."), 503, "embedder_unavailable"),
        (RuntimeError("secret text"), 500, "internal"),
    ],
)
async def test_errors_are_problem_documents(
    client: Client, llm: FakeLLM, error: Exception, status: int, code: str
) -> None:
    llm.fail_with = [error]
    async with client() as http:
        response = await http.post("/score", json={"prompt": "p"}, headers={"X-Request-ID": "mine-1"})
    body = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"] == body["request_id"] == "mine-1"
    assert "secret" not in response.text
    assert ("retry-after" in response.headers) == (status == 503)


async def test_deadline_applies_to_a_busy_embedder(llm: FakeLLM, tmp_path: Path) -> None:
    busy = asyncio.Event()  # never set
    async with on_socket(fake_app(llm, FakeEmbedder(8, gate=busy), data_dir=tmp_path)) as http:
        response = await http.post("/score", json={"prompt": "p", "deadline_ms": 500})
    assert (response.status_code, response.json()["code"]) == (504, "deadline_exceeded")


async def test_score_needs_no_shared_thread(client: Client) -> None:
    threads = to_thread.current_default_thread_limiter()
    for i in range(int(threads.total_tokens)):
        threads.acquire_on_behalf_of_nowait(i)
    async with client() as http:
        with fail_after(60):
            assert (await http.post("/score", json={"prompt": "p"})).status_code == 200


async def test_answers_are_compared_by_their_facts(client: Client, embedder: FakeEmbedder) -> None:
    """The fake embedder maps different texts to different vectors."""
    embedder.kernel = "facts"
    sent = {"prompt": "What is the capital of Italy?", "samples": ["The capital of Italy is Rome.", "Rome."]}
    async with client() as http:
        same = (await http.post("/score", json=sent)).json()
        judged = (await http.post("/score", json=sent | {"candidate": "The capital is Rome."})).json()
        empty = (await http.post("/score", json={"samples": ["", "7"]})).json()
        assert empty["code"] == "too_few_samples"
    assert same["lambda_max"] == judged["lambda_max"] == pytest.approx(1.0)
    assert judged["candidate"]["probability"] == pytest.approx(1.0)
    # Texts that say the same beyond the question are not indistinct.
    assert [warning["code"] for warning in same["warnings"]] == ["calibration_missing"]
