"""Calibrating over HTTP with `answer` and `correct`: stored and reported decisions."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from service.app import create_app
from service.embedding.port import Embedded
from service.settings import Settings
from tests.support.decisions import judged_rows, vectors_of
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.reports import FEW

ROWS, DIMENSION = 160, 12


class Remembering(FakeEmbedder):
    """Embeds all texts alike, and records them."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self.seen: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.seen += texts
        vectors = vectors_of(texts) if texts else np.empty((0, DIMENSION), dtype=np.float32)
        return Embedded(vectors, self.identity)


def sent(count: int, **changed: Any) -> bytes:
    """Return rows as a file: samples, log-probabilities, an answer to judge, and whether it is right."""
    lines = []
    for judged_row in judged_rows(count):
        row = {
            "prompt": judged_row.prompt,
            "reference": judged_row.references[0],
            "samples": [draw.text for draw in judged_row.draws],
            "logprobs": [draw.total_logprob for draw in judged_row.draws],
            "answer": f" {judged_row.answer} ",
            "answer_logprob": judged_row.answer_logprob,
            "correct": judged_row.correct,
        }
        lines.append(json.dumps(row | changed) + "\n")
    return "".join(lines).encode()


@pytest.fixture
def embedder() -> Remembering:
    return Remembering()


@pytest.fixture
async def http(embedder: Remembering, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=embedder, resamples=FEW)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
            yield client


async def calibrated(http: httpx.AsyncClient, data: bytes, **options: Any) -> dict[str, Any]:
    posted = await http.post("/calibrate", files={"file": ("dev.jsonl", data)}, data=options)
    assert posted.status_code == 202, posted.text
    events = (await http.get(f"/jobs/{posted.json()['id']}/events")).text.splitlines()
    last = json.loads([line for line in events if line.startswith("data:")][-1].removeprefix("data:"))
    assert (last["state"], last["error"]) == ("succeeded", None)
    return (await http.get(f"/calibrations/{last['calibration_id']}")).json()


async def test_verdicts_give_thresholds(http: httpx.AsyncClient, embedder: Remembering) -> None:
    calibration = await calibrated(http, sent(ROWS))
    assert (calibration["method"], calibration["correctness_sample_counts"]) == ("evidence", [0, 1, 2, 3, 4])
    [listed] = (await http.get("/calibrations")).json()
    assert listed["correctness_sample_counts"] == calibration["correctness_sample_counts"]
    assert {judged_row.answer for judged_row in judged_rows(ROWS)} <= set(embedder.seen)

    report = (await http.get(calibration["links"]["report"])).json()
    part = report["correctness"]
    assert [row["num_samples"] for row in part["by_num_samples"]] == calibration["correctness_sample_counts"]
    assert sum(item["count"] for item in part["diagram"]) == ROWS
    kept = [promise for promise in part["promises"] if promise["threshold"] is not None]
    assert kept
    page = (await http.get(calibration["links"]["report"], headers={"Accept": "text/html"})).text
    assert "Is this answer right?" in page
    assert all(f"<td>{decision['threshold']:.3f}</td>" in page for decision in kept)

    # All promises shown name their number of answers.
    for row in part["by_num_samples"]:
        for claim in [*row["promises"], *filter(None, [row["lowest"]])]:
            number = row["num_samples"]
            assert f"ith {number} answer{'' if number == 1 else 's'}" in claim["text"]
    assert calibration["promise"]["num_samples"] == calibration["num_samples"] == 4
    pages = (await http.get("/calibrations", headers={"Accept": "text/html"})).text
    assert "With 4 answers: an error of at most" in pages


async def test_job_log_report_and_page_state_whether_the_calibration_was_activated(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        first, second = [await calibrated(http, sent(120)) for _ in range(2)]
    jobs = {item["calibration_id"]: item for item in (await http.get("/jobs")).json()}
    for made, activated in ((first, True), (second, False)):
        job, link = jobs[made["id"]], made["links"]["report"]
        report = (await http.get(link)).json()
        verdict, reason = report["opening"]["verdict"], report["decision"]["reason"]
        assert (job["activated"], job["decision"]) == (activated, f"{verdict} {reason}")
        assert verdict.startswith("Use it" if activated else "No.")
        assert reason.startswith("Activated: " if activated else "Not activated: ")
        assert reason in (await http.get(link, headers={"Accept": "text/html"})).text
        assert any(reason in line for line in caplog.messages)


async def test_no_decisions_without_both_right_and_wrong_verdicts(
    http: httpx.AsyncClient,
) -> None:
    calibration = await calibrated(http, sent(60, correct=False))
    assert calibration["correctness_sample_counts"] == []
    part = (await http.get(calibration["links"]["report"])).json()["correctness"]
    assert {row["why_none"] for row in part["by_num_samples"]} == {"one_kind"}
    assert part["promises"] == []


class Numbered(Remembering):
    """An embedder that almost ignores the number before a question."""

    async def embed(self, texts: Sequence[str]) -> Embedded:
        if not texts:
            return await super().embed(texts)
        near = 5 * vectors_of([text.split("] ")[-1] for text in texts]) + vectors_of(texts)
        return Embedded(near / np.linalg.norm(near, axis=1, keepdims=True), self.identity)


async def test_near_duplicate_questions_count_as_one_row(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in sent(12).splitlines()]
    copies = [row | {"prompt": f"[{i}] {row['prompt']}"} for i in range(30) for row in rows]
    other = [row | {"prompt": f"[{99}] {row['prompt']}", "reference": "another"} for row in rows]
    data = "".join(json.dumps(item) + "\n" for item in [*copies, *other]).encode()
    app = create_app(Settings(data_dir=tmp_path), llm=FakeLLM(), embedder=Numbered(), resamples=FEW)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
            calibration = await calibrated(client, data)
            report = (await client.get(calibration["links"]["report"])).json()
    part = report["data"]
    assert [part[name] for name in ("rows", "usable", "rows_full", "copies")] == [372, 24, 24, 348]
    assert calibration["rows"] == 24
    assert "24 rows are too few" in report["decision"]["reason"]
    counts = report["correctness"]["by_num_samples"][-1]
    assert counts["right"] + counts["wrong"] == 24


async def test_duplicate_questions_count_as_one_row_everywhere(http: httpx.AsyncClient) -> None:
    lines = sent(ROWS).splitlines()
    first = json.loads(lines[0])
    copies = [json.dumps(first | {"prompt": f" {first['prompt'].upper()} "}).encode() for _ in range(ROWS)]
    refused = await http.post("/calibrate", files={"file": ("dev.jsonl", b"\n".join(lines[:9] + copies))})
    assert refused.status_code == 422 and "9 of 169 rows are usable" in refused.json()["detail"]

    calibration = await calibrated(http, b"\n".join(lines + copies))
    report = (await http.get(calibration["links"]["report"])).json()
    data = report["data"]
    assert [data[name] for name in ("rows", "usable", "rows_full", "copies")] == [2 * ROWS, ROWS, ROWS, ROWS]
    assert {warning["code"] for warning in report["warnings"]} >= {"copies"}
    counts = report["correctness"]["by_num_samples"][-1]
    assert counts["right"] + counts["wrong"] == ROWS
    for bins in report["curves"]["projection"].values():
        assert sum(bin_["count"] for bin_ in bins) == ROWS
    exported = (await http.get(f"{calibration['links']['self']}/data")).text.splitlines()
    assert len(exported) == 2 * ROWS
