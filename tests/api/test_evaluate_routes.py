"""POST /evaluate and its report, with a store in a file."""

import gzip
import json
from typing import Any

import pytest

from service.api.auth import Keys
from tests.support.keys import MemoryKeys
from tests.support.operator_world import World
from tests.support.reports import small_evaluation


def examples(count: int, name: str = "q") -> list[dict[str, Any]]:
    return [{"prompt": f"{name}{i}?", "reference": "yes"} for i in range(count)]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(row).encode() + b"\n" for row in rows)  # blank lines between


async def test_two_files_create_one_job(world: World) -> None:
    files = {"dev": ("d", jsonl(examples(31))), "test": ("t", gzip.compress(jsonl(examples(33, "t"))))}
    async with world.client() as client:
        response = await client.post("/evaluate", files=files, data={"name": "n", "num_samples": "10"})
    assert response.status_code == 202, response.text
    job = response.json()
    assert response.headers["location"] == f"/jobs/{job['id']}"
    assert (job["kind"], job["name"], job["total"]) == ("evaluate", "n", 64)
    kept = await world.store.rows_of(job["id"])
    assert [row.line for row in kept] == list(range(1, 65))
    assert [row.prompt for row in kept[30:32]] == ["q30?", "t0?"]


async def test_json_body_creates_the_same_job(world: World) -> None:
    body = {"dev": examples(30), "test": examples(30, "t"), "seed": 3}
    key = {"Idempotency-Key": "once"}
    async with world.client() as client:
        first = await client.post("/evaluate", json=body, headers=key)
        again = await client.post("/evaluate", json=body, headers=key)
        moved = {"dev": [*body["dev"], body["test"][0]], "test": [*body["test"][1:], body["dev"][0]]}
        other = await client.post("/evaluate", json={**moved, "seed": 3}, headers=key)
    assert first.status_code == again.status_code == 202
    assert first.json()["id"] == again.json()["id"]
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"test": None}, "invalid_request"),
        ({"test": examples(9)}, "invalid_dev_data"),
        ({"test": [*examples(30), {"prompt": "x"}]}, "invalid_dev_data"),
        ({"activate": "always"}, "invalid_request"),
        ({"dev_rows": 3}, "invalid_request"),
    ],
)
async def test_invalid_upload_stores_nothing(world: World, change: dict[str, Any], code: str) -> None:
    body = {"dev": examples(30), "test": examples(30, "t"), **change}
    async with world.client() as client:
        response = await client.post("/evaluate", json={k: v for k, v in body.items() if v is not None})
    assert response.status_code == 422
    assert response.json()["code"] == code
    assert await world.jobs.store.latest() == []


async def test_error_names_the_bad_file(world: World) -> None:
    bad = [*examples(30, "t"), {"prompt": "x"}]
    async with world.client() as client:
        listed = await client.post("/evaluate", json={"dev": examples(30), "test": bad})
        files = {"dev": ("d", jsonl(examples(30))), "test": ("t", jsonl(bad))}
        rows = await client.post("/evaluate", files=files)
        files = {"dev": ("d", "prompt".encode("utf-16")), "test": ("t", jsonl(bad))}
        whole = await client.post("/evaluate", files=files)
        few = await client.post("/evaluate", json={"dev": examples(2), "test": bad})
    assert listed.json()["errors"][0]["loc"] == ["body", "test", 31, "reference"]
    assert rows.json()["errors"][0]["loc"] == ["test", 61, "reference"]
    assert rows.json()["detail"].startswith("test: 1 row is bad, the first on line 61")
    assert whole.json()["errors"][0]["loc"][0] == "dev"
    assert few.json()["detail"].startswith("dev: only 2 usable rows")


async def test_missing_file_is_named(world: World) -> None:
    async with world.client() as client:
        response = await client.post("/evaluate", files={"dev": ("d", jsonl(examples(30)))})
        wrong = await client.post("/evaluate", files={"file": ("d", jsonl(examples(30)))})
    assert response.json()["errors"][0]["loc"] == ["body", "test"]
    assert "`dev` and `test`" in wrong.json()["detail"]


async def test_report_is_json_or_a_page(world: World) -> None:
    async with world.client() as client:
        posted = await client.post("/evaluate", json={"dev": examples(30), "test": examples(30, "t")})
        path = f"/evaluations/{posted.json()['id']}/report"
        assert (await client.get(path)).json()["code"] == "not_found"
        await world.store.runs.begin(posted.json()["id"])
        results = small_evaluation() | {"version": 7}
        await world.store.runs.keep_evaluation(posted.json()["id"], results)
        assert (await client.get(path)).json() == results
        job = (await client.get(f"/jobs/{posted.json()['id']}")).json()
        assert (posted.json()["links"].get("report"), job["links"]["report"]) == (None, path)
        page = await client.get(path, headers={"Accept": "text/html"})
    assert page.text == "<html>7</html>"
    assert page.headers["content-type"].startswith("text/html")


async def test_evaluation_requires_the_admin_key(world: World) -> None:
    world.app.state.keys = Keys(MemoryKeys(), admin="admin-key", score="score-key")
    async with world.client() as client:
        assert (await client.post("/evaluate", json={})).status_code == 401
        wrong = await client.post("/evaluate", json={}, headers={"Authorization": "Bearer score-key"})
    assert wrong.status_code == 403
