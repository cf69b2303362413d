"""The drop-in in front of a real vLLM server returns the server's own answers. `make test-vllm`."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests.e2e.conftest import VllmServer
from tests.support.drop_in import events_of
from tests.support.services import ready

pytestmark = pytest.mark.vllm
# No seed: at temperature 0 it is not needed, and a seed stops vLLM's engine on a CPU.
GREEDY = {"model": "smollm2", "temperature": 0, "max_tokens": 24}
CHAT = {"messages": [{"role": "user", "content": "Name three colours of the rainbow."}]}
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
LOW = {"eigencal": {"num_samples": 3}}


@pytest.fixture(scope="module")
def base(base_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a service shared by all tests: it stores only scores between calls."""
    with ready(tmp_path_factory.mktemp("drop-in"), base_environment) as url:
        yield url


def post(url: str, path: str, body: dict[str, Any], mode: str = "on") -> httpx.Response:
    headers = {"X-Eigencal": mode}
    response = httpx.post(f"{url}/v1{path}", json=body, headers=headers, timeout=300)
    assert response.status_code == 200, response.text
    return response


def text_of(choice: dict[str, Any]) -> str:
    message = choice["message"] if "message" in choice else choice["delta"]
    return str(message.get("content") or "")


def gathered(content: bytes) -> tuple[str, str, Any]:
    """Return text, finish reason and usage of a stream."""
    chunks = events_of(content)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return "".join(map(text_of, choices)), reasons[-1], chunks[-1]["usage"]


# The mode `async` does not wait, but returns a score that is ready in time.
STATUSES = {"off": (None,), "async": ("pending", "scored"), "on": ("scored",)}


@pytest.mark.parametrize("mode", ["off", "async", "on"])
def test_answer_equals_the_servers(base: str, vllm: VllmServer, mode: str) -> None:
    body = {**GREEDY, **CHAT}
    direct = post(vllm.url, "/chat/completions", body).json()
    ours = post(base, "/chat/completions", {**body, **LOW}, mode).json()
    result = ours.pop("uncertainty", None)
    assert ours.keys() == direct.keys()
    assert ours["choices"] == direct["choices"] and text_of(ours["choices"][0])
    assert ours["usage"] == direct["usage"]
    assert (result or {}).get("status") in STATUSES[mode]


@pytest.mark.parametrize("mode", ["off", "async", "on"])
def test_stream_equals_the_servers(base: str, vllm: VllmServer, mode: str) -> None:
    body = {**GREEDY, **CHAT, "stream": True, "stream_options": {"include_usage": True}}
    direct = post(vllm.url, "/chat/completions", body)
    ours = post(base, "/chat/completions", {**body, **LOW}, mode)
    assert gathered(ours.content) == gathered(direct.content)
    uncertainties = [chunk["uncertainty"] for chunk in events_of(ours.content) if "uncertainty" in chunk]
    assert len(uncertainties) == (mode != "off") and all(
        uncertainty["status"] in STATUSES[mode] for uncertainty in uncertainties
    )
    assert ours.content.endswith(b"data: [DONE]\n\n")


RESPONSE = {"model": "smollm2", "temperature": 0, "input": CHAT["messages"], "max_output_tokens": 24}


def output_of(response: dict[str, Any]) -> Any:
    """Return status, texts and number of tokens. Ids and cached tokens differ from call to call."""
    parts = [part for item in response["output"] for part in item["content"]]
    assert not any(part["logprobs"] for part in parts)
    return response["status"], [part["text"] for part in parts], response["usage"]["output_tokens"]


@pytest.mark.parametrize("mode", ["off", "async", "on"])
def test_response_equals_the_servers(base: str, vllm: VllmServer, mode: str) -> None:
    direct = post(vllm.url, "/responses", RESPONSE).json()
    ours = post(base, "/responses", {**RESPONSE, **LOW}, mode).json()
    result = ours.pop("uncertainty", None)
    assert ours.keys() == direct.keys() and output_of(ours) == output_of(direct)
    assert (result or {}).get("status") in STATUSES[mode]


# Complete, because truncated answers are not judged without samples.
@pytest.mark.parametrize(("number", "asked"), [(3, {}), (0, {"max_output_tokens": 200, "stop": ["."]})])
def test_streamed_response_equals_the_servers(
    base: str, vllm: VllmServer, number: int, asked: dict[str, Any]
) -> None:
    body = {**RESPONSE, **asked, "stream": True}
    direct = events_of(post(vllm.url, "/responses", body).content)
    ours = events_of(post(base, "/responses", {**body, "eigencal": {"num_samples": number}}).content)
    assert [event["type"] for event in ours] == [event["type"] for event in direct]
    assert [event.get("delta") for event in ours] == [event.get("delta") for event in direct]
    assert not any(event.get("logprobs") for event in ours)
    assert output_of(ours[-1]["response"]) == output_of(direct[-1]["response"])
    assert ours[-1]["response"]["uncertainty"]["status"] == "scored"


def test_turns_of_a_response_are_those_of_its_samples(base: str, vllm: VllmServer) -> None:
    chat = post(vllm.url, "/chat/completions", {**GREEDY, **CHAT}).json()
    response = post(vllm.url, "/responses", RESPONSE).json()
    assert response["output"][0]["content"][0]["text"] == text_of(chat["choices"][0])
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_score_is_returned_in_three_ways(base: str) -> None:
    response = post(base, "/chat/completions", {**GREEDY, **CHAT, **LOW})
    uncertainty = response.json()["uncertainty"]
    assert 0 < uncertainty["lambda_max"] <= 1 and uncertainty["num_samples"] == 3
    assert uncertainty["evidence"] is not None and uncertainty["model"] == "smollm2"
    assert response.headers["x-score-id"] == uncertainty["id"]
    assert httpx.get(f"{base}/scores/{uncertainty['id']}", timeout=60).json() == uncertainty


def test_json_mode_is_forwarded_and_sampled_alike(base: str, vllm: VllmServer) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA}}
    body = {**GREEDY, **CHAT, "response_format": format_}
    direct = post(vllm.url, "/chat/completions", body).json()
    ours = post(base, "/chat/completions", {**body, **LOW}).json()
    assert ours["choices"] == direct["choices"]
    assert json.loads(text_of(ours["choices"][0]))["colour"] in ("red", "green")
    uncertainty = ours["uncertainty"]
    assert (uncertainty["status"], uncertainty["calibrated"], uncertainty["num_distinct"] <= 3) == (
        "scored",
        False,
        True,
    )


def test_unused_tools_are_forwarded(base: str, vllm: VllmServer) -> None:
    """`test_vllm_clients` compares calls of tools."""
    tool = {"type": "function", "function": {"name": "paint", "parameters": SCHEMA}}
    body = {**GREEDY, **CHAT, "tools": [tool], "tool_choice": "none"}
    direct = post(vllm.url, "/chat/completions", body).json()
    ours = post(base, "/chat/completions", {**body, **LOW}).json()
    assert ours["choices"] == direct["choices"]
    assert ours["uncertainty"]["status"] == "scored"


def test_several_choices_and_logprobs_are_forwarded(base: str) -> None:
    body = {**GREEDY, **CHAT, "temperature": 1.0, "n": 2, "logprobs": True, "top_logprobs": 2, **LOW}
    ours = post(base, "/chat/completions", body).json()
    assert [choice["index"] for choice in ours["choices"]] == [0, 1]
    assert all(len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2 for choice in ours["choices"])
    assert ours["uncertainty"]["status"] == "scored"


def test_stream_is_made_of_a_whole_answer_if_the_caller_abstains(base: str) -> None:
    body = {**GREEDY, **CHAT, "stream": True, "eigencal": {"num_samples": 3, "abstain": True}}
    chunks = events_of(post(base, "/chat/completions", body).content)
    [uncertainty] = [chunk["uncertainty"] for chunk in chunks if "uncertainty" in chunk]
    assert uncertainty["decision"] is None  # without a calibration
    text = "".join(text_of(choice) for chunk in chunks for choice in chunk["choices"])
    assert text == "I am not sure enough to answer this."


@pytest.mark.parametrize("stream", [False, True])
def test_without_samples_only_the_servers_answer_is_generated(
    base: str, vllm: VllmServer, *, stream: bool
) -> None:
    # Complete, because truncated answers are not judged.
    body = {**GREEDY, **CHAT, "stream": stream, "max_tokens": 200, "stop": ["."]}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    direct = post(vllm.url, "/chat/completions", body)
    before = vllm.metric("vllm:request_success_total")
    ours = post(base, "/chat/completions", {**body, "eigencal": {"num_samples": 0}})
    assert vllm.metric("vllm:request_success_total") - before == 1
    events = events_of(ours.content) if stream else [ours.json()]
    if stream:
        assert gathered(ours.content) == gathered(direct.content)
    else:
        assert events[0]["choices"] == direct.json()["choices"]
    assert not any(choice.get("logprobs") for chunk in events for choice in chunk["choices"])
    [uncertainty] = [chunk["uncertainty"] for chunk in events if "uncertainty" in chunk]
    # Without a log-probability of all its tokens it would be `not_scored`.
    assert (uncertainty["status"], uncertainty["num_samples"], uncertainty["model"]) == (
        "scored",
        0,
        "smollm2",
    )


def test_refusal_of_the_server_is_forwarded(base: str, vllm: VllmServer) -> None:
    body = {**GREEDY, **CHAT, "model": "no-such-model"}
    answers = [httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60) for url in (vllm.url, base)]
    assert answers[0].status_code == answers[1].status_code == 404
    assert answers[0].json() == answers[1].json()
    assert httpx.get(f"{base}/v1/models", timeout=60).json()["data"][0]["id"] == "smollm2"


@pytest.mark.parametrize("mode", ["off", "on"])
async def test_disconnect_frees_the_server(base: str, vllm: VllmServer, mode: str) -> None:
    body = {**GREEDY, **CHAT, "ignore_eos": True, "max_tokens": 1500, "stream": True}
    async with httpx.AsyncClient(timeout=120) as http:
        url, headers = f"{base}/v1/chat/completions", {"X-Eigencal": mode}
        async with http.stream("POST", url, json=body, headers=headers) as response:
            async for _ in response.aiter_bytes():
                break
    async with asyncio.timeout(120):
        while await asyncio.to_thread(vllm.metric, "vllm:num_requests_running"):
            await asyncio.sleep(0.2)
