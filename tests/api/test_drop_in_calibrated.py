"""/v1 with a calibration: when it applies, the caller's answer as one of the samples, and abstaining."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from service.embedding.port import FACTS
from service.proxy import stream as scored_stream
from service.proxy import upstream
from service.proxy.routes import UNREADABLE
from service.spectral.evidence import EvidenceMap
from tests.support import drop_in
from tests.support.calibrations import Active, calibration
from tests.support.decisions import selector
from tests.support.drop_in import QUESTION, DropIn, events_of, for_chats
from tests.support.evidence import by_evidence
from tests.support.fakes import FakeEmbedder
from tests.support.openai_server import MODEL, Behaviour, Exchange, hang, once, pieces, raw, status

# The service's sampling of conversations: a caller with all these fields samples alike.
LIKE_OURS = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "max_tokens": 256}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def plain() -> Active:
    return for_chats(replace(calibration(), selectors={m: selector() for m in range(2, 6)}))


def evident() -> Active:
    return for_chats(by_evidence(selectors={5: selector(EvidenceMap(1.0, 0.0, 1.0))}))


def choice_of(exchange: Exchange, text: str, index: int) -> dict[str, Any]:
    """Return a choice, with log-probabilities if they were requested."""
    body = {"content": [{"token": text, "logprob": -0.25}]} if exchange.body.get("logprobs") else None
    streamed = "delta" if exchange.body.get("stream") else "message"
    return {"index": index, streamed: {"content": text}, "logprobs": body, "finish_reason": "stop"}


def telling(text: str = "Paris", refuses: int = 0) -> Behaviour:
    """Answer all calls alike, or refuse log-probabilities with this status."""

    async def behave(exchange: Exchange) -> None:
        if refuses and "logprobs" in exchange.body:
            await exchange.send(refuses, {"error": {"message": "logprobs are not for you"}})
            return
        choices = [choice_of(exchange, text, i) for i in range(exchange.body.get("n", 1))]
        await reply(exchange, {"model": MODEL, "choices": choices, "usage": {"prompt_tokens": 3}})

    return behave


async def reply(exchange: Exchange, payload: dict[str, Any]) -> None:
    """Send the payload as a whole, or as the only event of a stream."""
    if exchange.body.get("stream"):
        await pieces(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(payload).encode())(exchange)
    else:
        await exchange.send(200, payload)


def before(
    own: Behaviour, active: Active, draws: Behaviour | None = None, **settings: Any
) -> AbstractAsyncContextManager[DropIn]:
    return drop_in.before(own, draws or telling(), active=active, **settings)


def drawn(made: DropIn) -> list[int]:
    """Return the number of answers requested by each of our calls."""
    return [body["n"] for body in made.server.bodies if body.get("n", 1) > 1]


# When the calibration applies


async def test_chat_of_plain_turns_is_calibrated() -> None:
    parts = [{"type": "text", "text": "What is the capital of France?"}]
    async with before(telling(), plain()) as made:
        for content in ("Where?", parts):
            turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
            body = (await made.ask(messages=turns, response_format={"type": "text"}, user="u")).json()
            assert body["uncertainty"]["calibrated"], body
            assert body["uncertainty"]["probability_correct"] == pytest.approx(
                body["uncertainty"]["candidate"]["probability_correct"]
            )


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
UNLIKE: list[dict[str, Any]] = [
    {"tools": TOOLS},
    {"response_format": {"type": "json_object"}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]}]},
    {"messages": [{"role": "tool", "content": "7", "tool_call_id": "1"}]},
    {"messages": [{"role": "user", "content": "?", "name": "Ann"}]},
    {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "It is"}]},
]


@pytest.mark.parametrize("body", UNLIKE, ids=lambda body: json.dumps(body)[:40])
async def test_other_fields_that_change_answers_are_served_raw(body: dict[str, Any]) -> None:
    async with before(telling(), plain()) as made:
        uncertainty = (await made.ask(**body)).json()["uncertainty"]
        [draw] = [sent for sent in made.server.bodies if "n" in sent]
    assert (uncertainty["status"], uncertainty["calibrated"]) == ("scored", False)
    assert uncertainty["warnings"][0]["differs"] == ["prompt_shape"]
    assert {name: draw[name] for name in body} == body


@pytest.mark.parametrize(
    ("tokens", "differs"), [([256] * 5, []), ([1, 1, 1, 1, 257], [["sampling.max_tokens"]])]
)
@pytest.mark.parametrize("told", ["by token", "in all"])
async def test_larger_token_limit_is_another_setup_only_with_longer_samples(
    tokens: list[int], differs: list[list[str]], told: str
) -> None:
    async def behave(exchange: Exchange) -> None:
        choices = [choice_of(exchange, "Paris", i) for i in range(exchange.body.get("n", 1))]
        usage = {"prompt_tokens": 3, "completion_tokens": max(tokens)}
        for choice, number in zip(choices, tokens, strict=False):
            choice["logprobs"] = {"content": [{"token": "", "logprob": -0.25}] * number}
            if told == "in all":
                choice["logprobs"] = None
        usage = {} if told == "by token" else usage
        await exchange.send(200, {"model": MODEL, "choices": choices, "usage": usage})

    async with before(behave, plain(), behave) as made:
        uncertainty = (await made.ask(max_tokens=3000)).json()["uncertainty"]
    assert uncertainty["calibrated"] is not bool(differs)
    assert [warning["differs"] for warning in uncertainty["warnings"] if "differs" in warning] == differs


# The caller's own answer as a sample


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "counts_caller_answer"),
    [
        (LIKE_OURS, True),
        (LIKE_OURS | {"n": 1, "presence_penalty": 0.0, "stop": []}, True),
        ({}, False),
        (LIKE_OURS | {"temperature": 0.6}, False),
    ],
)
async def test_answer_sampled_like_ours_counts_as_a_sample(
    body: dict[str, Any], counts_caller_answer: bool, stream: bool
) -> None:
    async with before(telling(), plain()) as made:
        response = await made.ask(stream=stream, **body)
        assert drawn(made) == [4 if counts_caller_answer else 5]
    body_ = events_of(response.content)[-1] if stream else response.json()
    assert body_["uncertainty"]["num_samples"] == 5
    assert body_["uncertainty"]["calibrated"]


@pytest.mark.parametrize("stream", [False, True])
async def test_evidence_uses_and_hides_the_answers_logprobs(stream: bool) -> None:
    async with before(telling(), evident()) as made:
        response = await made.ask(stream=stream, **LIKE_OURS)
        own_call = next(sent for sent in made.server.bodies if sent.get("n", 1) == 1)
    body = events_of(response.content)[-1] if stream else response.json()
    assert own_call["logprobs"] is True and body["choices"][0]["logprobs"] is None
    assert body["uncertainty"]["num_samples"] == 5
    assert body["uncertainty"]["evidence"]["mean_logprob"] == pytest.approx(-0.25)


@pytest.mark.parametrize("unlike", [{"model": "another"}, {"finish_reason": "length"}], ids=str)
async def test_log_probability_of_another_model_or_a_cut_answer_does_not_count(
    unlike: dict[str, str],
) -> None:
    async def own(exchange: Exchange) -> None:
        choice = choice_of(exchange, "Lyon", 0)
        payload = {"model": MODEL, "choices": [choice], "usage": {"prompt_tokens": 3}}
        (payload if "model" in unlike else choice).update(unlike)
        await exchange.send(200, payload)

    async with before(own, Active(), embedder=FakeEmbedder(16, kernel=FACTS)) as made:
        uncertainty = (await made.ask(temperature=0.6, logprobs=True)).json()["uncertainty"]
    assert (uncertainty["num_samples"], uncertainty["probability_correct"]) == (5, None)


# A 500 may be transient and is retried.
@pytest.mark.parametrize(("code", "next_calls"), [(400, 2), (500, 3)])
async def test_answer_is_returned_if_the_server_refuses_logprobs(code: int, next_calls: int) -> None:
    async with before(telling(refuses=code), evident()) as made:
        response = await made.ask(**LIKE_OURS)
        assert len(made.server.bodies) == 3
        await made.ask(**LIKE_OURS)
        assert len(made.server.bodies) == 3 + next_calls
        # One kind of call also does not affect another.
        await made.ask(**LIKE_OURS, tools=TOOLS)
        assert len(made.server.bodies) == 6 + next_calls
    uncertainty = response.json()["uncertainty"]
    # Without its log-probability, the answer would remove the evidence of all others.
    assert (response.status_code, uncertainty["num_samples"]) == (200, 4)
    assert uncertainty["evidence"] is not None


# Abstaining

POLICY = {"abstain": True, "abstain_text": "Ask somebody else.", "target_error": 0.2}


async def test_unsure_answer_is_withheld_if_requested() -> None:
    request = {"target_error": 0.2, "abstain": True}
    async with before(telling("Nice"), plain()) as made:
        response = await made.ask(eigencal=request)
        response_ = await made.ask(eigencal=request | {"abstain": False})
    body = response.json()
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "I am not sure enough to answer this."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    uncertainty = body["uncertainty"]
    assert (uncertainty["decision"]["action"], uncertainty["withheld"]) == ("abstain", "Nice")
    assert response.headers["x-decision"] == "abstain" and body["usage"] == {"prompt_tokens": 3}
    assert response_.json()["choices"][0]["message"]["content"] == "Nice"
    assert response_.json()["uncertainty"]["decision"]["action"] == "abstain"


@pytest.mark.parametrize("own", ["Nice", "\n\n Nice"])
async def test_unrequested_stream_is_withheld(own: str) -> None:
    async def streamed(exchange: Exchange) -> None:
        exchange.body["stream"] = True
        await telling(own)(exchange)

    async with before(streamed, plain()) as made:
        response = await made.ask(eigencal={"target_error": 0.2, "abstain": True, "claims": True})
    first, last, *usage = events_of(response.content)
    assert first["choices"][0]["delta"]["content"] == "I am not sure enough to answer this."
    assert [chunk["choices"] for chunk in usage] == [[]]
    uncertainty = last["uncertainty"]
    assert (uncertainty["decision"]["action"], uncertainty["withheld"]) == ("abstain", own)
    [claim] = uncertainty["claims"]
    assert own[claim["start"] : claim["end"]] == claim["text"] == "Nice"


LAX: list[tuple[str, dict[str, Any]]] = [
    ("on", {"eigencal": {"abstain": False}}),
    ("on", {"eigencal": {"target_error": 0.9, "confidence": 0.01}}),
    ("on", {"eigencal": {"calibration": "none"}}),
    ("on", {"eigencal": {"calibration": f"cal_{'0' * 26}", "num_samples": 3}}),
    ("off", {}),
    ("async", {}),
    ("on", {"n": 2}),
    ("on", {"strange": "\ud800"}),
    ("on", {"logprobs": True, "tools": TOOLS}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("mode", "body"), LAX, ids=str)
async def test_callers_cannot_opt_out_of_abstaining(mode: str, body: dict[str, Any], stream: bool) -> None:
    async with before(telling("Nice"), plain(), **POLICY) as made:
        response = await made.ask(mode, stream=stream, **body)
        await made.at_rest()
    assert response.status_code == 200
    assert "Ask somebody else." in response.text and "Nice" not in response.text
    events = events_of(response.content) if stream else [response.json()]
    [uncertainty] = [event["uncertainty"] for event in events if "uncertainty" in event]
    if uncertainty["status"] == "scored":
        decision = uncertainty["decision"]
        assert (decision["target_error"], decision["action"]) == (0.2, "abstain")


async def test_failing_stream_is_an_error_if_the_service_abstains() -> None:
    async def own(exchange: Exchange) -> None:
        choices = [{"index": 0, "delta": {"content": "Nice"}}]
        await exchange.start_stream()
        await exchange.event({"model": MODEL, "choices": choices})
        await exchange.event({"choices": choices, "error": {"message": "Nice is no answer"}})
        exchange.writer.close()

    async with before(own, plain(), **POLICY) as made:
        response = await made.ask(stream=True)
    [event] = events_of(response.content)
    assert event["error"]["code"] == "llm_unavailable" and "Nice" not in response.text


CALL = [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
BESIDE: dict[str, dict[str, Any]] = {
    "a thought": {"content": "<think>Nice</think>Paris"},
    "reasoning": {"content": "Paris", "reasoning_content": "Nice"},
    "reasoning beside a call": {"content": None, "tool_calls": CALL, "reasoning_content": "Nice"},
    "reasoning beside a refusal": {"content": None, "refusal": "No.", "reasoning": "Nice"},
    "a thought among the tokens": {"content": "Paris"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
async def test_only_judged_content_is_let_through(beside: str, stream: bool) -> None:
    async def behave(exchange: Exchange) -> None:
        choice = choice_of(exchange, "", 0)
        choice["delta" if stream else "message"] = {"role": "assistant", **BESIDE[beside]}
        # Servers can omit reasoning from the text, but not from the requested tokens.
        thought = [{"token": token, "logprob": -0.1} for token in ("Nice", "Paris")]
        choice["logprobs"] = {"content": thought} if beside == "a thought among the tokens" else None
        await reply(exchange, {"model": MODEL, "choices": [choice]})

    async with before(behave, plain(), **POLICY | {"target_error": 0.336}) as made:
        response = await made.ask(stream=stream, logprobs=True)
    assert "Nice" not in response.text and "Ask somebody else." not in response.text
    said_ = [chunk["choices"][0] for chunk in (events_of(response.content) if stream else [response.json()])]
    parts = [item["delta" if stream else "message"] for item in said_]
    own = BESIDE[beside]
    calls = [part["tool_calls"] for part in parts if part.get("tool_calls")]
    assert calls == ([CALL] if "tool_calls" in own else [])
    assert [part["refusal"] for part in parts if part.get("refusal")] == (["No."] if "refusal" in own else [])
    content = "".join(part.get("content") or "" for part in parts)
    assert content == ("Paris" if "Paris" in str(own["content"]) else "")
    assert said_[-1]["finish_reason"] == "stop"


UNJUDGED: dict[str, tuple[Behaviour, Behaviour, dict[str, Any]]] = {
    "failed": (telling(), status(400, {"error": {"message": "not today"}}), {}),
    "late": (telling(), hang, {"chat_deadline_s": 0.05}),
    "no JSON": (raw(b"Paris"), telling(), {}),
    "no answers": (telling(), telling("<think>Paris"), {}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", UNJUDGED)
async def test_unjudged_answers_are_withheld_unless_the_settings_allow_them(fault: str, stream: bool) -> None:
    own, draws, settings = UNJUDGED[fault]
    for fail_open in (False, True):
        more = {**POLICY, **settings, "abstain_fail_open": fail_open}
        async with before(own, plain(), draws, **more) as made:
            response = await made.ask(stream=stream, eigencal={"target_error": 0.9})
        assert ("Paris" in response.text) is fail_open
        assert ("Ask somebody else." in response.text) is not fail_open


async def test_nothing_of_a_stream_goes_out_before_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_stream, "HEARTBEAT_S", 0.01)
    go = asyncio.Event()
    async with before(telling("Nice"), plain(), once(go, telling()), **POLICY) as made:
        body = {**QUESTION, "stream": True}
        async with made.http.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            begun = [await anext(lines) for _ in range(8)]
            go.set()
            rest = [line async for line in lines]
    assert all(not line or line.startswith(":") for line in begun) and any(begun)
    assert "Nice" not in str(rest) and rest[-2:] == ["data: [DONE]", ""]
    first, last, usage = events_of("\n".join(rest).encode())
    assert first["choices"][0]["delta"]["content"] == "Ask somebody else."
    assert (first["choices"][0]["finish_reason"], last["choices"][0]["finish_reason"]) == (None, "stop")
    assert last["uncertainty"] and usage["usage"] == {"prompt_tokens": 3}


async def test_stream_over_the_buffer_limit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with before(telling(), plain(), **POLICY) as made:
        monkeypatch.setattr(upstream, "MAX_WHOLE_BYTES", 10)
        response = await made.ask(stream=True)
        await made.at_rest()
    assert "longer than" in response.text and "Paris" not in response.text


async def test_shared_error_keeps_no_traceback() -> None:
    async with before(telling(), plain()) as made:
        for _ in range(2):
            await made.ask(path="/v1/completions", prompt="a", strange=float("inf"), messages=None)
    assert UNREADABLE.__traceback__ is None
