"""Conversations of two turns by real client packages, each with the history that the client itself builds.

The LLM server is strict: it refuses any member of a call or a turn that OpenAI's API does not have. A member
of ours that came back in a turn, or that we pass on, would be refused.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.conftest import behind, calibrated, half_known, litellm_proxy
from tests.clients.environments import LITELLM_KEY, LLM_KEY, SCRIPTS, printed
from tests.clients.upstream import answering, upstream
from tests.support.openai_server import MODEL, Exchange, OpenAIServer, serving_in_thread

pytestmark = pytest.mark.clients
TEXTS = ["Paris", "Lyon"]
# The members of OpenAI's API, `reasoning_content` as the server itself sends it, and `parsed`, which OpenAI's
# clients add to turns of their own.
TURN = {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call", "annotations"}
TURN |= {"tool_call_id", "reasoning_content", "parsed"}
PART = {"type", "text", "annotations", "logprobs", "parsed"}
ITEM = {"type", "id", "role", "content", "status", "phase"}
CALL = {
    "model",
    "messages",
    "temperature",
    "top_p",
    "n",
    "seed",
    "stop",
    "max_tokens",
    "max_completion_tokens",
}
CALL |= {"stream", "stream_options", "logprobs", "top_logprobs", "user", "metadata", "store", "logit_bias"}
CALL |= {"frequency_penalty", "presence_penalty", "tools", "tool_choice", "parallel_tool_calls"}
CALL |= {"response_format", "reasoning_effort", "service_tier", "modalities"}
RESPONSE_CALL = CALL - {"messages"} | {"input", "instructions", "max_output_tokens", "include", "text"}


def refusal(body: dict[str, Any]) -> str | None:
    """Return the name of a member that a strict server does not take."""
    for position, turn in enumerate(body["messages"]):
        for name in turn.keys() - TURN:
            return f"messages.{position}.{name}"
    return next(iter(body.keys() - CALL), None)


def response_refusal(body: dict[str, Any]) -> str | None:
    """Return the name of a member of a Responses call that a strict server does not take."""
    for position, item in enumerate(body["input"]):
        parts = [] if isinstance(item["content"], str) else item["content"]
        for name in {*item} - ITEM | {name for part in parts for name in {*part} - PART}:
            return f"input.{position}.{name}"
    return next(iter(body.keys() - RESPONSE_CALL), None)


REFUSALS = {"/v1/chat/completions": refusal, "/v1/responses": response_refusal}


async def strict(exchange: Exchange) -> None:
    name = REFUSALS[exchange.path](exchange.body) if exchange.path in REFUSALS else None
    if name is None:
        await answering(half_known)(exchange)
    else:
        error = {"message": f"Unrecognized request argument supplied: {name}", "param": name, "code": None}
        await exchange.send(400, {"error": {**error, "type": "invalid_request_error"}})


@dataclass
class Recorder:
    """Passes calls on to a service, and keeps its answers."""

    url: str
    answers: list[httpx.Response] = field(default_factory=list)

    async def __call__(self, exchange: Exchange) -> None:
        names = ("authorization", "content-type", "x-eigencal")
        headers = {name: exchange.headers[name] for name in names if name in exchange.headers}
        async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
            answer = await http.post(f"{self.url}{exchange.path}", content=exchange.data, headers=headers)
        self.answers.append(answer)
        await exchange.send(
            answer.status_code, answer.content, {"content-type": answer.headers["content-type"]}
        )


def uncertainty(answer: httpx.Response) -> dict[str, Any]:
    """Return the uncertainty of an answer, in one piece or streamed."""
    assert answer.status_code == 200, answer.text
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return dict(answer.json()["uncertainty"])
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    parts = [chunk.get("response", chunk) for chunk in map(json.loads, events)]
    [found] = [part["uncertainty"] for part in parts if "uncertainty" in part]
    return dict(found)


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    made = upstream()
    made.default = strict
    with serving_in_thread(made):
        yield made


@pytest.fixture(scope="module")
def recorder(server: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """A calibrated service in front of the strict server."""
    with calibrated(server, tmp_path_factory.mktemp("calibrated")) as made:
        yield Recorder(str(made.http.base_url).rstrip("/"))


@pytest.fixture(scope="module")
def recording(recorder: Recorder) -> Iterator[OpenAIServer]:
    with serving_in_thread(OpenAIServer(default=recorder)) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(
    server: OpenAIServer, recording: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """LiteLLM's proxy, with the server itself and the service in front of it."""
    models = [behind("direct", server.url, LLM_KEY), behind("ours", recording.url, LLM_KEY)]
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), {"model_list": models}) as url:
        yield f"{url}/v1"


def texts(client: str, url: str, model: str) -> dict[str, list[str]]:
    key = LITELLM_KEY if client == "litellm_proxy" else LLM_KEY
    return {case: told["texts"] for case, told in printed(client, url, key, model, "turns").items()}


@pytest.mark.parametrize("client", SCRIPTS)
def test_both_turns_are_answered_and_scored_by_the_same_calibration(
    client: str,
    server: OpenAIServer,
    recorder: Recorder,
    recording: OpenAIServer,
    request: pytest.FixtureRequest,
) -> None:
    if client == "litellm_proxy":
        url = request.getfixturevalue("proxy")
        direct, behind_us = texts(client, url, "direct"), texts(client, url, "ours")
    else:
        recorder.answers.clear()
        direct, behind_us = texts(client, server.url, MODEL), texts(client, recording.url, MODEL)
    assert behind_us == direct == dict.fromkeys(direct, TEXTS)
    scores = [uncertainty(answer) for answer in recorder.answers]
    assert len(scores) >= 2 * len(direct) > 0
    for score in scores:
        assert score["status"] == "scored", score
        assert score["calibration"]["origin"] == "own", score
        assert "calibration_mismatch" not in {warning["code"] for warning in score["warnings"]}
