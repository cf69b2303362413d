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
from service.report.words import answers_drawn
from service.scoring.judge import percent
from service.settings import Settings
from tests.support.decisions import judged_rows, vectors_of
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.operator_world import ended
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
    async with in_process(app) as client:
        yield client


async def calibrated(http: httpx.AsyncClient, data: bytes, **options: Any) -> dict[str, Any]:
    posted = await http.post("/calibrate", files={"file": ("dev.jsonl", data)}, data=options)
    last = await ended(http, posted)
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
    assert "Promises by number of answers" in page

    # All promises shown name their number of answers.
    for row in part["by_num_samples"]:
        for claim in [*row["promises"], *filter(None, [row["lowest"]])]:
            number = row["num_samples"]
            assert f"ith {number} answer{'' if number == 1 else 's'}" in claim["text"]
    # The calibration and the report's opening make the same promise.
    number, coverage = calibration["promise"]["num_samples"], calibration["promise"]["coverage"]
    assert f"ith {number} answer" in report["opening"]["promise"]
    assert f"{round(100 * coverage)} % of the questions" in report["opening"]["promise"]


async def test_unreachable_target_gives_the_lowest_error_for_the_recommended_number(
    http: httpx.AsyncClient,
) -> None:
    calibration = await calibrated(http, sent(50))
    opening = (await http.get(calibration["links"]["report"])).json()["opening"]["promise"]
    assert opening.startswith("Nothing at 20 %")
    number, error = calibration["promise"]["num_samples"], calibration["promise"]["target_error"]
    assert f"With {answers_drawn(number)} and 90 % confidence, at most {percent(error)} of" in opening


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
    for part in report["projection"].values():
        assert sum(bin_["count"] for bin_ in part["bins"]) == ROWS
    exported = (await http.get(f"{calibration['links']['self']}/data")).text.splitlines()
    assert len(exported) == 2 * ROWS
