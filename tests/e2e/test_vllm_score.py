"""Scoring end to end: a real vLLM server, real HTTP, the real embedder. `make test-vllm`."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from select import select

import httpx2 as httpx
import pytest

from service.llm.ask import Asker, is_correct
from service.llm.client import LLM
from service.llm.prompt import Api
from tests.e2e.conftest import VllmServer

pytestmark = pytest.mark.vllm
# Runs for minutes unless somebody stops it.
LONG = {"messages": [{"role": "user", "content": "Tell a very long story."}], "num_samples": 20}
LONG["sampling"] = {"max_tokens": 1500, "temperature": 1.0}


def post(url: str, body: dict, timeout: float = 300) -> httpx.Response:
    return httpx.post(f"{url}/score", json=body, timeout=timeout)


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition; return True if it holds before the time is over."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@contextmanager
def drawing(url: str, vllm: VllmServer) -> Iterator[HTTPConnection]:
    """Start a score with answers in progress on the server; disconnect at the end."""
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=600)) as call:
        call.request("POST", "/score", json.dumps(LONG), {"content-type": "application/json"})

        def is_answered() -> bool:
            return bool(select([call.sock], [], [], 0)[0])

        begun = until(lambda: is_answered() or vllm.metric("vllm:num_requests_running") > 0, 110)
        assert not is_answered(), call.getresponse().read()
        assert begun, vllm.log_end()
        yield call


def test_prompt_is_scored(service_url: str) -> None:
    body = {"prompt": "What is the capital of France?", "return": ["samples", "modes"]}
    response = post(service_url, body)
    score = response.json()
    assert response.status_code == 200, score
    assert score["model"] == "smollm2" and score["embedder"] == "all-mpnet-base-v2"
    assert len(score["samples"]) == score["num_samples"] == 20
    assert score["usage"]["prompt_tokens"] > 20 and score["usage"]["completion_tokens"] >= 20
    raw = score["uncalibrated"]
    assert 1 / 20 <= raw["lambda_max"] <= 1 and 0 <= raw["entropy"] <= math.log(20)
    assert score["calibration"] is None and score["lambda_max"] == raw["lambda_max"]
    assert 0 < score["self_check"] < 1 and score["timings_ms"]["self_check"] > 0
    assert score["answer"] in score["samples"] and "\n" not in score["answer"]


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_one_token_answers_a_question(vllm: VllmServer, api: Api) -> None:
    llm = LLM(f"{vllm.url}/v1", api=api)
    questions = [is_correct("What is the capital of France?", answer) for answer in ("Paris", "Lyon")]
    replies = await Asker(llm).ask(questions)
    await llm.stop()
    assert all(yes is not None and 0 < yes < 1 for yes in replies.yes)
    assert replies.usage.completion_tokens == 2 and "by draws" not in replies.by


def test_known_facts_get_higher_confidence(service_url: str) -> None:
    body = post(service_url, {"prompt": "What is the capital of France?"}).json()
    unknown = post(service_url, {"prompt": "What was the name of my grandfather's dog?"}).json()
    assert body["lambda_max"] > unknown["lambda_max"]
    assert body["entropy"] < unknown["entropy"]


def test_conversation_is_scored_through_chat(service_url: str) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"messages": messages, "num_samples": 4, "sampling": {"max_tokens": 12}}
    score = post(service_url, body).json()
    assert score["num_samples"] == 4 and score["num_truncated"] >= 1


def test_refusal_of_the_server_is_reported(service_url: str) -> None:
    response = post(service_url, {"prompt": "word " * 5000})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (502, "llm_error")
    assert problem["llm_status"] == 400
    assert "word word" not in response.text
    response = post(service_url, {"prompt": "x", "model": "no-such-model"})
    assert (response.status_code, response.json()["code"]) == (404, "model_not_found")


def test_score_after_its_deadline_is_an_error(service_url: str) -> None:
    in_time = {"prompt": "Name an animal.", "num_samples": 64, "deadline_ms": 60_000}
    whole = post(service_url, in_time).json()
    assert whole["num_samples"] == 64 and whole["warnings"][0]["code"] == "calibration_missing"
    late = post(service_url, {**LONG, "deadline_ms": 2000})
    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")


def test_disconnect_frees_the_server(service_url: str, vllm: VllmServer) -> None:
    with drawing(service_url, vllm):
        before = vllm.metric("vllm:generation_tokens_total")
    assert until(lambda: vllm.metric("vllm:num_requests_running") == 0, 120)
    # Twenty stories of 1500 tokens would be 30,000.
    assert vllm.metric("vllm:generation_tokens_total") - before < 5000


def test_killed_server_is_reported_and_recovery_detected(service_url: str, vllm: VllmServer) -> None:
    with drawing(service_url, vllm) as call:
        vllm.kill()
        response = call.getresponse()
        problem = json.load(response)
    assert (response.status, problem["code"]) == (503, "llm_unavailable"), problem
    assert problem["retryable"] and response.getheader("retry-after")
    # The result of the check is cached for a second.
    assert until(lambda: httpx.get(f"{service_url}/readyz", timeout=30).status_code == 503, 120)
    assert httpx.get(f"{service_url}/readyz", timeout=30).json()["code"] == "llm_unavailable"
    assert httpx.get(f"{service_url}/healthz", timeout=30).status_code == 200
    vllm.start()
    again = post(service_url, {"prompt": "Who wrote Hamlet?"})
    assert again.status_code == 200, again.text
    assert again.json()["num_samples"] == 20
