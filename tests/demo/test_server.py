"""The LLM server of the demonstration with a toy model, and the service's client before it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest

from demo.server import LLMServer
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Sampling, Template
from tests.demo.toy import NEVER, Letters, ToyNetwork, toy_model
from tests.support.live import on_socket, served

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
TURNS = [{"role": "user", "content": "a"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": TURNS},
    TEXT: {"prompt": "a"},
    RESPONSES: {"input": "a"},
}


@asynccontextmanager
async def serving(network: ToyNetwork | None = None, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the toy model, whose answers end at a newline."""
    async with on_socket(LLMServer(toy_model(network, eos=(3,)), **options).app()) as http:
        yield http


async def answered(path: str, **body: Any) -> Any:
    async with serving() as http:
        response = await http.post(path, json=BODIES[path] | body)
    assert response.status_code == 200, response.text
    return events(response.text) if body.get("stream") else response.json()


def events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_a_chat_is_answered() -> None:
    body = await answered(CHAT, n=3, seed=1, temperature=1, model="toy")
    assert (body["object"], body["model"]) == ("chat.completion", "toy")
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    for choice in body["choices"]:
        assert choice["message"]["role"] == "assistant" and "\n" not in choice["message"]["content"]
        assert (choice["logprobs"], choice["finish_reason"]) == (None, "stop")
    usage = body["usage"]
    assert usage["prompt_tokens"] == 1 and usage["completion_tokens"] >= 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_stream_has_the_texts_and_log_probabilities_of_the_whole_answer(path: str) -> None:
    logprobs = {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    body = {"n": 4, "seed": 5, "temperature": 1, "stop": "aab", **logprobs}
    whole = await answered(path, **body)
    chunks = await answered(path, **body, stream=True, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        pieces = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == ["stop"]
        if path == CHAT:
            assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
            assert "".join(piece["delta"]["content"] for piece in pieces) == choice["message"]["content"]
            tokens = [token for piece in pieces[1:] for token in piece["logprobs"]["content"]]
            assert tokens == choice["logprobs"]["content"]
            assert all(len(token["top_logprobs"]) == 2 for token in tokens)
        else:
            assert "".join(piece["text"] for piece in pieces) == choice["text"]
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                streamed = [value for piece in pieces for value in piece["logprobs"][name]]
                assert streamed == choice["logprobs"][name]


async def test_alternatives_may_have_equal_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Letters, "decode", lambda *_, **__: "\ufffd")  # halves of characters
    turns, drawn = [{"role": "user", "content": "b"}], {"temperature": 0, "max_tokens": 1}
    chat = await answered(CHAT, messages=turns, logprobs=True, top_logprobs=2, **drawn)
    [token] = chat["choices"][0]["logprobs"]["content"]
    likeliest, other = (alternative["logprob"] for alternative in token["top_logprobs"])
    assert token["logprob"] == likeliest > other
    completion = await answered(TEXT, prompt="b", logprobs=2, **drawn)
    assert completion["choices"][0]["logprobs"]["top_logprobs"] == [{"\ufffd": likeliest}]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        (CHAT, {"tools": [TOOL]}, "tools", "unsupported_parameter"),
        (CHAT, {"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        (CHAT, {"logit_bias": {"5": -100}}, "logit_bias", "unsupported_parameter"),
        (CHAT, {"frequency_penalty": 0.5}, "frequency_penalty", "unsupported_parameter"),
        (CHAT, {"anything": 1}, "anything", "unsupported_parameter"),
        (TEXT, {"echo": True}, "echo", "unsupported_parameter"),
        (TEXT, {"best_of": 3}, "best_of", "unsupported_parameter"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
        (CHAT, {"messages": [{**TURNS[0], "tool_calls": [1]}]}, "turn.tool_calls", "unsupported_parameter"),
        (CHAT, {"messages": []}, "messages", None),
        (CHAT, {"messages": [{"role": "tool", "content": "7"}]}, "messages", None),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", None),
        (CHAT, {"temperature": 7}, "temperature", None),
        (CHAT, {"n": "2"}, "n", None),
        (CHAT, {"stop": [7]}, "stop", None),
        (CHAT, {"top_logprobs": 2}, "top_logprobs", None),
        (TEXT, {"prompt": ["a", "b"]}, "prompt", None),
        (CHAT, {"max_tokens": 2048}, "messages", "context_length_exceeded"),
        (TEXT, {"prompt": "a" * 2048}, "prompt", "context_length_exceeded"),
        (RESPONSES, {"max_output_tokens": 2048}, "input", "context_length_exceeded"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
async def test_calls_are_refused_in_the_format_of_the_api(
    path: str, body: dict[str, Any], param: str, code: str | None, stream: bool
) -> None:
    async with serving() as http:
        response = await http.post(path, json=BODIES[path] | body | {"stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


async def test_unknown_models_and_bodies_without_json() -> None:
    async with serving() as http:
        unknown = await http.post(CHAT, json=BODIES[CHAT] | {"model": "other"})
        broken = [await http.post(CHAT, content=body) for body in (b"{", b"[]", b'"\xff"', b"[" * 100_000)]
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "model_not_found"
    assert [response.status_code for response in broken] == [400] * 4


@pytest.mark.parametrize("stream", [False, True])
async def test_the_queue_is_bounded_and_a_caller_who_leaves_frees_the_model(stream: bool) -> None:
    network = ToyNetwork()
    network.gate.clear()  # the model computes until it is set
    async with serving(network, max_open=2) as http:
        open_calls = [asyncio.create_task(accepted(http, stream=stream)) for _ in range(2)]
        await until(lambda: refused(http))
        for task in open_calls:
            task.cancel()
        await asyncio.gather(*open_calls, return_exceptions=True)
        later = asyncio.create_task(accepted(http))
        network.gate.set()
        assert (await later).status_code == 200
    assert len(network.batches) <= 1 + 2 * 64  # nothing was drawn for the call that waited


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_stops_draws_no_further(stream: bool) -> None:
    network = ToyNetwork({0: [0.0, NEVER, NEVER, NEVER]})  # only the limit ends an answer
    network.gate.clear()
    app, longest = LLMServer(toy_model(network), max_open=2).app(), 2000
    async with served(app, timeout_graceful_shutdown=0) as port:
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
        body = {"max_tokens": longest, "stream": stream}
        calls = [asyncio.create_task(accepted(http, **body)) for _ in range(2)]
        await until(lambda: refused(http))
        threading.Timer(1.0, network.gate.set).start()  # while the server stops
    await asyncio.gather(*calls, http.aclose(), return_exceptions=True)
    assert len(network.batches) < longest


async def refused(http: httpx.AsyncClient) -> bool:
    """Return True if there is no room. With room, the call is abandoned."""
    try:
        response = await http.post(CHAT, json=BODIES[CHAT], timeout=0.2)
    except httpx.TimeoutException:  # on a busy machine even the connection may take longer
        return False
    assert response.status_code == 429 and response.json()["error"]["code"] == "rate_limit_exceeded"
    return True


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


async def accepted(http: httpx.AsyncClient, **body: Any) -> httpx.Response:
    """Call until there is room: the server notices callers who have left a moment later."""
    while (response := await http.post(CHAT, json=BODIES[CHAT] | body)).status_code == 429:
        await asyncio.sleep(0.01)
    return response


# The Responses API


async def test_a_response_has_its_text_and_log_probabilities() -> None:
    body = await answered(
        RESPONSES,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
        instructions="c",
        include=["message.output_text.logprobs"],
        max_output_tokens=50,
    )
    [item] = body["output"]
    [part] = item["content"]
    assert (body["object"], body["status"], item["role"]) == ("response", "completed", "assistant")
    assert part["text"] == "".join(token["token"] for token in part["logprobs"]).rstrip("\n")
    assert body["usage"]["input_tokens"] == 2
    assert body["usage"]["output_tokens"] == len(part["logprobs"])


async def test_a_response_is_streamed_in_the_order_of_the_api() -> None:
    stream = await answered(RESPONSES, stream=True)
    names = [event["type"].removeprefix("response.") for event in stream]
    deltas = [event for event in stream if event["type"] == "response.output_text.delta"]
    assert names == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * len(deltas),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    text = "".join(event["delta"] for event in deltas)
    assert text == stream[-1]["response"]["output"][0]["content"][0]["text"]


# The service's client

SHORT = Sampling(temperature=0.7, top_k=2, max_tokens=8, stop=("\n",), seed=3)


@asynccontextmanager
async def client(**options: Any) -> AsyncIterator[LLM]:
    async with serving() as http:
        llm = LLM(str(http.base_url), **options)
        await llm.start()
        try:
            yield llm
        finally:
            await llm.stop()


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("deadline_s", [None, 60.0])
async def test_the_client_gets_what_it_asks_for(api: Any, deadline_s: float | None) -> None:
    prompt = Template(text="b\n{prompt}", api=api).prompt("a")
    request = GenerationRequest(5, SHORT, prompt, deadline_s=deadline_s)
    async with client(api=api) as llm:
        generation = await llm.generate(request)
        await llm.check()
        identity = llm.identity(request)
    assert (len(generation.draws), generation.model, generation.omitted) == (5, "toy", ())
    assert (identity.model, identity.answered) == ("toy", True)
    for draw in generation.draws:
        assert draw.total_logprob is not None and draw.num_tokens is not None
        assert not draw.logprobs_of_other_text
    assert generation.usage.completion_tokens == sum(draw.num_tokens or 0 for draw in generation.draws)
