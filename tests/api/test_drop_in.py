"""/v1 without streaming: the server's own answer with a score."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from service.llm import forward
from service.llm.sse import MAX_VALUES
from service.proxy import scores
from tests.support.drop_in import QUESTION, before
from tests.support.fakes import FakeEmbedder
from tests.support.openai_server import MODEL, Behaviour, answers, once, raw, status

OWN = (
    b'{"id": "chatcmpl-1", "model": "' + MODEL.encode() + b'", "big": 123456789012345678901234567890,\n'
    b'"small": 1.0e-5, "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, '
    b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}\n'
)


def saying(message: dict[str, Any], finish: str = "stop", **more: Any) -> Behaviour:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return status(200, {"model": MODEL, "choices": [choice], **more})


# Forwarded requests and responses


async def test_servers_answer_is_returned_with_a_score() -> None:
    async with before(raw(OWN), answers()) as made:
        response = await made.ask()
        body = response.json()
    score = body.pop("uncertainty")
    assert body == json.loads(OWN)
    assert (score["status"], score["num_samples"], score["calibrated"]) == ("scored", 5, False)
    assert 0 < score["candidate"]["probability"] <= score["lambda_max"] <= 1
    assert response.headers["x-score-id"] == score["id"]
    assert "error" not in score and "answer" not in score


@pytest.mark.parametrize("mode", ["off", "on"])
async def test_body_without_our_field_is_forwarded_byte_for_byte(mode: str) -> None:
    sent = b'{"messages" : [{"role":"user","content":"?"}] ,"temperature": 0.30 }\n'
    async with before(answers("Paris")) as made:
        headers = {"content-type": "application/json", "x-eigencal": mode}
        assert (
            await made.http.post("/v1/chat/completions", content=sent, headers=headers)
        ).status_code == 200
        assert sent in [request.data for request in made.server.requests]


@pytest.mark.parametrize("mode", ["off", "on"])
async def test_too_large_answer_is_forwarded_as_it_arrives(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before(raw(OWN)) as made:
        monkeypatch.setattr(forward, "MAX_WHOLE_BYTES", 100)
        response = await made.ask(mode)
        assert response.content == OWN
        if mode == "on":
            score = await made.scored(response.headers["x-score-id"], "not_scored")
            assert score["warning"]["code"] == "incomplete"


async def test_our_field_in_a_body_with_too_many_values_is_refused() -> None:
    biases = {str(i): 1 for i in range(MAX_VALUES)}
    async with before(raw(OWN)) as made:
        refused = await made.ask(eigencal={"num_samples": 3}, logit_bias=biases)
        passed = await made.ask(logit_bias=biases)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert passed.json()["uncertainty"]["warning"]["code"] == "unreadable_request"


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "gzip"])
async def test_a_body_that_only_the_server_could_read_is_refused(coding: str) -> None:
    text = json.dumps({**QUESTION, "eigencal": {"abstain": True}})
    is_gzip = coding == "gzip"
    content = gzip.compress(text.encode()) if is_gzip else text.encode(coding)
    headers = {"Content-Type": "application/json", **({"Content-Encoding": "gzip"} if is_gzip else {})}
    async with before(raw(OWN)) as made:
        response = await made.http.post("/v1/chat/completions", content=content, headers=headers)
        assert not made.server.requests
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


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
        ({"num_samples": "much"}, "eigencal.num_samples"),
        ({"target_error": 2}, "eigencal.target_error"),
        ({"target_error": float("nan")}, "eigencal.target_error"),
        ({"calibration": "\ud800"}, "eigencal"),
        ({"abstain": "often"}, "eigencal.abstain"),
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
            "/v1/chat/completions", content=b"x", headers={"Authorization": "Bearer s3cret"}
        )
        bodies = [request.headers.get("authorization") for request in made.server.requests]
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "missing_key")
    assert let_in.status_code == 200 and bodies[0] is None
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "not_found")
    assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported_media_type")


# Sampling


NO_TEXT = [
    ({"content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}, "tool_calls", "no_text"),
    ({"content": None, "refusal": "I cannot."}, "stop", "no_text"),
    ({"content": None, "audio": {"id": "1"}}, "stop", "no_text"),
    ({"content": "Par"}, "abort", "incomplete"),
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


@pytest.mark.parametrize(
    "body",
    [{"strange": float("inf")}, {"user": "\ud800"}, {"messages": None}, {"messages": ["?"]}],
    ids=str,
)
async def test_call_that_cannot_be_sampled_is_forwarded(body: dict[str, Any]) -> None:
    async with before(answers("Paris")) as made:
        response = await made.ask(eigencal={"num_samples": 3}, **body)
        assert ["eigencal" in item for item in made.server.bodies] == [False]
    answer = response.json()
    assert answer["choices"][0]["message"]["content"] == "Paris"
    uncertainty = answer["uncertainty"]
    assert (uncertainty["status"], uncertainty["warning"]["code"]) == ("not_scored", "unreadable_request")


# Timing


async def test_mode_async_returns_at_once_and_stores_the_score() -> None:
    go = asyncio.Event()
    async with before(raw(OWN), once(go, answers("Paris", "Lyon"))) as made:
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
    async with before(raw(OWN), once(go, answers("Paris")), chat_deadline_s=0.05) as made:
        uncertainty = (await made.ask()).json()["uncertainty"]
        assert uncertainty["status"] == "pending"
        go.set()
        assert (await made.scored(uncertainty["id"]))["num_samples"] == 5


async def test_background_scores_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MAX_PENDING", 2)
    go = asyncio.Event()
    async with before(raw(OWN), once(go, answers("Paris"))) as made:
        uncertainties = [(await made.ask("async")).json()["uncertainty"] for _ in range(3)]
        states = [uncertainty["status"] for uncertainty in uncertainties]
        assert states == ["pending", "pending", "not_scored"]
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


@pytest.mark.parametrize("before_the_answer", [False, True])
async def test_answer_is_returned_despite_a_bug_in_scoring(
    before_the_answer: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before(raw(OWN)) as made:
        scorer = made.chat.service.scorer
        if before_the_answer:
            monkeypatch.setattr(scorer.choice, "recommended", None)
        else:
            monkeypatch.setattr(scorer, "finish", None)
        response = await made.ask(eigencal={"num_samples": "auto"})
        await made.at_rest()
    assert response.json()["uncertainty"]["warning"]["code"] == "internal"
    assert "TypeError" in caplog.text and "TypeError" not in response.text
