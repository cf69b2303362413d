"""/v1 with an embedded LLM, replaced by a fake."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.errors import PromptTooLong
from service.llm.port import Generation, GenerationRequest
from tests.api.conftest import Client, client_of
from tests.support.drop_in import QUESTION, events_of
from tests.support.fakes import FakeEmbedder, FakeLLM

ASKED = QUESTION | {"model": None}


async def test_a_chat_is_answered_and_scored(client: Client, llm: FakeLLM) -> None:
    async with client(num_samples=5) as http:
        body = (await http.post("/v1/chat/completions", json=ASKED | {"temperature": 0.1})).json()
        kept = (await http.get(f"/scores/{body['uncertainty']['id']}")).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Paris"}
    assert body["object"] == "chat.completion" and body["usage"]["prompt_tokens"] == 8
    assert (body["uncertainty"]["status"], body["uncertainty"]["num_samples"]) == ("scored", 3)
    assert kept == body["uncertainty"]
    assert sorted((request.num_samples, request.sampling.temperature) for request in llm.requests) == [
        (1, 0.1),
        (3, 0.5),
    ]


async def test_stream_has_the_text_and_a_chunk_with_the_score(client: Client) -> None:
    request = ASKED | {"stream": True, "stream_options": {"include_usage": True}}
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=request)
    text, chunk, usage = events_of(response.content)
    assert text["choices"][0]["delta"]["content"] == "Paris" and chunk["object"] == "chat.completion.chunk"
    assert chunk["uncertainty"]["status"] == "scored" and usage["usage"]["completion_tokens"] == 1
    assert response.content.endswith(b"data: [DONE]\n\n")


async def test_a_text_is_completed_and_models_are_listed(client: Client) -> None:
    async with client(num_samples=5) as http:
        body = (await http.post("/v1/completions?v=1", json={"prompt": "The capital is", "n": 2})).json()
        models = (await http.get("/v1/models")).json()
    assert [choice["text"] for choice in body["choices"]] == ["Paris", "Paris"]
    assert body["uncertainty"]["status"] == "scored"
    assert [entry["id"] for entry in models["data"]] == ["fake-llm"]


class Tells(FakeLLM):
    """Two tokens per answer, with their log-probabilities."""

    async def generate(self, request: GenerationRequest) -> Generation:
        generation = await super().generate(request)
        body = {"total_logprob": -0.75, "num_tokens": 2, "token_logprobs": (-0.5, -0.25)}
        return replace(generation, draws=tuple(replace(draw, **body) for draw in generation.draws))


@pytest.fixture
def telling(tmp_path: Path, embedder: FakeEmbedder) -> Client:
    return client_of(Tells(), embedder, tmp_path)


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_allow_effort_none(telling: Client, stream: bool) -> None:
    request = ASKED | {"stream": stream}
    async with telling() as http:
        own = await http.post("/v1/chat/completions", json=request | {"logprobs": True})
        none = await http.post("/v1/chat/completions", json=request | {"eigencal": {"effort": "none"}})
        text = await http.post("/v1/completions", json={"prompt": "The capital is", "logprobs": 0})
    [requested, unrequested] = [
        [*events_of(response.content)] if stream else [response.json()] for response in (own, none)
    ]
    content = requested[0]["choices"][0]["logprobs"]["content"]
    assert [(token_["token"], token_["logprob"]) for token_ in content] == [("Paris", -0.5), ("", -0.25)]
    assert unrequested[0]["choices"][0]["logprobs"] is None
    score = unrequested[-1]["uncertainty"]
    assert (score["status"], score["num_samples"]) == ("scored", 0) and 0 < score["rank_score"] < 1
    assert text.json()["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -0.25]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, None),
        ({"messages": [{"role": "tool", "content": "7"}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"messages": "Who?"}, None),
        ({"temperature": 7}, "temperature"),
        ({"stop": [7]}, "stop"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_unsupported_features_are_refused(
    client: Client, body: dict[str, Any], param: str | None, stream: bool
) -> None:
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=ASKED | {"stream": stream} | body)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == ("invalid_request", param)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("chat/completions", {"tools": [TOOL], "tool_choice": "auto"}, ["tool_choice", "tools"]),
        ("chat/completions", {"functions": [{"name": "f"}], "function_call": "auto"}, ["functions"]),
        ("chat/completions", {"response_format": {"type": "json_object"}}, ["response_format"]),
        ("chat/completions", {"logit_bias": {"50256": -100}}, ["logit_bias"]),
        ("chat/completions", {"modalities": ["text", "audio"], "audio": {"voice": "a"}}, ["audio"]),
        ("chat/completions", {"frequency_penalty": 0.5}, ["frequency_penalty"]),
        ("chat/completions", {"logprobs": True, "top_logprobs": 5}, ["top_logprobs"]),
        ("chat/completions", {"reasoning_effort": "high"}, ["reasoning_effort"]),
        ("chat/completions", {"anything": 1}, ["anything"]),
        ("completions", {"prompt": "a", "suffix": "b"}, ["suffix"]),
        ("completions", {"prompt": "a", "echo": True}, ["echo"]),
        ("completions", {"prompt": "a", "best_of": 3}, ["best_of"]),
    ],
)
@pytest.mark.parametrize("mode", ["off", "on"])
async def test_unknown_parameter_is_refused_by_name(
    client: Client, llm: FakeLLM, path: str, body: dict[str, Any], names: list[str], mode: str
) -> None:
    request = body if "prompt" in body else ASKED | body
    async with client(num_samples=5) as http:
        response = await http.post(f"/v1/{path}", json=request, headers={"X-Eigencal": mode})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (
        400,
        "invalid_request_error",
        "unsupported_parameter",
    )
    assert error["param"] in body
    assert all(name in error["message"] for name in names)


async def test_a_parameter_without_effect_is_accepted(client: Client) -> None:
    silent: dict[str, Any] = {"tools": [], "response_format": {"type": "text"}, "logit_bias": {}, "user": "u"}
    silent |= {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "top_logprobs": 0,
        "parallel_tool_calls": True,
    }
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=ASKED | silent | {"metadata": {"a": "b"}})
    assert response.status_code == 200, response.text


class Short(FakeLLM):
    """Takes prompts of a few tokens."""

    async def generate(self, request: GenerationRequest) -> Generation:
        raise PromptTooLong("This model's maximum context length is 2048 tokens.", llm_status=400)


@pytest.mark.parametrize("stream", [False, True])
async def test_too_long_chat_is_refused_with_the_usual_message(
    tmp_path: Path, embedder: FakeEmbedder, stream: bool
) -> None:
    async with client_of(Short(), embedder, tmp_path)(num_samples=5) as http:
        chat = await http.post("/v1/chat/completions", json=ASKED | {"stream": stream})
        score = await http.post("/score", json={"messages": QUESTION["messages"]})
    words = "This model's maximum context length is 2048 tokens."
    assert chat.status_code == 400
    assert chat.json()["error"] == {
        "message": words,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    body = score.json()
    assert (score.status_code, body["code"], body["retryable"]) == (422, "invalid_request", False)
    assert body["detail"] == words
