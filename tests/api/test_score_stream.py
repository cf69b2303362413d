"""POST /score with `Accept: text/event-stream`: answers as they end, then the score."""

import asyncio
import json
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.drop_in import DropIn, drop_in
from tests.support.openai_server import Exchange, OpenAIServer, answers, drop, hang, status, stream

STREAM = {"Accept": "text/event-stream"}
PROMPT = {"prompt": "What is the capital of France?"}


def parsed(text: str) -> list[tuple[str, Any]]:
    """Return name and data of each event."""
    events = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


async def streamed(own: DropIn, **body: Any) -> list[tuple[str, Any]]:
    answer = await own.http.post("/score", json=PROMPT | body, headers=STREAM)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream"
    return parsed(answer.text)


async def test_answers_arrive_as_they_end_and_then_the_score() -> None:
    seen = asyncio.Event()

    async def two_and_then_three(exchange: Exchange) -> None:
        async def rest(exchange: Exchange) -> None:
            await seen.wait()
            for index, text in enumerate(("shed", "Paris", "Nice"), 2):
                choice = {"index": index, "delta": {"content": text}, "finish_reason": "stop"}
                await exchange.event({"model": "scripted-model", "choices": [choice]})
            await exchange.event("[DONE]")
            exchange.writer.close()

        await stream("Paris", "<think>Lyon?</think> Paris", then=rest)(exchange)

    async with OpenAIServer(default=two_and_then_three) as server, drop_in(server) as own:
        text = ""
        async with own.http.stream("POST", "/score", json=PROMPT, headers=STREAM) as answer:
            async for piece in answer.aiter_text():
                text += piece
                if text.count("event: answer") == 2:
                    seen.set()  # the LLM goes on only after the caller has read two answers
        events = parsed(text)
        assert [data["text"] for name, data in events if name == "answer"] == [
            *("Paris", "Paris"),
            *("unfinished", "Paris", "Nice"),
        ]
        name, score = events[-1]
        assert (name, score["num_samples"], score["answer"]) == ("score", 5, "Paris")
        assert (await own.http.get(f"/scores/{score['id']}")).json() == {"status": "scored"} | score
        metrics = (await own.http.get("/metrics")).text
        assert 'eigencal_scores_total{calibrated="false"} 1.0' in metrics


@pytest.mark.parametrize("settings", [{}, {"answer_regex": "Answer: (.*)"}])
async def test_whole_answers_and_a_regex(settings: dict[str, str]) -> None:
    """Some servers do not stream. A regex is applied to all answers at the end."""

    async def whole(exchange: Exchange) -> None:
        exchange.body.pop("stream", None)
        await answers("Answer: Paris", "")(exchange)

    async with OpenAIServer(default=whole) as server, drop_in(server, **settings) as own:
        events = await streamed(own, num_samples=5, **{"return": ["samples"]})
        texts = [data["text"] for name, data in events[:-1]]
        assert texts == ["Paris" if settings else "Answer: Paris"] * 3
        assert events[-1][1]["samples"] == texts
        assert "modes" not in events[-1][1]


async def test_same_score_as_without_a_stream() -> None:
    async with OpenAIServer(default=answers("Paris", "Lyon", "Paris")) as server, drop_in(server) as own:
        events = await streamed(own)
        plain = (await own.http.post("/score", json=PROMPT)).json()
        for different in ("id", "timings_ms", "usage"):  # the scripted server counts its streams differently
            del plain[different], events[-1][1][different]
        assert events[-1] == ("score", plain)
        assert [name for name, _ in events] == ["answer"] * 5 + ["score"]


@pytest.mark.parametrize(
    "body",
    [
        {"samples": ["Paris", "Lyon"]},
        {**PROMPT, "num_samples": 0, "candidate": "Paris", "candidate_logprob": -0.5},
    ],
)
async def test_without_draws_there_is_only_the_score(body: dict[str, Any]) -> None:
    async with OpenAIServer(default=answers()) as server, drop_in(server) as own:
        answer = await own.http.post("/score", json=body, headers=STREAM)
        assert [name for name, _ in parsed(answer.text)] == ["score"]
        assert not [request for request in server.requests if request.method == "POST"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"calibration": "cal_" + "0" * 26}, "not_found"),
        ({"surprise": 1}, "invalid_request"),
        ({}, "llm_error"),
    ],
)
async def test_error_before_the_first_answer_is_an_ordinary_response(body: dict[str, Any], code: str) -> None:
    async with OpenAIServer(default=status(400, {"error": "no"})) as server, drop_in(server) as own:
        answer = await own.http.post("/score", json=PROMPT | body, headers=STREAM)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == code


async def test_error_after_an_answer_is_an_event() -> None:
    one_choice = stream("Paris", then=drop)
    async with OpenAIServer(default=one_choice) as server, drop_in(server) as own:
        (first, _), (last, problem) = await streamed(own, num_samples=2)
        assert (first, last) == ("answer", "error")
        assert problem["status"] >= 500 and problem["code"] and problem["request_id"]


async def test_disconnect_frees_the_llm_and_the_place() -> None:
    async def one_and_then_nothing(exchange: Exchange) -> None:
        await stream("Paris", then=lambda exchange: exchange.until_disconnect())(exchange)

    async with OpenAIServer(default=one_and_then_nothing) as server, drop_in(server, llm_slots=1) as own:
        async with own.http.stream("POST", "/score", json=PROMPT, headers=STREAM) as answer:
            async for _ in answer.aiter_text():
                break
        await asyncio.wait_for(server.disconnected.wait(), 60)
        await own.at_rest()
        server.default = answers()
        assert [name for name, _ in await streamed(own)][-1] == "score"
        metrics = (await own.http.get("/metrics")).text
        assert 'eigencal_requests_in_flight{kind="score"} 0.0' in metrics


async def test_disconnect_before_the_first_answer_frees_the_llm() -> None:
    async with OpenAIServer(default=hang) as server, drop_in(server) as own:
        with pytest.raises(httpx.ReadTimeout):
            await own.http.post("/score", json=PROMPT, headers=STREAM, timeout=0.5)
        await asyncio.wait_for(server.disconnected.wait(), 60)
        await own.at_rest()
