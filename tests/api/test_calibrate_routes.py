"""POST /calibrate: accepted and refused uploads, with a store in a file."""

import io
import json
from typing import Any

import pytest

from service.calibration.files import read_file
from service.jobs.model import Job
from tests.support.operator_world import World, examples, jsonl, problem, upload


class TestPosting:
    async def test_file_upload_creates_a_job(self, world: World) -> None:
        data = jsonl(examples())
        async with world.client() as client:
            sent = upload(data)
            options = {"method": "both", "num_samples": "10", "activate": "never", "name": "n", "seed": ""}
            response = await client.post("/calibrate", files=sent, data=options)
        assert response.status_code == 202
        job = Job.model_validate_json(response.content)
        assert response.headers["location"] == f"/jobs/{job.id}"
        assert (job.state, job.kind, job.name, job.total) == ("queued", "calibrate", "n", 40)
        assert await world.store.rows_of(job.id) == list(read_file(io.BytesIO(data)).rows())

    async def test_csv_written_by_pandas_creates_a_job(self, world: World) -> None:
        cells = ['"[""Paris"", ""City of Light""]"', "[sic] Paris"]
        lines = [f"{i},question {i},{cells[i % 2]},1.0" for i in range(12)]
        data = "\n".join([",prompt,reference,correct", *lines]).encode()
        async with world.client() as client:
            response = await client.post("/calibrate", files=upload(data))
        assert response.status_code == 202, response.text
        listed = ("Paris", "City of Light")
        rows = await world.store.rows_of(response.json()["id"])
        assert [row.references for row in rows[:2]] == [listed, ("[sic] Paris",)]
        assert all(row.correct is True for row in rows)

    async def test_idempotency_key_gives_the_same_job_or_a_conflict(self, world: World) -> None:
        key = {"Idempotency-Key": "k1"}
        async with world.client(headers=key) as client:
            first = await client.post("/calibrate", files=upload(jsonl(examples())))
            again = await client.post("/calibrate", files=upload(jsonl(examples())))
            assert (first.json()["id"], again.status_code) == (again.json()["id"], 202)
            for files, data in ((examples(41), {}), (examples(), {"seed": "1"})):
                other = await client.post("/calibrate", files=upload(jsonl(files)), data=data)
                problem(other, 409, "conflict")


class TestRefusing:
    async def test_bad_rows_are_listed_and_nothing_is_stored(self, world: World) -> None:
        data = jsonl([*examples(30), {"prompt": "secret"}, {"prompt": "Q?", "reference": 3}])
        async with world.client() as client:
            body = problem(await client.post("/calibrate", files=upload(data)), 422, "invalid_dev_data")
        assert body["total_bad"] == 2
        assert [(e["line"], e["field"]) for e in body["errors"]] == [(31, "reference"), (32, "reference")]
        assert all(e["loc"] and e["msg"] == e["reason"] for e in body["errors"])
        assert "secret" not in json.dumps(body)
        assert await world.jobs.store.latest() == []

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "empty"),
            (jsonl(examples()).decode().encode("utf-16"), "not UTF-8"),
            (b"question,answer\nQ?,a\n", "unknown: 'question'; known are"),
            (json.dumps(examples(), indent=2).encode(), "Convert the file with `jq"),
            (b"prompt,reference\nQ?,\"['a', 'b\"\n", "the first on line 2"),
            (jsonl(examples(9)), "at least 10"),
            (jsonl([*examples(), *examples(1)]), "bad"),
        ],
    )
    async def test_unusable_files_are_refused(self, world: World, data: bytes, message: str) -> None:
        async with world.client() as client:
            body = problem(await client.post("/calibrate", files=upload(data)), 422, "invalid_dev_data")
        assert message in body["detail"]
        assert await world.jobs.store.latest() == []

    async def test_mixed_rows_require_drawn_by(self, world: World) -> None:
        data = jsonl([*examples(), {"prompt": "Q?", "reference": "a", "samples": ["a", "b"]}])
        async with world.client() as client:
            problem(await client.post("/calibrate", files=upload(data)), 422, "invalid_dev_data")
            vouched = await client.post("/calibrate", files=upload(data), data={"drawn_by": "service"})
        assert vouched.status_code == 202

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"method": "platt"}, "method"),
            ({"num_samples": "1"}, "num_samples"),
            ({"num_samples": "many"}, "num_samples"),
            ({"activate": "now"}, "activate"),
            ({"seed": "-1"}, "seed"),
            ({"name": "x" * 201}, "name"),
            ({"methode": "both"}, "methode"),
            ({"source_label": "mine", "drawn_by": "service"}, "source_label"),
        ],
    )
    async def test_bad_options_are_named(self, world: World, options: dict[str, str], field: str) -> None:
        async with world.client() as client:
            response = await client.post("/calibrate", files=upload(jsonl(examples())), data=options)
        assert field in problem(response, 422, "invalid_request")["detail"]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"{", "JSON"),
            (b"[]", "object"),
            (b"{}", "examples"),
            (b'{"examples": 3}', "examples"),
            (b'{"examples": [], "seed": NaN}', "JSON"),
            (b'{"examples": [], "seed": "1"}', "seed"),
            (b'{"examples": ' + b"[" * 100_000, "recursion"),
            (b'{"examples": ["\xff"]}', "unicode"),
        ],
    )
    async def test_bad_json(self, world: World, body: bytes, message: str) -> None:
        async with world.client() as client:
            kind = {"Content-Type": "application/json"}
            response = await client.post("/calibrate", content=body, headers=kind)
        assert message in problem(response, 422, "invalid_request")["detail"]

    @pytest.mark.parametrize(
        ("sent", "message"),
        [
            ({"data": {"method": "both"}, "files": {"data": ("a", b"x")}}, "file: is missing"),
            ({"files": {"file": (None, "text")}}, ""),
            ({"files": [("file", ("a", b"x")), ("file", ("b", b"y"))]}, ""),
            ({"files": [("file", ("a", b"x")), ("data", ("b", b"y"))]}, "data: must not be a file"),
            ({"files": [("file", ("a", b"x")), ("activate", ("b", b"y"))]}, "activate: must not be a file"),
            ({"files": [("file", ("a", b"x")), ("name", (None, b"1")), ("name", (None, b"2"))]}, ""),
            ({"files": [("file", ("a", b"x")), ("name", (None, b"1" * 70_000))]}, ""),
            ({"content": b"--nonsense", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, ""),
            ({"content": b"", "headers": {"Content-Type": "multipart/form-data"}}, ""),
        ],
    )
    async def test_bad_forms(self, world: World, sent: dict[str, Any], message: str) -> None:
        async with world.client() as client:
            body = problem(await client.post("/calibrate", **sent), 422, "invalid_request")
        assert body["detail"].startswith(message)
        assert not message or body["errors"][0]["loc"] == ["body", message.partition(":")[0]]

    @pytest.mark.parametrize("kind", [None, "text/csv", "application/x-www-form-urlencoded"])
    async def test_other_media_types(self, world: World, kind: str | None) -> None:
        headers = {"Content-Type": kind} if kind else {}
        async with world.client() as client:
            response = await client.post("/calibrate", content=b"prompt,reference\n", headers=headers)
            problem(response, 415, "unsupported_media_type")
            packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            response = await client.post("/calibrate", content=b"", headers=packed)
            problem(response, 415, "unsupported_media_type")
