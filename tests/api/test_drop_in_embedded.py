"""/v1 with the LLM in this process: a fake of it, behind the same routes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
    assert sorted((one.num_samples, one.sampling.temperature) for one in llm.requests) == [(1, 0.1), (3, 0.5)]


async def test_a_stream_is_the_text_and_a_chunk_that_carries_the_score(client: Client) -> None:
    asked = ASKED | {"stream": True, "stream_options": {"include_usage": True}}
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=asked)
    text, chunk, usage = events_of(response.content)
    assert text["choices"][0]["delta"]["content"] == "Paris" and chunk["object"] == "chat.completion.chunk"
    assert chunk["uncertainty"]["status"] == "scored" and usage["usage"]["completion_tokens"] == 1
    assert response.content.endswith(b"data: [DONE]\n\n")


async def test_a_text_is_completed_and_models_are_listed(client: Client) -> None:
    async with client(num_samples=5) as http:
        body = (await http.post("/v1/completions?v=1", json={"prompt": "The capital is", "n": 2})).json()
        models = (await http.get("/v1/models")).json()
    assert [one["text"] for one in body["choices"]] == ["Paris", "Paris"]
    assert body["uncertainty"]["status"] == "scored"
    assert [one["id"] for one in models["data"]] == ["fake-llm"]


class Tells(FakeLLM):
    """Two tokens an answer, with their log-probabilities."""

    async def generate(self, request: GenerationRequest) -> Generation:
        found = await super().generate(request)
        told = {"total_logprob": -0.75, "num_tokens": 2, "token_logprobs": (-0.5, -0.25)}
        return replace(found, draws=tuple(replace(one, **told) for one in found.draws))


@pytest.fixture
def telling(tmp_path: Path, embedder: FakeEmbedder) -> Client:
    return client_of(Tells(), embedder, tmp_path)


@pytest.mark.parametrize("stream", [False, True])
async def test_it_tells_log_probabilities_so_that_effort_none_ranks(telling: Client, stream: bool) -> None:
    asked = ASKED | {"stream": stream}
    async with telling() as http:
        own = await http.post("/v1/chat/completions", json=asked | {"logprobs": True})
        none = await http.post("/v1/chat/completions", json=asked | {"eigencal": {"effort": "none"}})
        text = await http.post("/v1/completions", json={"prompt": "The capital is", "logprobs": 0})
    [told, unasked] = [[*events_of(one.content)] if stream else [one.json()] for one in (own, none)]
    content = told[0]["choices"][0]["logprobs"]["content"]
    assert [(one["token"], one["logprob"]) for one in content] == [("Paris", -0.5), ("", -0.25)]
    assert unasked[0]["choices"][0]["logprobs"] is None
    score = unasked[-1]["uncertainty"]
    assert (score["status"], score["num_samples"]) == ("scored", 0) and 0 < score["rank_score"] < 1
    assert text.json()["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -0.25]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "tool", "content": "7"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"temperature": 7},
        {"stop": [7]},
    ],
)
async def test_what_it_cannot_do_is_refused(client: Client, body: dict[str, Any]) -> None:
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=ASKED | body)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")
