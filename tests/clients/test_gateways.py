"""LiteLLM's proxy with our guardrail, and the calls of vLLM's semantic router, on a calibrated service."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.conftest import litellm_proxy
from tests.clients.environments import LITELLM_KEY, LLM_KEY, SCORE_KEY, outcome
from tests.clients.recipes import blocks, script
from tests.support.openai_server import MODEL, OpenAIServer
from tests.support.services import Service

pytestmark = pytest.mark.clients
KNOWN, UNKNOWN = "question 1000", "question 1001"


def chat(proxy: str, prompt: str, **more: Any) -> httpx.Response:
    body = {"model": "my-model", "messages": [{"role": "user", "content": prompt}], **more}
    headers = {"Authorization": f"Bearer {LITELLM_KEY}"}
    return httpx.post(f"{proxy}/v1/chat/completions", json=body, headers=headers, timeout=120)


def streamed_text(response: httpx.Response) -> str:
    """Return the text of a stream's chunks."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line).get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@pytest.fixture(scope="module")
def guarded(
    deciding: Service, half_knowing: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """LiteLLM's proxy as the page configures it."""
    config = blocks("litellm.md")["guardrail.yaml"]
    told = {
        "http://127.0.0.1:8000": str(deciding.http.base_url).rstrip("/"),
        "http://127.0.0.1:8001/v1": half_knowing.url,
        "the-key-of-that-server": LLM_KEY,
        "the-model": MODEL,
    }
    for said, meant in told.items():
        config = config.replace(said, meant)
    with litellm_proxy(tmp_path_factory.mktemp("guarded"), config) as url:
        yield url


def test_a_sure_answer_passes(guarded: str) -> None:
    answer = chat(guarded, KNOWN)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "Paris"


def test_an_unsure_answer_is_blocked(guarded: str) -> None:
    answer = chat(guarded, UNKNOWN)
    assert answer.status_code == 400, answer.text
    assert "This answer is held back. " in answer.json()["error"]["message"]
    assert "Paris" not in answer.text


def test_a_sure_stream_passes(guarded: str) -> None:
    answer = chat(guarded, KNOWN, stream=True)
    assert answer.status_code == 200
    assert streamed_text(answer) == "Paris"
    assert "error" not in answer.text and answer.text.rstrip().endswith("data: [DONE]")


def test_of_an_unsure_stream_nothing_goes_out_but_the_reason(guarded: str) -> None:
    answer = chat(guarded, UNKNOWN, stream=True)
    assert streamed_text(answer) == ""
    *_, last = [line for line in answer.text.splitlines() if line]
    assert "This answer is held back. " in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_a_call_draws_once_for_both_of_the_guardrails_calls(guarded: str, half_knowing: OpenAIServer) -> None:
    before = len(half_knowing.requests)
    assert chat(guarded, "question 1002").status_code == 200
    chats = [one.body.get("n", 1) for one in half_knowing.requests[before:] if "chat" in one.path]
    assert sorted(chats) == [1, 5]  # the proxy's own, and ours


@pytest.mark.parametrize("stream", [False, True])
def test_with_our_service_dead_fail_open_lets_pass(proxy: str, stream: bool) -> None:
    answer = chat(proxy, KNOWN, guardrails=["fail_open"], stream=stream)
    assert answer.status_code == 200, answer.text
    text = streamed_text(answer) if stream else answer.json()["choices"][0]["message"]["content"]
    assert text == "Paris"


@pytest.mark.parametrize("stream", [False, True])
def test_with_our_service_dead_fail_closed_refuses(proxy: str, stream: bool) -> None:
    answer = chat(proxy, KNOWN, guardrails=["fail_closed"], stream=stream)
    assert answer.status_code == 500, answer.text
    assert "Paris" not in answer.text


ROUTERS_FIELDS = {"confidence", "should_escalate", "verified_count", "total_samples", "samples", "threshold"}


class Router:
    """vLLM's semantic router, as its verifier client goes: a POST, 200 or failed, its fields, 60 s."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)

    def verify(self, question: str, answer: str, threshold: float, context: str = "") -> dict[str, Any]:
        body = {"question": question, "answer": answer, "threshold": threshold}
        response = self.http.post("/verify", json=body | ({"context": context} if context else {}))
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        self.check(found)
        return found

    def check(self, found: dict[str, Any]) -> None:
        assert found.keys() >= ROUTERS_FIELDS
        for name in ("confidence", "threshold"):
            assert isinstance(found[name], float) and math.isfinite(found[name]) and 0 <= found[name] <= 1
        assert found["should_escalate"] is (found["confidence"] < found["threshold"])
        assert 0 <= found["verified_count"] <= found["total_samples"] == len(found["samples"])
        assert all(isinstance(text, str) for text in found["samples"])


@pytest.fixture
def router(deciding: Service) -> Iterator[Router]:
    made = Router(str(deciding.http.base_url).rstrip("/"))
    yield made
    made.http.close()


def test_the_router_keeps_what_is_sure_and_escalates_what_is_not(router: Router) -> None:
    sure = router.verify(KNOWN, "Paris", 0.7)
    unsure = router.verify(UNKNOWN, "Paris", 0.7)
    assert (sure["should_escalate"], unsure["should_escalate"]) == (False, True)
    assert sure["confidence"] > 0.8 > 0.2 > unsure["confidence"]
    assert (sure["verified_count"], sure["total_samples"]) == (5, 5)


def test_without_a_calibration_the_router_gets_a_failure(ours: str) -> None:
    """Raw values are not probabilities: the router then follows its configuration for a dead verifier."""
    body = {"question": KNOWN, "answer": "Paris", "threshold": 0.5}
    headers = {"Authorization": f"Bearer {SCORE_KEY}"}
    refused = httpx.post(f"{ours}/verify", json=body, headers=headers, timeout=60)
    assert (refused.status_code, refused.json()["code"]) == (503, "no_probability")


def test_the_routers_page(deciding: Service, tmp_path: Path) -> None:
    url = str(deciding.http.base_url).rstrip("/")
    done = outcome(script("semantic-router.md", "verify.py", url, tmp_path))
    assert done.returncode == 0, done.stderr
    Router(url).check(json.loads(done.stdout))
    assert "verifier_server_url: http://127.0.0.1:8000" in blocks("semantic-router.md")["confidence.yaml"]
