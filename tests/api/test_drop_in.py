"""/v1 without streaming: the server's own answer with a score."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.heavy_json import MAX_VALUES
from service.proxy import chat_score, upstream
from tests.support.drop_in import QUESTION, DropIn, drop_in, events_of
from tests.support.fakes import FakeEmbedder
from tests.support.openai_server import MODEL, Behaviour, OpenAIServer, answers, draws_and, raw, status

REASONED = {"content": None, "reasoning_content": "Paris, Lyon or Nice? It is"}
OWN = (
    b'{"id": "chatcmpl-1", "model": "' + MODEL.encode() + b'", "big": 123456789012345678901234567890,\n'
    b'"small": 1.0e-5, "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, '
    b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n'
)


@asynccontextmanager
async def before(own: Behaviour, draws: Behaviour | None = None, **settings: Any) -> AsyncIterator[DropIn]:
    """Serve the drop-in in front of a server with these behaviours for the caller and for samples."""
    async with OpenAIServer(default=draws_and(own, draws)) as server, drop_in(server, **settings) as made:
        yield made


def saying(message: dict[str, Any], finish: str = "stop", **more: Any) -> Behaviour:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return status(200, {"model": MODEL, "choices": [choice], **more})


# Forwarded requests and responses


async def test_servers_answer_is_returned_with_a_score() -> None:
    async with before(raw(OWN)) as made:
        response = await made.ask()
        body = response.json()
    score = body.pop("uncertainty")
    assert body == json.loads(OWN)
    assert (score["status"], score["num_samples"], score["calibrated"]) == ("scored", 5, False)
    assert 0 < score["candidate"]["probability"] <= score["lambda_max"] <= 1
    assert response.headers["x-score-id"] == score["id"]
    assert float(response.headers["x-lambda-max"]) == pytest.approx(score["lambda_max"], abs=1e-6)
    assert "error" not in score and "answer" not in score


async def test_call_is_forwarded_unchanged_without_our_fields() -> None:
    sent = (
        b'{ "model":"m", "x": 123456789012345678901234567890, "eigencal" : {"effort": "low"},\n'
        b' "messages": [{"role": "user", "content": "say \\u00e9 \\"eigencal\\""}],"y":1.50e-07 }'
    )
    async with before(answers("Paris"), llm_api_key="sk-server") as made:
        headers = {"content-type": "application/json", "x-request-id": "mine-7", "traceparent": "00-1-2-01"}
        response = await made.http.post("/v1/chat/completions", content=sent, headers=headers)
        assert response.json()["uncertainty"]["num_samples"] == 3
        call = next(request for request in made.server.requests if "n" not in request.body)
    own = {name: value for name, value in json.loads(sent).items() if name != "eigencal"}
    assert json.loads(call.data) == own and own["x"] == 123456789012345678901234567890
    assert call.path == "/v1/chat/completions"
    assert (call.headers["authorization"], call.headers["x-request-id"]) == ("Bearer sk-server", "mine-7")
    assert (call.headers["accept-encoding"], call.headers["traceparent"]) == ("identity", "00-1-2-01")


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_body_without_our_field_is_forwarded_byte_for_byte(mode: str, path: str) -> None:
    sent = b'{"messages" : [{"role":"user","content":"?"}], "prompt":"?" ,"temperature": 0.30 }\n'
    async with before(answers("Paris")) as made:
        headers = {"content-type": "application/json", "x-eigencal": mode}
        assert (await made.http.post(path, content=sent, headers=headers)).status_code == 200
        assert sent in [request.data for request in made.server.requests]


@pytest.mark.parametrize("mode", ["off", "on"])
async def test_too_large_answer_is_forwarded_as_it_arrives(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before(raw(OWN)) as made:
        monkeypatch.setattr(upstream, "MAX_WHOLE_BYTES", 100)
        response = await made.ask(mode)
        assert response.content == OWN
        if mode == "on":
            score = await made.scored(response.headers["x-score-id"], "not_scored")
            assert score["warning"]["code"] == "too_long"


async def test_our_field_in_a_body_with_too_many_values_is_refused() -> None:
    biases = {str(i): 1 for i in range(MAX_VALUES)}
    async with before(raw(OWN)) as made:
        refused = await made.ask(eigencal={"effort": "low"}, logit_bias=biases)
        passed = await made.ask(logit_bias=biases)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert passed.json()["uncertainty"]["warning"]["code"] == "unreadable_request"


async def test_mode_off_returns_the_bare_answer() -> None:
    async with before(raw(OWN)) as made:
        response = await made.ask("off", eigencal={"effort": "low"})
        assert response.content == OWN
        assert len(made.server.requests) == 1 and "eigencal" not in made.server.bodies[0]
    assert "x-score-id" not in response.headers


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_refusal_of_the_server_is_forwarded_without_sampling(mode: str, streamed: bool) -> None:
    refusal = {"error": {"message": "slow down", "type": "rate_limit", "param": None, "code": "429"}}
    status_ = status(429, refusal, {"Retry-After": "7", "x-ratelimit-remaining": "0"})
    async with before(status_) as made:
        response = await made.ask(mode, stream=streamed)
        await made.at_rest()
        assert (await made.http.get("/v1/models")).json() == {"data": [{"id": MODEL, "owned_by": "vllm"}]}
        assert (await made.ask("sometimes")).status_code == 422
    assert (response.status_code, response.json()) == (429, refusal)
    assert response.headers["retry-after"] == "7" and "x-ratelimit-remaining" not in response.headers
    assert "x-score-id" not in response.headers


@pytest.mark.parametrize("mode", ["off", "on"])
async def test_unreachable_server_gives_an_error_in_openai_format(mode: str) -> None:
    async with OpenAIServer() as server:
        gone = server.url
    async with OpenAIServer() as server, drop_in(server, llm_url=gone) as made:
        response = await made.ask(mode)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (503, "server_error", "llm_unavailable")
    assert set(error) == {"message", "type", "param", "code"} and "retry-after" in response.headers


async def test_only_ascii_headers_are_forwarded() -> None:
    async def behave(exchange: Any) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-language: \xc3\xa9\xff\r\naccess-control-allow-origin: *\r\n"
        exchange.writer.write(head + b"content-length: %d\r\n\r\n%b" % (len(OWN), OWN))

    async with before(behave) as made:
        headers = {b"X-Eigencal": b"off", b"tracestate": b"\xc3\xa9\xff", b"traceparent": b"a"}
        response = await made.http.post("/v1/chat/completions", json=QUESTION, headers=headers)
        [call] = made.server.requests
    assert (b"content-language", b"\xc3\xa9\xff") in [(k.lower(), v) for k, v in response.headers.raw]
    assert call.headers["traceparent"] == "a" and "tracestate" not in call.headers
    assert "access-control-allow-origin" not in response.headers


# Our fields in a call


@pytest.mark.parametrize(
    ("own", "where"),
    [
        ({"foo": 1}, "eigencal.foo"),
        ({"effort": "much"}, "eigencal.effort"),
        ({"num_samples": 4, "effort": "low"}, "eigencal"),
        ({"target_error": 2}, "eigencal.target_error"),
        ({"target_error": float("nan")}, "eigencal.target_error"),
        ({"calibration": "\ud800"}, "eigencal"),
        ({"abstain": None}, "eigencal.abstain"),
        ("low", "eigencal"),
        (None, "eigencal"),
    ],
)
async def test_invalid_content_of_our_field_is_refused(own: object, where: str) -> None:
    async with before(raw(OWN)) as made:
        response = await made.ask(eigencal=own)
        assert not made.server.requests
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (422, "invalid_request_error")
    assert where in error["message"]


async def test_a_key_is_asked_for_in_the_clients_own_shape() -> None:
    async with before(raw(OWN), score_key="s3cret") as made:
        refused = await made.ask()
        let_in = await made.http.post(
            "/v1/chat/completions", json=QUESTION, headers={"Authorization": "Bearer s3cret"}
        )
        elsewhere = await made.http.get("/v1/nowhere")
        form = await made.http.post(
            "/v1/completions", content=b"x", headers={"Authorization": "Bearer s3cret"}
        )
        bodies = [request.headers.get("authorization") for request in made.server.requests]
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_key")
    assert let_in.status_code == 200 and bodies[0] is None
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "not_found")
    assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported_media_type")


# Sampling


async def test_samples_keep_the_callers_prompt_but_not_its_sampling() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with before(answers("Paris")) as made:
        response = await made.ask(
            tools=tools, temperature=0.9, seed=7, user="u", logprobs=True, chat_template_kwargs={"a": 1}
        )
        [draw] = [body for body in made.server.bodies if body.get("n") == 5]
    assert response.json()["uncertainty"]["status"] == "scored"
    assert draw["tools"] == tools and draw["chat_template_kwargs"] == {"a": 1}
    assert draw["messages"] == QUESTION["messages"] and draw["temperature"] == 0.5
    assert not {"seed", "user", "stream"} & draw.keys()


NO_TEXT = [
    ({"content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}, "tool_calls", "tool_call"),
    ({"content": None, "refusal": "I cannot."}, "stop", "refusal"),
    ({"content": None, "audio": {"id": "1"}}, "stop", "no_text"),
    ({"content": "Par"}, "abort", "given_up"),
]


@pytest.mark.parametrize(("message", "finish", "code"), NO_TEXT)
async def test_answer_without_text_is_returned_with_the_reason_for_no_score(
    message: dict[str, Any], finish: str, code: str
) -> None:
    async with before(saying(message, finish)) as made:
        response = await made.ask()
        await made.at_rest()
    body = response.json()
    assert body["choices"][0]["message"] == {"role": "assistant", **message}
    assert body["uncertainty"]["status"] == "not_scored"
    assert body["uncertainty"]["warning"]["code"] == code


CUT_WITHIN_A_THOUGHT = "<think>The capital of France: let me see, it is one of"


@pytest.mark.parametrize("message", [{"content": CUT_WITHIN_A_THOUGHT}, REASONED])
async def test_empty_own_answer_is_not_judged(message: dict[str, Any]) -> None:
    async with before(saying(message, "length"), answers("Paris")) as made:
        uncertainty = (await made.ask()).json()["uncertainty"]
        await made.at_rest()
    assert (uncertainty["status"], uncertainty["warning"]["code"]) == ("not_scored", "no_text")
    assert "lambda_max" not in uncertainty


@pytest.mark.parametrize("stream", [False, True])
async def test_samples_cut_within_reasoning_do_not_count_as_agreement(stream: bool) -> None:
    async with before(answers("Paris"), answers(CUT_WITHIN_A_THOUGHT, finish="length")) as made:
        response = await made.ask(stream=stream, eigencal={"num_samples": 20})
        kept = await made.scored(response.headers["x-score-id"], "not_scored")
        metrics = (await made.http.get("/metrics")).text
    events = events_of(response.content) if stream else [response.json()]
    [uncertainty] = [event["uncertainty"] for event in events if "uncertainty" in event]
    assert (uncertainty["status"], uncertainty["warning"]["code"]) == ("not_scored", "no_usable_answers")
    assert (
        "20 of 20" in uncertainty["warning"]["message"] and "256 tokens" in uncertainty["warning"]["message"]
    )
    assert "lambda_max" not in uncertainty and kept == uncertainty
    assert 'eigencal_score_errors_total{code="no_usable_answers"} 1.0' in metrics


@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        ({}, 256),
        ({"max_tokens": 100}, 256),
        ({"max_completion_tokens": 3000, "max_tokens": 5}, 3000),
    ],
)
async def test_samples_use_the_callers_token_limit_if_larger(limit: dict[str, Any], sent: int) -> None:
    async with before(answers("Paris")) as made:
        await made.ask(**limit)
        assert [body["max_tokens"] for body in made.server.bodies if body.get("n", 1) > 1] == [sent]


async def test_first_of_several_choices_is_judged() -> None:
    several = [{"index": i, "message": {"content": text}} for i, text in enumerate(["Nice", "Paris"])]
    own = status(200, {"model": MODEL, "choices": several})

    async def behave(exchange: Any) -> None:
        await (own if exchange.body["n"] == 2 else answers("Paris"))(exchange)

    async with OpenAIServer(default=behave) as server, drop_in(server) as made:
        uncertainty = (await made.ask(n=2)).json()["uncertainty"]
    assert (
        uncertainty["candidate"]["mode"] is None
    )  # the judged answer is Nice, which is not among the samples


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"prompt": ["a", "b"]}, "many_prompts"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "strange": float("inf")}, "unreadable_request"),
        ({"prompt": "\ud800"}, "unreadable_request"),
    ],
)
async def test_call_that_cannot_be_sampled_is_forwarded(body: dict[str, Any], code: str) -> None:
    async with before(answers("Paris")) as made:
        response = await made.ask(path="/v1/completions", eigencal={"effort": "low"}, **body)
        assert ["eigencal" in item for item in made.server.bodies] == [False]
    body_ = response.json()
    assert body_["choices"][0]["text"] == "Paris"
    assert (body_["uncertainty"]["status"], body_["uncertainty"]["warning"]["code"]) == ("not_scored", code)


@pytest.mark.parametrize("content", [b"not JSON", b"", b"[" * 100_000])
async def test_answer_that_is_not_a_completion_is_forwarded(content: bytes) -> None:
    async with before(raw(content)) as made:
        response = await made.ask()
    assert (response.status_code, response.content) == (200, content)
    assert "x-score-id" in response.headers


# Timing


async def test_mode_async_returns_at_once_and_stores_the_score() -> None:
    go = asyncio.Event()

    async def slow(exchange: Any) -> None:
        await go.wait()
        await answers("Paris", "Lyon")(exchange)

    async with before(raw(OWN), slow) as made:
        response = await made.ask("async")
        uncertainty = response.json()["uncertainty"]
        assert uncertainty == {"id": response.headers["x-score-id"], "status": "pending"}
        assert (await made.scored(uncertainty["id"], "pending")) == uncertainty
        go.set()
        score = await made.scored(uncertainty["id"])
        await made.at_rest()
    assert score["num_samples"] == 5 and score["id"] == uncertainty["id"]


async def test_after_the_deadline_the_answer_is_returned_and_the_score_stored() -> None:
    go = asyncio.Event()

    async def slow(exchange: Any) -> None:
        await go.wait()
        await answers("Paris")(exchange)

    async with before(raw(OWN), slow, chat_deadline_s=0.05) as made:
        uncertainty = (await made.ask()).json()["uncertainty"]
        assert uncertainty["status"] == "pending"
        go.set()
        assert (await made.scored(uncertainty["id"]))["num_samples"] == 5


async def test_background_scores_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_score, "MAX_DETACHED", 2)
    go = asyncio.Event()

    async def slow(exchange: Any) -> None:
        await go.wait()
        await answers("Paris")(exchange)

    async with before(raw(OWN), slow) as made:
        uncertainties = [(await made.ask("async")).json()["uncertainty"] for _ in range(3)]
        assert [uncertainty["status"] for uncertainty in uncertainties] == [
            "pending",
            "pending",
            "not_scored",
        ]
        assert uncertainties[2]["warning"]["code"] == "overloaded"
        assert "eigencal_chat_scores_shed_total 1.0" in (await made.http.get("/metrics")).text
        go.set()
        await made.scored(uncertainties[1]["id"])
        await made.at_rest()


# Failing scores, which never fail the answer


async def test_answer_is_returned_while_the_embedder_is_down() -> None:
    embedder = FakeEmbedder(16)
    embedder.available = False
    async with before(raw(OWN), embedder=embedder) as made:
        response = await made.ask()
    assert response.status_code == 200
    assert response.json()["uncertainty"]["warning"]["code"] == "embedder_unavailable"


async def test_answer_is_returned_despite_a_bug_in_scoring(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before(raw(OWN)) as made:
        monkeypatch.setattr(made.chat.scorer, "shape", None)
        response = await made.ask()
        await made.at_rest()
    assert response.json()["uncertainty"]["warning"]["code"] == "internal"
    assert "AttributeError" in caplog.text and "AttributeError" not in response.text


async def test_broken_answer_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def half(exchange: Any) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{")
        exchange.writer.close()

    async with before(half) as made:
        for mode in ("off", "on"):
            response = await made.ask(mode)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "llm_unavailable")
        await made.at_rest()
