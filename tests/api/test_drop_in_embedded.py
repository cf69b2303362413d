"""/v1 with the LLM in this process: a fake of it, behind the same routes."""

from typing import Any

import pytest

from tests.api.conftest import Client
from tests.support.drop_in import QUESTION, events_of
from tests.support.fakes import FakeLLM

pytestmark = pytest.mark.anyio
ASKED = QUESTION | {"model": None}


async def test_a_chat_is_answered_and_scored(client: Client, llm: FakeLLM) -> None:
    async with client(num_samples=5) as http:
        body = (await http.post("/v1/chat/completions", json=ASKED | {"temperature": 0.1})).json()
        kept = (await http.get(f"/scores/{body['uncertainty']['id']}")).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Paris"}
    assert body["object"] == "chat.completion" and body["usage"]["prompt_tokens"] == 8
    assert (body["uncertainty"]["status"], body["uncertainty"]["num_samples"]) == ("scored", 5)
    assert kept == body["uncertainty"]
    assert sorted((one.num_samples, one.sampling.temperature) for one in llm.requests) == [(1, 0.1), (5, 0.5)]


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


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "tool", "content": "7"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"temperature": 7},
        {"n": True},
        {"max_tokens": 10**9},
        {"stop": [7]},
        {"seed": -1},
    ],
)
async def test_what_it_cannot_do_is_refused(client: Client, body: dict[str, Any]) -> None:
    async with client(num_samples=5) as http:
        response = await http.post("/v1/chat/completions", json=ASKED | body)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")
