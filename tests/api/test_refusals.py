"""Answers without content are counted, reported and never let through, on all paths."""

import json
from pathlib import Path

import pytest

from tests.api.test_decisions import Served, answered, started
from tests.api.test_drop_in_calibrated import before, plain, telling
from tests.api.test_verify import service, verified
from tests.support.calibrations import Active
from tests.support.drop_in import events_of
from tests.support.fakes import FakeLLM

__all__ = ["started"]
QUESTION = "Who wrote the Iliad?"
WITHOUT_CONTENT = [
    "I don't know.",
    "null",
    '{"error": "timeout"}',
    "?",
    "n/a",
    "I'm sorry, but I can't help with that.",
    QUESTION,
    "who wrote the iliad",
    "Ich weiß es nicht.",
    "我不知道。",
]
MINE = {"prompt": QUESTION, "source_label": "mine"}


@pytest.mark.parametrize("text", WITHOUT_CONTENT)
async def test_agreeing_refusals_are_not_an_answer(started: Served, text: str) -> None:
    async with started() as http:
        answer = await answered(http, **MINE, samples=["Homer"] * 3)
        score = await answered(http, **MINE, samples=[text] * 3)
    assert (answer["decision"]["action"], answer["num_refusals"], answer["warnings"]) == ("answer", 0, [])
    assert (score["num_refusals"], score["warnings"]) == (3, [])
    assert score["lambda_max"] == answer["lambda_max"], "a refusal is a meaning like any other"
    assert score["probability_correct"] is None
    assert score["decision"]["action"] == score["headers"]["x-decision"] == "abstain"
    assert "does not answer the question" in score["decision"]["reason"]


async def test_candidate_is_withheld_with_mostly_refusals(started: Served) -> None:
    refusal = "I don't know."
    lax = MINE | {"target_error": 0.4, "candidate": "Homer"}
    async with started() as http:
        most = await answered(http, **lax, samples=["Homer", refusal, "N/A"])
        few = await answered(http, **lax, samples=["Homer", "Homer", refusal])
        refused = await answered(http, **MINE, samples=["Homer"] * 3, candidate=refusal)
        batch = await http.post("/score/batch", json={"items": [{**MINE, "samples": [refusal] * 3}]})
    assert (most["decision"]["action"], most["num_refusals"]) == ("abstain", 2)
    assert "2 of 3 answers drawn do not answer" in most["decision"]["reason"]
    assert (few["decision"]["action"], few["num_refusals"]) == ("answer", 1)
    assert (refused["decision"]["action"], refused["num_refusals"]) == ("abstain", 0)
    assert refused["candidate"]["probability_correct"] is None
    assert json.loads(batch.text)["result"]["decision"]["action"] == "abstain"


async def test_a_router_is_told_to_escalate(tmp_path: Path) -> None:
    async with service(tmp_path, FakeLLM(default=["I don't know."] * 5)) as http:
        same = await verified(http, answer="I don't know.", threshold=0.0)
        other = await verified(http, threshold=0.0)
    assert (same["confidence"], same["should_escalate"], other["should_escalate"]) == (0.0, True, True)


@pytest.mark.parametrize("stream", [False, True])
async def test_refusing_chat_answer_is_withheld(stream: bool) -> None:
    settings = {"abstain": True, "abstain_text": "Ask somebody else."}
    for calibration in (plain(), Active()):
        async with before(telling("I don't know."), calibration, **settings) as made:
            response = await made.ask(stream=stream)
        events = events_of(response.content) if stream else [response.json()]
        [uncertainty] = [event["uncertainty"] for event in events if "uncertainty" in event]
        assert uncertainty["decision"]["action"] == "abstain"
        assert "does not answer the question" in uncertainty["decision"]["reason"]
        assert "Ask somebody else." in response.text and "don't know" not in response.text
