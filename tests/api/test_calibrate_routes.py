"""POST /calibrate, jobs and calibrations, against the ports in memory."""

import asyncio
import gzip
import io
import json
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import FastAPI

from service.api.http.auth import Keys
from service.api.http.deps import Pages, Services
from service.api.http.headers import prefers_html
from service.api.http.middleware import RequestContext
from service.api.http.openapi import Problem, document
from service.api.http.problems import install
from service.api.routes import calibrations, jobs
from service.api.routes.calibration_schemas import CalibrationOut
from service.api.routes.job_schemas import CalibrateForm, CalibrateRequest, JobOut
from service.domain.devdata.bytes import UploadLimits
from service.domain.devdata.reader import read_file
from service.domain.jobs.model import CalibrateOptions, JobError
from service.domain.models import Sampling
from service.domain.scoring.kept import KeptScores
from service.domain.scoring.scorer import Scorer
from service.domain.serving import Serving
from tests.support.calibrations import calibration, rows
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.kept import MemoryKept
from tests.support.live import served
from tests.support.memory_store import MemoryCalibrations, MemoryJobs

pytestmark = pytest.mark.anyio
OPTIONS = CalibrateOptions()
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
NO_JOB = "job_" + "0" * 26
NO_CALIBRATION = "cal_" + "0" * 26


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    """An application with the ports in memory."""

    def __init__(self, **limits: int) -> None:
        self.jobs, self.calibrations = MemoryJobs(), MemoryCalibrations()
        self.app = FastAPI(title="t", version="0")
        self.app.state.keys = Keys()
        self.app.state.services = Services(
            Scorer(FakeLLM(), FakeEmbedder()),
            Serving(10, Sampling(), Sampling()),
            self.jobs,
            self.calibrations,
            KeptScores(MemoryKept(), keep_s=0, max_scores=1),
            limits=UploadLimits(**limits),
            pages=Pages(
                report=lambda report: f"<html>{report['risk']}</html>",
                calibrations=lambda found: f"<html>{len(found)} calibrations</html>",
            ),
        )
        self.app.include_router(jobs.router)
        self.app.include_router(calibrations.router)
        install(self.app)
        self.app.add_middleware(RequestContext)

    @asynccontextmanager
    async def client(
        self, peer: str = "127.0.0.1", host: str = "127.0.0.1", **options: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=(peer, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", **options) as client:
            yield client


@pytest.fixture
def world() -> World:
    return World()


def examples(count: int = 40, **more: Any) -> list[dict[str, Any]]:
    return [{"id": i, "prompt": f"Q{i}?", "reference": "yes", **more} for i in range(count)]


def jsonl(found: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in found)


def upload(data: bytes, name: str = "dev.jsonl") -> dict[str, Any]:
    return {"file": (name, data)}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["code"] == code
    return body


class TestPosting:
    @pytest.mark.parametrize("packed", [False, True])
    async def test_a_file_makes_a_job(self, world: World, packed: bool) -> None:
        data = jsonl(examples())
        async with world.client() as client:
            sent = upload(gzip.compress(data) if packed else data)
            options = {"method": "both", "num_samples": "10", "activate": "never", "name": "n", "seed": ""}
            response = await client.post("/calibrate", files=sent, data=options)
        assert response.status_code == 202
        job = JobOut.model_validate_json(response.content)
        assert response.headers["location"] == f"/jobs/{job.id}"
        assert (job.state, job.kind, job.name, job.total) == ("queued", "calibrate", "n", 40)
        assert world.jobs.rows_of(job.id) == list(read_file(io.BytesIO(data)).rows())

    async def test_the_spooled_file_is_closed_afterwards(self, world: World, spooled: list[Any]) -> None:
        async with world.client() as client:
            for count in (1, 40):
                data = jsonl(examples(count, answer="x" * 60_000))
                await client.post("/calibrate", files=upload(data))
        assert [(file.rolled, file.closed) for file in spooled] == [(False, True), (True, True)]

    async def test_csv_makes_the_same_job(self, world: World) -> None:
        lines = "".join(f'{i},"Q{i}?",yes\n' for i in range(40))
        async with world.client() as client:
            response = await client.post(
                "/calibrate", files=upload(f"id,prompt,reference\n{lines}".encode(), "dev.csv")
            )
        kept = world.jobs.rows_of(response.json()["id"])
        assert [(row.id, row.prompt) for row in kept] == [(str(i), f"Q{i}?") for i in range(40)]

    async def test_json_makes_a_job(self, world: World) -> None:
        async with world.client() as client:
            body = {"examples": examples(samples=["a", "b"]), "source_label": "mine", "seed": 3}
            response = await client.post("/calibrate", json=body)
        assert response.status_code == 202
        assert world.jobs.rows_of(response.json()["id"])[0].samples == ("a", "b")

    async def test_a_key_gives_the_same_job_or_a_conflict(self, world: World) -> None:
        key = {"Idempotency-Key": "k1"}
        async with world.client(headers=key) as client:
            first = await client.post("/calibrate", files=upload(jsonl(examples())))
            again = await client.post("/calibrate", files=upload(jsonl(examples())))
            assert (first.json()["id"], again.status_code) == (again.json()["id"], 202)
            for files, data in ((examples(41), {}), (examples(), {"seed": "1"})):
                other = await client.post("/calibrate", files=upload(jsonl(files)), data=data)
                problem(other, 409, "conflict")

    async def test_a_key_must_be_sane(self, world: World) -> None:
        async with world.client() as client:
            for key in ("", "a b", "x" * 201):
                response = await client.post("/calibrate", json={}, headers={"Idempotency-Key": key})
                problem(response, 422, "invalid_request")


class TestRefusing:
    async def test_bad_rows_are_listed_and_nothing_is_stored(self, world: World) -> None:
        data = jsonl([*examples(30), {"prompt": "secret"}, {"prompt": "Q?", "reference": 3}])
        async with world.client() as client:
            body = problem(await client.post("/calibrate", files=upload(data)), 422, "invalid_dev_data")
        assert body["total_bad"] == 2
        assert [(e["line"], e["field"]) for e in body["errors"]] == [(31, "reference"), (32, "reference")]
        assert all(e["loc"] and e["msg"] == e["reason"] for e in body["errors"])
        assert "secret" not in json.dumps(body)
        assert await world.jobs.latest() == []

    async def test_bad_examples_are_listed(self, world: World) -> None:
        async with world.client() as client:
            response = await client.post("/calibrate", json={"examples": [*examples(), {}]})
        assert problem(response, 422, "invalid_dev_data")["errors"][0]["loc"] == [
            "body",
            "examples",
            41,
            "prompt",
        ]

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"", "empty"),
            (bytes(range(256)) * 9, "binary"),
            (jsonl(examples()).decode().encode("utf-16"), "UTF-16"),
            (b"question,answer\nQ?,a\n", "unknown columns"),
            (jsonl(examples(29)), "at least 30"),
            (jsonl([*examples(), *examples(1)]), "bad"),
        ],
    )
    async def test_files_that_cannot_be_used(self, world: World, data: bytes, said: str) -> None:
        async with world.client() as client:
            body = problem(await client.post("/calibrate", files=upload(data)), 422, "invalid_dev_data")
        assert said in body["detail"]
        assert await world.jobs.latest() == []

    async def test_mixed_rows_need_the_operators_word(self, world: World) -> None:
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
        ("body", "said"),
        [
            (b"{", "JSON"),
            (b"[]", "object"),
            (b"{}", "examples"),
            (b'{"examples": 3}', "examples"),
            (b'{"examples": [], "seed": NaN}', "NaN"),
            (b'{"examples": [], "seed": "1"}', "seed"),
            (b'{"examples": ' + b"[" * 100_000, "nested"),
            (b'{"examples": ["\xff"]}', "UTF-8"),
        ],
    )
    async def test_bad_json(self, world: World, body: bytes, said: str) -> None:
        async with world.client() as client:
            kind = {"Content-Type": "application/json"}
            response = await client.post("/calibrate", content=body, headers=kind)
        assert said in problem(response, 422, "invalid_request")["detail"]

    @pytest.mark.parametrize(
        "sent",
        [
            {"data": {"method": "both"}, "files": {"data": ("a", b"x")}},
            {"files": {"file": (None, "text")}},
            {"files": [("file", ("a", b"x")), ("file", ("b", b"y"))]},
            {"files": [("file", ("a", b"x")), ("name", (None, b"1")), ("name", (None, b"2"))]},
            {"files": [("file", ("a", b"x")), ("name", (None, b"1" * 70_000))]},
            {"content": b"--nonsense", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
            {"content": b"", "headers": {"Content-Type": "multipart/form-data"}},
        ],
    )
    async def test_bad_forms(self, world: World, sent: dict[str, Any]) -> None:
        async with world.client() as client:
            problem(await client.post("/calibrate", **sent), 422, "invalid_request")

    @pytest.mark.parametrize("kind", [None, "text/csv", "application/x-www-form-urlencoded"])
    async def test_other_media_types(self, world: World, kind: str | None) -> None:
        headers = {"Content-Type": kind} if kind else {}
        async with world.client() as client:
            response = await client.post("/calibrate", content=b"prompt,reference\n", headers=headers)
            problem(response, 415, "unsupported_media_type")
            packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            response = await client.post("/calibrate", content=b"", headers=packed)
            problem(response, 415, "unsupported_media_type")


class Endless(httpx.AsyncByteStream):
    """A multipart body of so many MiB, made while it is sent."""

    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'

    def __init__(self, mebibytes: int) -> None:
        self.mebibytes, self.sent = mebibytes, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.head
        for _ in range(self.mebibytes * 16):
            self.sent += 1 << 16
            yield b"x" * (1 << 16)


class Recorded(tempfile.SpooledTemporaryFile[bytes]):
    """A spooled file that remembers whether it went to disk. There it has no name: closed, it is gone."""

    made: ClassVar[list["Recorded"]] = []
    rolled = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made.append(self)

    def rollover(self) -> None:
        super().rollover()
        self.rolled = True


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", Recorded)
    return Recorded.made


MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}


class TestSize:
    async def test_a_declared_size_over_the_limit_is_refused_unread(self) -> None:
        body = Endless(1)
        async with World(max_bytes=1 << 20).client() as client:
            headers = {**MULTIPART, "Content-Length": str(1 << 30), "Expect": "100-continue"}
            problem(await client.post("/calibrate", content=body, headers=headers), 413, "body_too_large")
        assert body.sent == 0

    async def test_a_stream_over_the_limit_is_refused_in_flat_memory_and_leaves_no_file(
        self, spooled: list[Any]
    ) -> None:
        world = World(max_bytes=8 << 20)
        async with world.client() as client:
            tracemalloc.start()
            try:
                response = await client.post("/calibrate", content=Endless(64), headers=MULTIPART)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        problem(response, 413, "body_too_large")
        assert peak < 4 << 20
        assert [(file.rolled, file.closed) for file in spooled] == [(True, True)]
        assert await world.jobs.latest() == []

    async def test_a_large_file_is_taken_in_flat_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = json.dumps({"prompt": "x" * 60_000, "reference": "a"}).encode() + b"\n"

        async def body() -> AsyncIterator[bytes]:
            yield Endless.head
            for _ in range(500):
                yield row
            yield b"\r\n--b--\r\n"

        async def forget(coming: AsyncIterator[Any], options: Any, **_: Any) -> Any:
            count = 0
            async for _row in coming:
                count += 1
            return await submit(rows(), options.__class__(name=str(count)))

        world = World()
        submit = world.jobs.submit
        monkeypatch.setattr(world.jobs, "submit", forget)
        async with world.client() as client:
            tracemalloc.start()
            try:
                response = await client.post("/calibrate", content=body(), headers=MULTIPART)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert (response.status_code, response.json()["name"]) == (202, "500")
        assert peak < 16 << 20  # of 30 MB; a hundred rows of 60 kB are held at a time

    async def test_a_gzip_bomb(self) -> None:
        async with World(max_bytes=4 << 20).client() as client:
            bomb = gzip.compress(b"{" + b" " * (64 << 20), 1)
            body = problem(await client.post("/calibrate", files=upload(bomb)), 413, "body_too_large")
        assert body["limit_bytes"] == 4 << 20

    async def test_too_many_rows(self) -> None:
        async with World(max_rows=50).client() as client:
            response = await client.post("/calibrate", files=upload(jsonl(examples(51))))
        assert problem(response, 413, "body_too_large")["limit_rows"] == 50

    async def test_json_over_the_limit(self) -> None:
        async with World(max_bytes=1000).client() as client:
            response = await client.post("/calibrate", json={"examples": examples()})
        problem(response, 413, "body_too_large")

    async def test_a_sender_over_a_socket_sees_the_refusal(self) -> None:
        async with served(World(max_bytes=1 << 20).app) as port, httpx.AsyncClient(timeout=60) as client:
            for headers in (MULTIPART, {**MULTIPART, "Content-Length": str(len(Endless.head) + (32 << 20))}):
                url = f"http://127.0.0.1:{port}/calibrate"
                response = await client.post(url, content=Endless(32), headers=headers)
                problem(response, 413, "body_too_large")

    async def test_a_sender_who_goes_away_leaves_nothing(self, spooled: list[Any]) -> None:
        world = World()
        async with served(world.app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = "POST /calibrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n"
            kind = f"Content-Type: {MULTIPART['Content-Type']}\r\n\r\n"
            writer.write((head + kind).encode() + Endless.head + b"x" * (4 << 20))
            await writer.drain()
            writer.close()
            async with asyncio.timeout(60):
                while not (spooled and spooled[0].closed):
                    await asyncio.sleep(0.005)
        assert await world.jobs.latest() == []
        assert [(file.rolled, file.closed) for file in spooled] == [(True, True)]


class TestJobs:
    async def test_list_and_one(self, world: World) -> None:
        async with world.client() as client:
            first, second = [(await world.jobs.submit(rows(), OPTIONS))[0] for _ in range(2)]
            listed = (await client.get("/jobs")).json()
            assert [job["id"] for job in listed] == [second.id, first.id]
            assert len((await client.get("/jobs?limit=1")).json()) == 1
            problem(await client.get("/jobs?limit=0"), 422, "invalid_request")
            error = JobError("llm_unavailable", "The LLM server cannot be reached.")
            await world.jobs.change(first.id, state="failed", error=error)
            body = (await client.get(f"/jobs/{first.id}")).json()
            assert body["error"] == {"code": error.code, "detail": error.detail}

    @pytest.mark.parametrize("job_id", [NO_JOB, "job_none", "%00", "a%2Fb", "é"])
    @pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("DELETE", ""), ("GET", "/events")])
    async def test_unknown(self, world: World, job_id: str, method: str, rest: str) -> None:
        async with world.client() as client:
            problem(await client.request(method, f"/jobs/{job_id}{rest}"), 404, "not_found")

    async def test_cancel(self, world: World) -> None:
        async with world.client() as client:
            job, _ = await world.jobs.submit(rows(), OPTIONS)
            for _ in range(2):
                response = await client.delete(f"/jobs/{job.id}")
                assert (response.status_code, response.json()["state"]) == (200, "cancelled")
            done, _ = await world.jobs.submit(rows(), OPTIONS)
            await world.jobs.change(done.id, state="succeeded")
            problem(await client.delete(f"/jobs/{done.id}"), 409, "conflict")

    async def test_events_end_with_the_job(self, world: World) -> None:
        job, _ = await world.jobs.submit(rows(), OPTIONS)
        async with served(world.app) as port, httpx.AsyncClient(timeout=60) as client:
            seen = []
            async with client.stream("GET", f"http://127.0.0.1:{port}/jobs/{job.id}/events") as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        seen.append(json.loads(line[6:]))
                        await self._go_on(world, job.id, len(seen))
                    elif line:
                        assert line == "event: job"
        assert [(event["state"], event["done"]) for event in seen] == [
            ("queued", 0),
            ("running", 7),
            ("succeeded", 7),
        ]

    async def _go_on(self, world: World, job_id: str, step: int) -> None:
        if step == 1:
            await world.jobs.change(job_id, state="running", stage="sampling", done=7)
        elif step == 2:
            await world.jobs.change(job_id, state="succeeded")


class TestCalibrations:
    async def test_list_active_and_back(self, world: World) -> None:
        older, newer = calibration(), calibration()
        async with world.client() as client:
            for each in (older, newer):
                await world.calibrations.add(each, {})
            assert [c["id"] for c in (await client.get("/calibrations")).json()] == [newer.id, older.id]
            assert (await client.get("/calibrations/active")).json() == []
            for each in (newer, older):
                response = await client.post(f"/calibrations/{each.id}/activate")
                assert (response.status_code, response.json()["active"]) == (200, True)
                active = (await client.get("/calibrations/active")).json()
                assert [c["id"] for c in active] == [each.id]

    async def test_one(self, world: World) -> None:
        made = calibration()
        await world.calibrations.add(made, {}, num_rows=7)
        async with world.client() as client:
            body = (await client.get(f"/calibrations/{made.id}")).json()
        seen = CalibrationOut.model_validate(body)
        assert [p.num_samples for p in seen.parameters] == [2, 3, 4, 5]
        assert (seen.temperature, seen.depolarization) == (seen.parameters[-1].temperature, 0.5)
        assert body["fingerprint"] == made.fingerprint.parts()
        assert (seen.num_rows, seen.active, seen.data_kept, seen.name) == (7, False, False, made.name)

    @pytest.mark.parametrize("calibration_id", [NO_CALIBRATION, "cal_none", "%00"])
    @pytest.mark.parametrize(
        ("method", "rest"),
        [("GET", ""), ("POST", "/activate"), ("GET", "/data"), ("DELETE", "/data"), ("GET", "/report")],
    )
    async def test_unknown(self, world: World, calibration_id: str, method: str, rest: str) -> None:
        async with world.client() as client:
            response = await client.request(method, f"/calibrations/{calibration_id}{rest}")
            problem(response, 404, "not_found")

    @pytest.mark.parametrize("logprobs", [None, (-1.25, 0.005)])
    async def test_data_can_be_posted_again_and_forgotten(
        self, world: World, logprobs: tuple[float, ...] | None
    ) -> None:
        made, kept = calibration(), list(rows(samples=("a", ""), logprobs=logprobs))
        await world.calibrations.add(made, {}, rows=kept)
        path = f"/calibrations/{made.id}/data"
        async with world.client() as client:
            exported = await client.get(path)
            assert exported.headers["content-type"] == "application/x-ndjson"
            assert f"{made.id}.jsonl" in exported.headers["content-disposition"]
            again = await client.post("/calibrate", files=upload(exported.content))
            assert world.jobs.rows_of(again.json()["id"]) == kept
            assert (await client.delete(path)).status_code == 204
            assert (await client.delete(path)).status_code == 204
            problem(await client.get(path), 404, "not_found")
            assert (await client.get(f"/calibrations/{made.id}")).json()["data_kept"] is False

    async def test_an_export_cut_short_by_a_deletion_is_no_whole_answer(self, world: World) -> None:
        made = calibration()
        await world.calibrations.add(made, {}, rows=list(rows(samples=("a", "b"))), num_rows=41)
        async with (
            served(world.app) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(f"/calibrations/{made.id}/data")

    async def test_the_report_is_json_or_a_page(self, world: World) -> None:
        made = calibration()
        await world.calibrations.add(made, {"risk": 1.5, "auroc": None})
        path = f"/calibrations/{made.id}/report"
        async with world.client() as client:
            told = await client.get(path)
            now = {"active": False, "activated_at": None}
            assert told.json() == {"risk": 1.5, "auroc": None, "now": now}
            assert told.headers["vary"] == "Accept"
            page = await client.get(path, headers={"Accept": "text/html,application/xml;q=0.9,*/*;q=0.8"})
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert page.text == "<html>1.5</html>"

    async def test_the_report_says_what_is_active_when_it_is_asked(self, world: World) -> None:
        made, other = calibration(), calibration()
        for one in (made, other):
            await world.calibrations.add(one, {"risk": 1.5, "decision": {"activated": False}})
        async with world.client() as client:
            await client.post(f"/calibrations/{made.id}/activate")
            now = (await client.get(f"/calibrations/{made.id}/report")).json()["now"]
            assert now["active"]
            assert now["activated_at"]
            await client.post(f"/calibrations/{other.id}/activate")
            told = (await client.get(f"/calibrations/{made.id}/report")).json()
        assert told["now"] == {"active": False, "activated_at": None}
        assert told["decision"] == {"activated": False}  # then, as it was

    async def test_links_lead_to_what_they_name(self, world: World) -> None:
        made = calibration()
        await world.calibrations.add(made, {"risk": 1.5})
        async with world.client() as client:
            [told] = (await client.get("/calibrations")).json()
            assert set(told["links"]) == {"self", "report", "activate"}  # no rows are kept
            assert (await client.get(told["links"]["self"])).json() == told
            assert (await client.get(told["links"]["report"])).json()["risk"] == 1.5
            assert (await client.post(told["links"]["activate"])).json()["active"]

    async def test_a_browser_gets_a_page_and_a_program_json(self, world: World) -> None:
        await world.calibrations.add(calibration(), {})
        async with world.client() as client:
            page = await client.get("/calibrations", headers={"Accept": BROWSER})
            plain = [
                await client.get("/calibrations", headers={"Accept": a}) for a in ("*/*", "application/json")
            ]
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.text == "<html>1 calibrations</html>"
        assert {one.headers["vary"] for one in (page, *plain)} == {"Accept"}
        assert all(
            one.headers["content-type"] == "application/json" and len(one.json()) == 1 for one in plain
        )


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("*/*", False),
        ("", False),
        ("text/html", True),
        ("application/json", False),
        ("text/html, application/json", False),
        ("text/html;q=0.5, application/json;q=0.4", True),
        ("text/*", True),
        ("text/*;q=0.5, */*;q=0.9", False),
        ("TEXT/HTML;q=x", False),
    ],
)
async def test_accept(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html


EVERY_ROUTE = [
    ("POST", "/calibrate"),
    ("GET", "/jobs"),
    ("GET", f"/jobs/{NO_JOB}"),
    ("DELETE", f"/jobs/{NO_JOB}"),
    ("GET", f"/jobs/{NO_JOB}/events"),
    ("GET", "/calibrations"),
    ("GET", "/calibrations/active"),
    ("GET", f"/calibrations/{NO_CALIBRATION}"),
    ("POST", f"/calibrations/{NO_CALIBRATION}/activate"),
    ("GET", f"/calibrations/{NO_CALIBRATION}/data"),
    ("DELETE", f"/calibrations/{NO_CALIBRATION}/data"),
    ("GET", f"/calibrations/{NO_CALIBRATION}/report"),
]


class TestKeys:
    @pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
    async def test_every_route_needs_the_admin_key_once_it_is_set(
        self, world: World, method: str, path: str
    ) -> None:
        world.app.state.keys = Keys(admin="schlüssel", score="s")
        async with world.client() as client:
            missing = await client.request(method, path)
            problem(missing, 401, "missing_key")
            assert missing.headers["www-authenticate"] == "Bearer"
            for sent in ("Basic eDp5", "Bearer", "Bearer  "):
                problem(
                    await client.request(method, path, headers={"Authorization": sent}), 401, "missing_key"
                )
            bad = await client.request(method, path, headers={"Authorization": "Bearer schlussel"})
            problem(bad, 401, "bad_key")
            scored = await client.request(method, path, headers={"Authorization": "Bearer s"})
            problem(scored, 403, "scope_required")
            key = {"Authorization": "bearer schlüssel".encode()}
            assert (await client.request(method, path, headers=key)).status_code not in (401, 403)

    @pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
    async def test_without_a_key_every_route_is_for_this_machine_alone(
        self, world: World, method: str, path: str
    ) -> None:
        async with world.client(peer="192.0.2.1") as client:
            problem(await client.request(method, path), 403, "scope_required")
        async with world.client() as client:
            assert (await client.request(method, path)).status_code not in (401, 403)

    @pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
    @pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST"])
    async def test_loopback_by_any_name(self, world: World, peer: str, host: str) -> None:
        async with world.client(peer=peer) as client:
            assert (await client.get("/jobs", headers={"Host": host})).status_code == 200
            own = {"Host": host, "Origin": f"http://{host}"}
            assert (await client.get("/jobs", headers=own)).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "attacker.example"},
            {"Host": ""},
            {"Host": "127.0.0.1.attacker.example"},
            {"Origin": "https://attacker.example"},
            {"Origin": "null"},
            {"X-Forwarded-For": "192.0.2.1"},
            {"Forwarded": "for=192.0.2.1"},
            {"X-Real-IP": "127.0.0.1"},
            {"X-Forwarded-Host": "service.example"},
            {"Via": "1.1 proxy"},
        ],
    )
    async def test_a_proxy_or_a_browser_page_on_this_machine_is_no_caller_from_it(
        self, world: World, headers: dict[str, str]
    ) -> None:
        async with world.client() as client:
            problem(await client.get("/jobs", headers=headers), 403, "scope_required")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/calibrate", "POST"),
        ("/jobs", "GET"),
        (f"/jobs/{NO_JOB}", "DELETE, GET"),
        (f"/calibrations/{NO_CALIBRATION}/data", "DELETE, GET"),
    ],
)
async def test_another_method_is_told_all_that_are_allowed(world: World, path: str, allow: str) -> None:
    async with world.client() as client:
        response = await client.put(path)
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allow


async def test_the_document_names_every_schema_it_uses(world: World) -> None:
    made = document(world.app, [CalibrateRequest, CalibrateForm, Problem])
    text = json.dumps(made)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert {"Problem", "CalibrateRequest"} <= used <= made["components"]["schemas"].keys()
    assert "bearer" in made["components"]["securitySchemes"]
    operations = [op for path in made["paths"].values() for op in path.values()]
    assert len(operations) > 5
    assert all(
        op["security"] == [{}, {"bearer": []}] and {"401", "403", "503"} <= set(op["responses"])
        for op in operations
    )
    body = made["paths"]["/calibrate"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}


async def test_examples_fit_their_schemas() -> None:
    from service.api.routes.calibration_schemas import CALIBRATION
    from service.api.routes.job_schemas import JOB

    assert JobOut.model_validate(JOB).model_dump(mode="json") == JOB
    assert CalibrationOut.model_validate(CALIBRATION).model_dump(mode="json") == CALIBRATION
