"""Self-checks over HTTP: one token in which the LLM judges an answer, and P(correct) with it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.errors import LLMError, LLMUnavailable
from service.llm.prompt import GenerationRequest
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM, last_user_text
from tests.support.live import in_process
from tests.support.operator_world import ended
from tests.support.replica_apps import replica_app
from tests.support.sqlite_store import SqliteStore

PROMPT = "What is the capital of France?"
ASKED = {"prompt": PROMPT, "num_samples": 3}


class Judge(FakeLLM):
    """An LLM that knows which answers are right: those that contain "right"."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.sure = 0.9

    def _yes(self, request: GenerationRequest) -> float | None:
        judged = last_user_text(request).split("Proposed answer: ")[1]
        return self.sure if "right" in judged else 1 - self.sure


def codes(score: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in score["warnings"]]


async def scored(
    llm: FakeLLM, folder: Path, *bodies: dict[str, Any], **settings: Any
) -> list[dict[str, Any]]:
    made = Settings(data_dir=folder, **settings)
    app = create_app(made, llm=llm, embedder=FakeEmbedder(), store=SqliteStore())
    async with in_process(app) as http:
        return [(await http.post("/score", json=body)).json() for body in bodies]


async def test_the_candidate_or_the_leading_answer_is_checked(tmp_path: Path) -> None:
    llm = FakeLLM(default=["Paris", "Paris", "Lyon"])
    answer, candidate = await scored(llm, tmp_path, ASKED, {**ASKED, "candidate": "Marseille"})
    assert answer["self_check"] == candidate["self_check"] == pytest.approx(0.75)
    shown = [last_user_text(request) for request in llm.questions]
    assert ["Proposed answer: Paris" in shown[0], "Proposed answer: Marseille" in shown[1]] == [True, True]
    assert all(f"Question: {PROMPT}" in text for text in shown)
    assert answer["timings_ms"]["self_check"] >= 0


@pytest.mark.parametrize(("setting", "sent"), [(False, {}), (True, {"self_check": False})])
async def test_it_can_be_turned_off(tmp_path: Path, setting: bool, sent: dict[str, Any]) -> None:
    llm = FakeLLM()
    [score] = await scored(llm, tmp_path, ASKED | sent, self_check=setting)
    assert (score["self_check"], llm.questions, "self_check" in score["timings_ms"]) == (None, [], False)


@pytest.mark.parametrize(
    "failure", [LLMUnavailable("down"), LLMError("no", llm_status=401), LLMError("no", llm_status=400)]
)
async def test_a_failed_check_fails_no_score(tmp_path: Path, failure: Exception) -> None:
    llm = FakeLLM()
    llm.fail_questions = [failure] * 2
    [score] = await scored(llm, tmp_path, ASKED)
    assert (score["self_check"], score["num_samples"], "self_check_missing" in codes(score)) == (
        None,
        3,
        True,
    )


async def test_a_slow_check_leaves_time_for_the_score(tmp_path: Path) -> None:
    class Slow(FakeLLM):
        async def generate(self, request: GenerationRequest) -> Any:
            if request.is_question:
                await asyncio.Event().wait()
            return await super().generate(request)

    [score] = await scored(Slow(), tmp_path, {**ASKED, "candidate": "Paris", "deadline_ms": 1500})
    assert (score["self_check"], score["num_samples"], "self_check_missing" in codes(score)) == (
        None,
        3,
        True,
    )


async def test_the_whole_conversation_is_shown(tmp_path: Path) -> None:
    llm = FakeLLM()
    turns = [
        {"role": "system", "content": "The shop opens at 9."},
        {"role": "user", "content": "Is it open on Sundays?"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "And when on Mondays?"},
    ]
    await scored(llm, tmp_path, {"messages": turns, "num_samples": 3})
    shown = last_user_text(llm.questions[0])
    assert all(turn["content"] in shown for turn in turns)


async def test_samples_without_a_question_are_not_checked(tmp_path: Path) -> None:
    llm = FakeLLM()
    [score] = await scored(llm, tmp_path, {"samples": ["Paris", "Lyon"]})
    assert (score["self_check"], llm.questions, codes(score)) == (None, [], ["calibration_missing"])


async def test_supplied_samples_are_checked_only_on_request(tmp_path: Path) -> None:
    """Without a calibration that needs it, their caller does not expect a call of the LLM."""
    llm = FakeLLM()
    sent = {"prompt": PROMPT, "samples": ["Paris", "Lyon"]}
    alone, asked = await scored(llm, tmp_path, sent, sent | {"self_check": True})
    assert (alone["self_check"], asked["self_check"], len(llm.questions)) == (None, pytest.approx(0.75), 1)


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows in which all answers agree. Only the self-check separates the right from the wrong ones."""
    return [
        {
            "prompt": f"q{i}",
            "reference": f"right {i}",
            "samples": [f"{'right' if i % 2 else 'bad'} {i}"] * 3,
        }
        for i in range(count)
    ]


async def test_p_correct_uses_the_self_check(tmp_path: Path) -> None:
    llm = Judge()
    async with replica_app(tmp_path, llm=llm, embedder=FakeEmbedder(24)) as http:
        body = {"examples": rows(120), "drawn_by": "caller", "activate": "always"}
        job = await ended(http, await http.post("/calibrate", json=body))
        made = (await http.get(job["links"]["calibration"])).json()
        assert made["fingerprint"]["self_check"] == "fake-llm, prompt 1"
        sent = {"prompt": "q?", "samples": ["right 7", "right 7", "right 7"]}
        right = (await http.post("/score", json=sent)).json()
        wrong = (await http.post("/score", json=sent | {"samples": ["bad 7"] * 3})).json()
        assert right["probability_correct"] > 0.8 > 0.2 > wrong["probability_correct"]
        # Without the self-check that its model needs there is no P(correct), and the map still applies.
        without = (await http.post("/score", json=sent | {"self_check": False})).json()
        assert (without["calibrated"], without["probability_correct"]) == (True, None)
        assert without["lambda_max"] == right["lambda_max"]
        llm.model = "another-llm"
        by_another = (await http.post("/score", json=sent | {"target_error": 0.2})).json()
        assert by_another["probability_correct"] is None
        assert "fake-llm, prompt 1" in by_another["decision"]["reason"]


async def test_rows_are_fitted_without_checks_if_the_llm_is_down(tmp_path: Path) -> None:
    llm = Judge()
    llm.fail_questions = [LLMUnavailable("down")] * 1000
    async with replica_app(tmp_path, llm=llm, embedder=FakeEmbedder(24)) as http:
        job = await ended(http, await http.post("/calibrate", json={"examples": rows(20)}))
        report = (await http.get(job["links"]["report"])).json()
        made = (await http.get(job["links"]["calibration"])).json()
    [told] = [warning["text"] for warning in report["warnings"] if warning["code"] == "no_self_checks"]
    assert told.endswith(": down") and "self_check" not in made["fingerprint"]
    assert len(llm.questions) == 1  # answers were supplied: the job does not wait for the LLM


async def test_a_blank_question_is_left_out(tmp_path: Path) -> None:
    blank = {"messages": [{"role": "user", "content": " "}], "reference": "right", "samples": ["right"] * 3}
    turns = [{"messages": [{"role": "user", "content": row.pop("prompt")}], **row} for row in rows(40)]
    async with replica_app(tmp_path, llm=Judge(), embedder=FakeEmbedder(24)) as http:
        job = await ended(http, await http.post("/calibrate", json={"examples": [*turns, blank]}))
        made = (await http.get(job["links"]["calibration"])).json()
    assert made["fingerprint"]["self_check"] == "fake-llm, prompt 1"


async def test_an_llm_that_says_neither_is_asked_about_few_rows(tmp_path: Path) -> None:
    llm = FakeLLM()
    llm.yes = None
    async with replica_app(tmp_path, llm=llm, embedder=FakeEmbedder(24)) as http:
        job = await ended(http, await http.post("/calibrate", json={"examples": rows(40)}))
        report = (await http.get(job["links"]["report"])).json()
    assert any("neither Yes nor No" in warning["text"] for warning in report["warnings"])
    assert len(llm.questions) == 10


async def test_an_interrupted_job_repeats_no_check(tmp_path: Path) -> None:
    llm = Judge()
    async with replica_app(tmp_path, llm=llm, embedder=FakeEmbedder(24)) as http:
        body = {"examples": rows(12), "self_check": True}
        await ended(http, await http.post("/calibrate", json=body))
        asked = len(llm.questions)
        await ended(http, await http.post("/calibrate", json=body))
    assert len(llm.questions) == asked  # a reply is kept
