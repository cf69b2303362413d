"""Calibrating over HTTP when the LLM server refuses rows temporarily or permanently."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.embedding.http import HttpEmbedder
from service.jobs.calibrator import RetryPolicy
from service.llm.client import LLM
from tests.support.embeddings_server import EmbeddingsServer
from tests.support.fakes import FakeEmbedder
from tests.support.openai_server import Exchange, OpenAIServer, status
from tests.support.operator_world import ended, problem
from tests.support.replica_apps import replica_app
from tests.support.services import cities, prompt_of, questions

QUICK = RetryPolicy(first_wait_s=0.001, max_wait_s=0.002)
SAID = "This model's maximum context length is 8 tokens."


class World:
    """The service, and an LLM server that refuses requests by `refused`, a function of number and prompt."""

    def __init__(self) -> None:
        self.refused: Callable[[int, str], bool] = lambda *_: False
        self.number = 0
        self.http: httpx.AsyncClient

    async def answer(self, exchange: Exchange) -> None:
        self.number += 1
        if self.refused(self.number, prompt_of(exchange.body)):
            await status(400, {"error": {"message": SAID}})(exchange)
            return
        await cities(exchange)

    async def ended(self, posted: httpx.Response) -> dict[str, Any]:
        return await ended(self.http, posted)

    async def calibrate(self, count: int, **options: Any) -> dict[str, Any]:
        body = {"examples": questions(count), **options}
        return await self.ended(await self.http.post("/calibrate", json=body))

    async def report(self, job: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = (await self.http.get(job["links"]["report"])).json()
        return body


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World()
    async with OpenAIServer(default=made.answer) as server:
        llm = LLM(server.url, model="")
        parts = {"llm": llm, "embedder": FakeEmbedder(24), "patience": QUICK}
        async with replica_app(
            tmp_path, **parts, llm_url=server.url, num_samples=5, self_check=False
        ) as made.http:
            yield made


async def test_permanently_refused_rows_are_listed_and_nothing_is_activated(world: World) -> None:
    bad = {f"question {i}" for i in (3, 17, 18)}
    world.refused = lambda _, prompt: prompt in bad
    for name in ("if_better", "always"):
        job = await world.calibrate(40, activate=name)
        assert (job["state"], job["refused_rows"]) == ("succeeded", 3)
        report = await world.report(job)
        refused = report["data"]["refused"]
        assert [row["line"] for row in refused["rows"]] == [4, 18, 19]
        assert all(SAID in row["reason"] for row in refused["rows"])
        assert report["decision"]["activated"] is False
        if name == "always":
            assert "refused 3 of 40 rows" in report["decision"]["reason"]
        assert "refused_rows" in {warning["code"] for warning in report["warnings"]}
    page = (await world.http.get(job["links"]["report"], headers={"Accept": "text/html"})).text
    assert "Line 18: " in page
    assert (await world.http.get("/calibrations/active")).json() == []
    activated = await world.http.post(f"/calibrations/{job['calibration_id']}/activate")
    assert activated.json()["active"], "the operator may"


async def test_retry_samples_missing_rows_and_creates_another_calibration(world: World) -> None:
    world.refused = lambda _, prompt: prompt == "question 7"
    first = await world.calibrate(40)
    assert first["refused_rows"] == 1
    before = world.number
    world.refused = lambda *_: False
    again = await world.ended(await world.http.post(f"/jobs/{first['id']}/retry"))
    assert world.number == before + 1
    assert (again["state"], again["refused_rows"]) == ("succeeded", 0)
    assert again["calibration_id"] != first["calibration_id"]
    assert [(await world.report(job))["data"]["rows_full"] for job in (first, again)] == [39, 40]
    problem_ = problem(await world.http.post(f"/jobs/{again['id']}/retry"), 409, "conflict")
    assert "lacks answers" in problem_["detail"]
    rows = (await world.http.get(f"/calibrations/{first['calibration_id']}/data")).text.splitlines()
    assert len(rows) == 39, "the first keeps the rows that it was fitted on"


async def test_job_fails_with_the_servers_message_if_all_rows_are_refused(world: World) -> None:
    world.refused = lambda *_: True
    job = await world.calibrate(40)
    assert (job["state"], job["error"]["code"]) == ("failed", "llm_error")
    assert SAID in job["error"]["detail"]


async def test_a_failed_job_quotes_the_refusal_of_the_embedding_server(tmp_path: Path) -> None:
    words = "Input validation error: `inputs` must have less than 512 tokens."

    class Refusing(EmbeddingsServer):
        async def _embed(self, exchange: Exchange) -> None:
            if exchange.body["input"] == ["check"]:
                return await super()._embed(exchange)
            return await status(413, {"error": words, "error_type": "Validation"})(exchange)

    row = {"reference": "Paris", "samples": ["Paris", "Lyon"]}
    rows = [row | {"prompt": f"question {i}"} for i in range(12)]
    async with Refusing() as server, replica_app(tmp_path, embedder=HttpEmbedder(server.url, "m")) as http:
        job = await ended(http, await http.post("/calibrate", json={"examples": rows}))
    assert (job["state"], job["error"]["code"]) == ("failed", "embedder_unavailable")
    assert words in job["error"]["detail"]
    assert len(server.requests) < 10, "the check, and a batch in ever smaller halves"
