"""Getting to know an LLM: a first calibration from bundled questions, made without a person."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.claims.verdicts import correct
from service.jobs import knowing
from service.jobs.knowing import bundled_rows
from service.llm.prompt import Priority
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.knower import Knower
from tests.support.operator_world import ended
from tests.support.replica_apps import replica_app

NUMBER = 110


@pytest.fixture(autouse=True)
def few_questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ask only some of the questions, and look often."""
    lines = knowing.QUESTIONS.read_text("utf-8").splitlines(keepends=True)[:NUMBER]
    (tmp_path / "questions.jsonl").write_text("".join(lines), "utf-8")
    monkeypatch.setattr(knowing, "QUESTIONS", tmp_path / "questions.jsonl")
    monkeypatch.setattr(knowing, "OPEN_S", 0.05)
    monkeypatch.setattr(knowing, "QUIET_S", 0.05)
    bundled_rows.cache_clear()


@asynccontextmanager
async def meeting(folder: Path, llm: FakeLLM, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    values = {"num_samples": 4, "get_to_know": True} | settings
    async with replica_app(folder, llm=llm, embedder=FakeEmbedder(24), **values) as http:
        yield http


async def scored(http: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await http.post("/score", json={"prompt": "q", **more})).json()
    return body


async def known(http: httpx.AsyncClient) -> dict[str, Any]:
    """Wait until the LLM is known, and return the job."""
    async with asyncio.timeout(60):
        while True:
            jobs = (await http.get("/jobs")).json()
            if jobs and all(job["state"] == "succeeded" for job in jobs):
                return jobs[0]
            await asyncio.sleep(0.05)


async def first_job(http: httpx.AsyncClient) -> dict[str, Any]:
    """Wait until a job has been posted, and return it."""
    async with asyncio.timeout(30):
        while not (jobs := (await http.get("/jobs")).json()):
            await asyncio.sleep(0.02)
        job: dict[str, Any] = jobs[0]
        return job


async def test_a_new_llm_gets_a_calibration(tmp_path: Path) -> None:
    llm = Knower(gate=asyncio.Event())
    async with meeting(tmp_path, llm) as http:
        assert (await http.get("/readyz")).status_code == 200  # it does not wait
        llm.gate.set()
        job = await known(http)
        assert (job["name"], job["activated"]) == ("what we know of fake-llm", True)
        score = await scored(http, candidate="guess 1")
        [warning] = [one for one in score["warnings"] if one["code"] == "bundled_questions"]
        assert "bundled questions" in warning["message"]
        assert (score["calibration"]["origin"], score["calibrated"]) == ("bundled", True)
        assert score["candidate"]["probability_correct"] is not None
        jobs = (await http.get("/jobs")).json()
    # Prompts and conversations are drawn alike here, so one calibration serves both.
    assert len(jobs) == 1
    assert {request.priority for request in llm.requests[1:-1]} == {Priority.JOB}


async def test_until_then_the_progress_is_told(tmp_path: Path) -> None:
    llm = Knower()
    async with meeting(tmp_path, llm) as http:
        job = await first_job(http)
        llm.available = False
        await asyncio.sleep(0.3)
        score = (await http.post("/score", json={"prompt": "q", "samples": ["a", "b"]})).json()
        llm.available = True
        await known(http)
    [warning] = [one for one in score["warnings"] if one["code"] == "calibration_missing"]
    assert job["id"] in warning["message"]
    assert (score["probability_correct"], score["decision"]) == (None, None)


async def test_after_a_cancellation_own_rows_are_asked_for(tmp_path: Path) -> None:
    llm = Knower()
    async with meeting(tmp_path, llm) as http:
        job = await first_job(http)
        llm.available = False  # so that the job stays open
        assert (await http.delete(f"/jobs/{job['id']}")).json()["state"] == "cancelled"
        message = ""
        async with asyncio.timeout(30):
            while "cancelled" not in message:
                score = await scored(http, samples=["a", "b"])
                message = " ".join(warning["message"] for warning in score["warnings"])
    assert job["id"] in message and "questions of your own" in message


async def test_it_is_not_asked_again(tmp_path: Path) -> None:
    for _ in range(2):
        llm = Knower()
        async with meeting(tmp_path, llm) as http:
            await known(http)
            await asyncio.sleep(0.3)
            assert len((await http.get("/jobs")).json()) == 1
    assert len(llm.requests) <= 1  # a restarted service may ask who answers


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    llm = Knower()
    async with meeting(tmp_path, llm, get_to_know=False) as http:
        await asyncio.sleep(0.3)
        assert (await http.get("/jobs")).json() == []
    assert llm.requests == []


async def test_the_job_for_conversations_waits_for_the_first_one(tmp_path: Path) -> None:
    llm = Knower()
    async with meeting(tmp_path, llm, stop='["."]') as http:
        await known(http)
        await asyncio.sleep(0.3)
        assert len((await http.get("/jobs")).json()) == 1
        turns = {"messages": [{"role": "user", "content": "q"}]}
        assert (await http.post("/score", json=turns)).json()["calibration"] is None
        async with asyncio.timeout(60):
            while sum(job["activated"] is True for job in (await http.get("/jobs")).json()) < 2:
                await asyncio.sleep(0.05)
        by_prompt = await scored(http)
        by_turns = (await http.post("/score", json=turns)).json()
    assert by_prompt["calibration"]["id"] != by_turns["calibration"]["id"]


async def test_own_rows_are_fitted_with_what_is_known(tmp_path: Path) -> None:
    """The maps of the bundled questions are the prior."""
    llm = Knower()
    rows = [{"prompt": f"own {i}", "reference": f"guess {i % 4}"} for i in range(12)]
    sent = {"examples": rows, "activate": "always", "method": "temperature"}
    async with meeting(tmp_path, llm) as http:
        first = await known(http)
        job = await ended(http, await http.post("/calibrate", json=sent))
        made = [(await http.get(one["links"]["calibration"])).json() for one in (first, job)]
        assert (await scored(http))["calibration"]["origin"] == "both"
    async with replica_app(
        tmp_path / "alone", llm=Knower(), embedder=FakeEmbedder(24), num_samples=4
    ) as http:
        job = await ended(http, await http.post("/calibrate", json=sent))
        alone = (await http.get(job["links"]["calibration"])).json()
    assert made[1]["temperature"] != pytest.approx(alone["temperature"], rel=0.01)


async def judged(http: httpx.AsyncClient, prompts: list[str], *, correct: bool) -> list[dict[str, Any]]:
    """Score questions, and return them as rows with a verdict, without references."""
    rows = list[dict[str, Any]]()
    for prompt in prompts:
        score = await scored(http, prompt=prompt)
        texts = [text for mode in score["modes"] for text in [mode["answer"]] * len(mode["samples"])]
        rows.append({"prompt": prompt, "samples": texts, "answer": score["answer"], "correct": correct})
    return rows


@pytest.mark.parametrize("correct", [True, False])
async def test_ten_verdicts_adjust_the_bundled_calibration(tmp_path: Path, correct: bool) -> None:
    llm = Knower()
    llm.right |= {f"own {i}": "a word" for i in range(30)}
    async with meeting(tmp_path, llm) as http:
        await known(http)
        before = await scored(http, prompt="own 20")
        for few in (range(10), range(20)):  # ten more join them later
            rows = await judged(http, [f"own {i}" for i in few], correct=correct)
            job = await ended(
                http, await http.post("/calibrate", json={"examples": rows, "drawn_by": "service"})
            )
            assert job["activated"], job["decision"]
        after = await scored(http, prompt="own 20")
        report = (await http.get(job["links"]["report"], headers={"accept": "application/json"})).json()
    assert after["calibration"]["origin"] == "both"
    moved = after["probability_correct"] - before["probability_correct"]
    assert moved > 0 if correct else moved < -0.1
    # The promises count the bundled questions, too, so there still are decisions.
    assert after["decision"]["action"] == ("answer" if correct else "abstain")
    assert "drawn answer" not in after["decision"]["reason"]  # the answers judged are the service's own
    assert "bundled_questions" in {warning["code"] for warning in after["warnings"]}
    assert report["opening"]["verdict"] == "Use it, and collect more rows."


async def test_more_verdicts_join_the_first_ones_and_fewer_do_not_replace_them(tmp_path: Path) -> None:
    llm = Knower()
    llm.right |= {f"own {i}": "a word" for i in range(30)}
    decisions = list[tuple[bool, str]]()
    async with meeting(tmp_path, llm) as http:
        await known(http)
        rows = await judged(http, [f"own {i}" for i in range(24)], correct=True)
        rows = [row | {"correct": i % 3 > 0} for i, row in enumerate(rows)]
        for few in (rows[:18], rows, rows[:12]):
            sent = {"examples": few, "drawn_by": "service"}
            job = await ended(http, await http.post("/calibrate", json=sent))
            decisions.append((job["activated"], job["decision"]))
        made = (await http.get("/calibrations")).json()
        report = (await http.get(job["links"]["report"], headers={"accept": "application/json"})).json()
        [kept] = [one for one in made if one["active"]]
        exported = (await http.get(kept["links"]["data"])).text
    assert [activated for activated, _ in decisions] == [True, True, False], decisions
    assert "fitted on more rows" in decisions[2][1]
    assert (kept["rows"], kept["origin"]) == (24, "both")
    promises = [row["text"] for row in report["correctness"]["promises"] if row["threshold"] is not None]
    assert promises and all("its rows mixed with the bundled ones" in text for text in promises)
    assert "reference" not in json.loads(exported.splitlines()[0])


def test_the_questions_have_references_that_the_rule_accepts() -> None:
    bundled_rows.cache_clear()
    text = Path(knowing.__file__).with_name("questions.jsonl").read_text("utf-8")
    all_rows = [json.loads(line) for line in text.splitlines()]
    assert len(all_rows) >= 200 and len({row["prompt"] for row in all_rows}) == len(all_rows)
    assert {row["source"] for row in all_rows} == {"eigencal", "triviaqa"}
    for row in all_rows:
        for reference in row["reference"]:
            assert correct(f"It is {reference}.", row["reference"])
