"""POST /evaluate with the whole application: real store, job engine and report."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW

CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
DEV, TEST, NUM_SAMPLES = 32, 34, 6


def question(number: int) -> dict[str, Any]:
    return {"prompt": f"question {number}", "reference": CITIES[number % 3]}


def answers(number: int) -> list[str]:
    return [CITIES[(number * step) % len(CITIES)] for step in range(NUM_SAMPLES)]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def files(test: list[dict[str, Any]]) -> dict[str, tuple[str, bytes]]:
    dev = [question(i) for i in range(DEV)]
    return {"dev": ("dev.jsonl", jsonl(dev)), "test": ("test.jsonl", jsonl(test))}


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM({f"question {i}": answers(i) for i in range(DEV + TEST)})


@pytest.fixture
async def http(llm: FakeLLM, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(
        Settings(data_dir=tmp_path, num_samples=NUM_SAMPLES),
        llm=llm,
        embedder=FakeEmbedder(32),
        resamples=FEW,
    )
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            yield client


async def followed(http: httpx.AsyncClient, job_id: str) -> list[dict[str, Any]]:
    """Return all reported states of a job, to its end."""
    events = (await http.get(f"/jobs/{job_id}/events")).text.splitlines()
    return [json.loads(line.removeprefix("data:")) for line in events if line.startswith("data:")]


async def test_two_files_give_a_report(http: httpx.AsyncClient, llm: FakeLLM) -> None:
    test = [question(i) for i in range(DEV, DEV + TEST)]
    posted = await http.post("/evaluate", files=files(test), data={"name": "cities"})
    assert posted.status_code == 202, posted.text
    job = posted.json()
    assert (job["kind"], job["state"], job["total"]) == ("evaluate", "queued", DEV + TEST)
    assert posted.headers["location"] == f"/jobs/{job['id']}"

    last = (await followed(http, job["id"]))[-1]
    assert (last["state"], last["error"], last["done"]) == ("succeeded", None, last["total"])
    assert {r.prompt for r in llm.requests} == {f"question {i}" for i in range(DEV + TEST)}
    assert [(item["id"], item["name"], item["state"]) for item in (await http.get("/jobs")).json()] == [
        (job["id"], "cities", "succeeded")
    ]
    assert (await http.get("/calibrations")).json() == []  # it does not calibrate

    path = f"/evaluations/{job['id']}/report"
    results = (await http.get(path)).json()
    assert (results["dev"]["used"], results["test"]["used"]) == (DEV, TEST)
    assert (results["num_samples"], results["provenance"]["embedder"]["name"]) == (
        NUM_SAMPLES,
        "fake-embedder",
    )
    assert results["unfitted"].keys() == {"evidence"}  # the fake has no log-probabilities
    page = await http.get(path, headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert all(f'id="{name}"' in page.text for name in ("verdict", "comparison", "baselines"))


async def test_bad_row_in_either_file_starts_no_job(http: httpx.AsyncClient, llm: FakeLLM) -> None:
    test = [question(i) for i in range(DEV, DEV + TEST)]
    test[4] = {"prompt": "no reference"}
    refused = await http.post("/evaluate", files=files(test))
    assert refused.status_code == 422
    problem = refused.json()
    assert (problem["code"], problem["retryable"]) == ("invalid_dev_data", False)
    assert [(error["line"], error["field"]) for error in problem["errors"]] == [(5, "reference")]
    assert (await http.get("/jobs")).json() == []
    assert llm.requests == []
