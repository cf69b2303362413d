"""/v1 with a calibration: when it applies, and abstaining."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import httpx2 as httpx
import pytest

from service.llm import forward
from service.proxy.answer import DONE
from tests.support import drop_in
from tests.support.calibrations import Active, calibration
from tests.support.decisions import selector
from tests.support.drop_in import DropIn, events_of, for_chats
from tests.support.openai_server import MODEL, Behaviour, Exchange, hang, pieces, raw, status

TOOLS = [{"type": "function", "function": {"name": "f"}}]


def plain() -> Active:
    return for_chats(replace(calibration(), selectors={m: selector() for m in range(2, 6)}))


def choice_of(text: str, index: int = 0) -> dict[str, Any]:
    return {"index": index, "message": {"content": text}, "finish_reason": "stop"}


def telling(text: str = "Paris") -> Behaviour:
    """Return the same answer to every call."""

    async def behave(exchange: Exchange) -> None:
        choices = [choice_of(text, i) for i in range(exchange.body.get("n", 1))]
        await exchange.send(200, {"model": MODEL, "choices": choices, "usage": {"prompt_tokens": 3}})

    return behave


def before(
    own: Behaviour, active: Active, draws: Behaviour | None = None, **settings: Any
) -> AbstractAsyncContextManager[DropIn]:
    return drop_in.before(own, draws or telling(), active=active, **settings)


def parts_of(response: httpx.Response, *, stream: bool) -> list[dict[str, Any]]:
    """Return the message of a whole answer, or the deltas of a stream."""
    answers = events_of(response.content) if stream else [response.json()]
    choices = [choice for answer in answers for choice in answer["choices"]]
    return [choice["delta" if stream else "message"] for choice in choices]


def uncertainty_of(response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    """Return the only score in an answer."""
    answers = events_of(response.content) if stream else [response.json()]
    [uncertainty] = [answer["uncertainty"] for answer in answers if "uncertainty" in answer]
    return dict(uncertainty)


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
        choices = [choice_of("Paris", i) for i in range(exchange.body.get("n", 1))]
        usage = {"prompt_tokens": 3, "completion_tokens": max(tokens)}
        for choice, number in zip(choices, tokens, strict=False):
            choice["logprobs"] = {"content": [{"token": "token_id:1", "logprob": -0.25}] * number}
            if told == "in all":
                choice["logprobs"] = None
        usage = {} if told == "by token" else usage
        await exchange.send(200, {"model": MODEL, "choices": choices, "usage": usage})

    async with before(behave, plain(), behave) as made:
        uncertainty = (await made.ask(max_tokens=3000)).json()["uncertainty"]
    assert uncertainty["calibrated"] is not bool(differs)
    assert [warning["differs"] for warning in uncertainty["warnings"] if "differs" in warning] == differs


# Abstaining

NICE = {"model": MODEL, "choices": [{"index": 0, "delta": {"content": "Nice"}, "finish_reason": "stop"}]}
POLICY = {"abstain": True, "abstain_text": "Ask somebody else.", "target_error": 0.2}


UNSURE = "I am not sure enough to answer this."
ABSTAIN = {"target_error": 0.2, "abstain": True}


@pytest.mark.parametrize("own", ["Nice", "\n\n Nice"])
@pytest.mark.parametrize("stream", [False, True])
async def test_unsure_answer_is_withheld_if_requested(stream: bool, own: str) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    async with before(telling(own), plain()) as made:
        response = await made.ask(eigencal=ABSTAIN | {"claims": True}, stream=stream, **options)
        assert not any(body.get("stream") or "stream_options" in body for body in made.server.bodies)
    assert response.headers["x-decision"] == "abstain"
    uncertainty = uncertainty_of(response, stream=stream)
    assert (uncertainty["decision"]["action"], uncertainty["withheld"]) == ("abstain", own)
    [claim] = uncertainty["claims"]
    assert own[claim["start"] : claim["end"]] == claim["text"] == "Nice"
    assert [part["content"] for part in parts_of(response, stream=stream) if "content" in part] == [UNSURE]
    if not stream:
        body = response.json()
        assert (body["choices"][0]["finish_reason"], body["usage"]) == ("stop", {"prompt_tokens": 3})
        return
    assert response.headers["content-type"] == "text/event-stream"
    assert response.text.endswith("data: [DONE]\n\n")
    first, last, usage = events_of(response.content)
    assert [chunk["choices"][0]["finish_reason"] for chunk in (first, last)] == [None, "stop"]
    assert (usage["choices"], usage["usage"]) == ([], {"prompt_tokens": 3})


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_without_a_decision_is_withheld_if_requested(stream: bool) -> None:
    async with before(telling("Nice"), plain()) as made:
        response = await made.ask(eigencal=ABSTAIN | {"calibration": "none"}, stream=stream)
    assert "x-decision" not in response.headers
    uncertainty = uncertainty_of(response, stream=stream)
    assert (uncertainty["status"], uncertainty["decision"]) == ("scored", None)
    assert uncertainty["withheld"] == "Nice"
    assert [part["content"] for part in parts_of(response, stream=stream) if "content" in part] == [UNSURE]


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_is_sent_with_its_decision_if_the_caller_does_not_abstain(stream: bool) -> None:
    own = telling("Nice") if not stream else pieces(b"data: %b\n\n" % json.dumps(NICE).encode(), DONE)
    async with before(own, plain()) as made:
        response = await made.ask(eigencal=ABSTAIN | {"abstain": False}, stream=stream)
    assert "".join(part.get("content", "") for part in parts_of(response, stream=stream)) == "Nice"
    assert uncertainty_of(response, stream=stream)["decision"]["action"] == "abstain"


@pytest.mark.parametrize("settings", [{}, POLICY], ids=["caller", "operator"])
async def test_a_server_that_streams_in_place_of_a_whole_answer_is_an_error(settings: dict[str, Any]) -> None:
    own = pieces(b"data: %b\n\n" % json.dumps(NICE).encode(), DONE)
    async with before(own, plain(), **settings) as made:
        response = await made.ask(stream=True, eigencal=ABSTAIN)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "llm_bad_response")
    assert "Nice" not in response.text


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
    uncertainty = uncertainty_of(response, stream=stream)
    if decision := uncertainty.get("decision"):
        assert (decision["target_error"], decision["action"]) == (0.2, "abstain")


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_that_breaks_off_is_an_error_if_the_service_abstains(stream: bool) -> None:
    async def breaks_off(exchange: Exchange) -> None:
        await exchange.start(200, {"content-type": "application/json", "content-length": "999"})
        exchange.writer.write(b'{"choices": [{"message": {"content": "Nice"}}]}')
        exchange.writer.close()

    async with before(breaks_off, plain(), **POLICY) as made:
        response = await made.ask(stream=stream)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "llm_unavailable")
    assert "Nice" not in response.text


CALL = [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
BESIDE: dict[str, dict[str, Any]] = {
    "a thought": {"content": "<think>Nice</think>Paris"},
    "reasoning": {"content": "Paris", "reasoning_content": "Nice"},
    "a refusal beside a text": {"content": "Paris", "refusal": "Nice"},
    "reasoning beside a call": {"content": None, "tool_calls": CALL, "reasoning_content": "Nice"},
    "reasoning beside a refusal": {"content": None, "refusal": "No.", "reasoning": "Nice"},
    "a thought among the tokens": {"content": "Paris"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
async def test_only_judged_content_is_let_through(beside: str, stream: bool) -> None:
    own = BESIDE[beside]
    choice = choice_of("") | {"message": {"role": "assistant", **own}}
    # Servers can omit reasoning from the text, but not from the requested tokens.
    thought = [{"token": token, "logprob": -0.1} for token in ("Nice", "Paris")]
    choice["logprobs"] = {"content": thought} if beside == "a thought among the tokens" else None
    answer = status(200, {"model": MODEL, "choices": [choice]})
    async with before(answer, plain(), **POLICY | {"target_error": 0.336}) as made:
        response = await made.ask(stream=stream, logprobs=True)
    assert "Nice" not in response.text and "Ask somebody else." not in response.text
    parts = parts_of(response, stream=stream)
    calls = [part["tool_calls"] for part in parts if part.get("tool_calls")]
    assert calls == ([CALL] if "tool_calls" in own else [])
    refusals = [part["refusal"] for part in parts if part.get("refusal")]
    assert refusals == (["No."] if beside == "reasoning beside a refusal" else [])
    content = "".join(part.get("content") or "" for part in parts)
    assert content == ("Paris" if "Paris" in str(own["content"]) else "")


UNJUDGED: dict[str, tuple[Behaviour, Behaviour, dict[str, Any]]] = {
    "failed": (telling(), status(400, {"error": {"message": "not today"}}), {}),
    "late": (telling(), hang, {"chat_deadline_s": 0.05}),
    "no JSON": (raw(b"Paris"), telling(), {}),
    "no answers": (telling(), telling("<think>Paris"), {}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", UNJUDGED)
async def test_unjudged_answers_are_withheld(fault: str, stream: bool) -> None:
    own, draws, settings = UNJUDGED[fault]
    async with before(own, plain(), draws, **POLICY, **settings) as made:
        response = await made.ask(stream=stream, eigencal={"target_error": 0.9})
    assert "Paris" not in response.text and "Ask somebody else." in response.text


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": "json_validate_failed", "message": "no JSON", "failed_generation": "Paris"}},
        {"error": {"message": "no"}, "choices": [choice_of("Paris")]},
        {"detail": "Paris"},
    ],
)
async def test_only_the_error_passes_from_a_failed_call(error: dict[str, Any]) -> None:
    async with before(status(400, error), plain(), **POLICY) as made:
        response = await made.ask()
    assert response.status_code == 400 and "Paris" not in response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("choice", ["abc", {"message": "abc"}, {"message": {"tool_calls": ["x"]}}])
async def test_no_stream_is_made_of_a_malformed_answer(choice: Any) -> None:
    async with before(status(200, {"choices": [choice]}), plain()) as made:
        response = await made.ask(stream=True, eigencal={"abstain": True, "target_error": 0.9})
    assert (response.status_code, response.json()["error"]["code"]) == (502, "llm_bad_response")


async def test_too_long_answer_is_an_error_if_the_service_abstains(monkeypatch: pytest.MonkeyPatch) -> None:
    async with before(telling(), plain(), **POLICY) as made:
        monkeypatch.setattr(forward, "MAX_WHOLE_BYTES", 10)
        response = await made.ask(stream=True)
        await made.at_rest()
    assert response.status_code == 502
    assert "longer than" in response.text and "Paris" not in response.text
