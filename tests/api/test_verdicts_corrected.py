"""Verdicts over HTTP: in report and export, corrected by route or file, and the history of activations."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_dev_rows_refused import World
from tests.support.fakes import FakeEmbedder
from tests.support.operator_world import jsonl, problem
from tests.support.replica_apps import replica_app
from tests.support.services import CITIES


def rows(count: int = 40) -> list[dict[str, Any]]:
    """Return sampled rows: in turn right by a contained reference, right by an equal one, and wrong."""
    sentences = ("The capital of that large country is {}.", "{}", "I cannot say that at all, sorry.")
    results = []
    for i in range(count):
        city = CITIES[i % 5]
        answer = sentences[i % 3].format(city)
        samples = [answer] * 4 + [CITIES[(i + 1) % 5]]
        results.append({"id": f"q{i}", "prompt": f"question {i}", "reference": city, "samples": samples})
    return results


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World()
    settings = {"admin_key": "secret", "num_samples": 5}
    async with replica_app(tmp_path, embedder=FakeEmbedder(24), **settings) as made.http:
        made.http.headers["Authorization"] = "Bearer secret"
        yield made


async def calibrated(world: World, sent: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    form, files = {"drawn_by": "service", **options}, {"file": ("dev.jsonl", jsonl(sent))}
    job = await world.ended(await world.http.post("/calibrate", files=files, data=form))
    assert job["error"] is None
    return job


async def verdicts(world: World, job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in (await world.report(job))["verdicts"]["rows"]}


async def test_report_and_export_show_judged_texts_and_reasons(world: World) -> None:
    job = await calibrated(world, rows())
    verdicts_ = await verdicts(world, job)
    assert len(verdicts_) == 40
    assert verdicts_["q0"] == {
        "line": 1,
        "id": "q0",
        "question": "question 0",
        "references": ["Paris"],
        "answer": "The capital of that large country is Paris.",
        "correct": True,
        "rule": "contains",
    }
    assert [verdicts_[name]["rule"] for name in ("q1", "q2")] == ["equal", "none"]
    page = (await world.http.get(job["links"]["report"], headers={"Accept": "text/html"})).text
    assert "The capital of that large country is Paris." in page
    data = (await world.http.get(f"/calibrations/{job['calibration_id']}/data")).text.splitlines()
    assert json.loads(data[0])["verdict"]["rule"] == "contains"

    assert (await world.http.delete(f"/calibrations/{job['calibration_id']}/data")).status_code == 204
    assert (await world.report(job))["verdicts"] is None
    assert "large country" not in json.dumps(await world.report(job))
    correction = {"rows": [{"line": 1, "correct": False}]}
    gone = await world.http.patch(f"/calibrations/{job['calibration_id']}/rows", json=correction)
    problem(gone, 409, "conflict")


async def test_a_report_has_the_most_doubtful_verdicts_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = rows()
    sent[20] |= {"reference": "Saint Petersburg", "samples": ["It is Petersburg now, I think"] * 5}
    sent[30] |= {"reference": "Saint Petersburg", "samples": ["Saint Petersburgh"] * 5}
    sent[35] |= {"correct": True}
    job = await calibrated(world, sent)
    shown = (await world.report(job))["verdicts"]["rows"]
    # Right by spelling, wrong with a word of the reference, right by a part, wrong, equal, given.
    kinds = [
        ("spelling", True),
        ("none", False),
        ("contains", True),
        ("none", False),
        ("equal", True),
        ("given", True),
    ]
    assert [kind for kind, _ in groupby((row["rule"], row["correct"]) for row in shown)] == kinds
    assert [row["id"] for row in shown[:3]] == ["q30", "q20", "q0"]
    monkeypatch.setattr("service.admin.calibrations.MAX_VERDICTS", 3)
    most = (await world.report(job))["verdicts"]
    assert (most["count"], most["rows"]) == (40, shown[:3])


async def test_corrected_verdicts_give_a_new_calibration_on_the_same_answers(world: World) -> None:
    first = await calibrated(world, rows(), activate="always")
    path = f"/calibrations/{first['calibration_id']}/rows"
    for wrong, field in (({"line": 999}, "line"), ({"id": "q999"}, "id")):
        body = {"rows": [{"line": 1, "correct": True}, wrong | {"correct": True}]}
        error = problem(await world.http.patch(path, json=body), 422, "invalid_request")
        assert error["errors"][0]["loc"] == ["body", "rows", 1, field]
        assert "999" in error["errors"][0]["msg"]
    assert (await world.http.patch(path, json={"rows": [{"correct": True}]})).status_code == 422
    both = [{"line": 1, "correct": False}, {"id": "q0", "correct": True}]  # one row, named in two ways
    error = await world.http.patch(path, json={"rows": both})
    assert "two verdicts on one row" in problem(error, 422, "invalid_request")["detail"]

    sent = {"rows": [{"line": 1, "correct": False}, {"id": "q2", "correct": True}]}
    second = await world.ended(await world.http.patch(path, json=sent))
    assert second["error"] is None
    assert second["activated"], "the calibration corrected was the active one"
    latest = (await world.http.get("/calibrations/activations")).json()[0]
    assert latest["calibration_id"] == second["calibration_id"]
    assert f"those of {first['calibration_id']} with corrected verdicts" in latest["reason"]
    verdicts_ = await verdicts(world, second)
    assert [(verdicts_[name]["correct"], verdicts_[name]["rule"]) for name in ("q0", "q1", "q2")] == [
        (False, "given"),
        (True, "equal"),
        (True, "given"),
    ]
    assert (await verdicts(world, first))["q0"]["correct"], "the calibration corrected stays as it is"
    made = [(await world.http.get(job["links"]["calibration"])).json() for job in (first, second)]
    assert made[0]["fingerprint_key"] == made[1]["fingerprint_key"]


async def test_uploading_an_edited_export_corrects_verdicts(world: World) -> None:
    first = await calibrated(world, rows())
    data = (await world.http.get(f"/calibrations/{first['calibration_id']}/data")).text.splitlines()
    exported = [json.loads(line) for line in data]
    exported[0]["correct"] = False
    second = await calibrated(world, exported)
    before, after = await verdicts(world, first), await verdicts(world, second)
    assert (after["q0"]["correct"], after["q0"]["rule"]) == (False, "given")
    assert after["q0"]["answer"] == before["q0"]["answer"], "the verdict is about the answer that was judged"
    assert before | {"q0": None} == after | {"q0": None}


async def test_activation_history(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first = await calibrated(world, rows(), activate="always")
    second = await calibrated(world, rows(39), activate="always")
    made = (await world.http.post("/keys", json={"name": "ops", "scope": "admin"})).json()
    back = await world.http.post(
        f"/calibrations/{first['calibration_id']}/activate",
        headers={"Authorization": f"Bearer {made['key']}"},
    )
    assert back.json()["active"]
    await world.http.post(f"/calibrations/{first['calibration_id']}/activate")  # no change: no entry
    await world.http.post(f"/calibrations/{second['calibration_id']}/activate")
    history = (await world.http.get("/calibrations/activations")).json()
    calibration_id, two = first["calibration_id"], second["calibration_id"]
    assert [(entry["calibration_id"], entry["replaced"]) for entry in history] == [
        (two, calibration_id),
        (calibration_id, two),
        (two, calibration_id),
        (calibration_id, None),
    ]
    by = [entry["by"] for entry in history]
    assert by == ["settings key", f"{made['id']} (ops)", second["id"], first["id"]]
    assert made["key"] not in json.dumps(history)
    rolled_back = "Rolled back on request: it was active before."
    reasons = [entry["reason"] for entry in history]
    assert reasons == [rolled_back, rolled_back, "Activated as asked.", "Activated as asked."]
    times = [datetime.fromisoformat(entry["activated_at"]) for entry in history]
    assert times == sorted(times, reverse=True)
    assert caplog.text.count("was activated by") == 4

    third = await calibrated(world, rows(38), activate="never")
    await world.http.post(f"/calibrations/{third['calibration_id']}/activate")
    latest = (await world.http.get("/calibrations/activations")).json()[0]
    assert (latest["calibration_id"], latest["reason"]) == (third["calibration_id"], "Activated on request.")
    await world.http.post(f"/calibrations/{two}/activate")

    listed = {entry["id"]: entry for entry in (await world.http.get("/calibrations")).json()}
    del listed[third["calibration_id"]]
    shown = {name: [entry[k] for k in ("active", "applies_now", "rows")] for name, entry in listed.items()}
    assert shown == {calibration_id: [False, True, 40], two: [True, True, 39]}
    assert all(0 <= entry["projection_ece"] <= 1 for entry in listed.values())

    scored = (await world.http.post("/score", json={"prompt": "question 1"})).json()
    assert scored["calibration"]["id"] == two
    metrics = (await world.http.get("/metrics")).text
    assert f'eigencal_active_calibration{{calibration="{two}",name="dev"}} 1.0' in metrics
    assert f'eigencal_active_calibration_age_seconds{{calibration="{two}"}}' in metrics
    assert "eigencal_activations_total 6.0" in metrics
