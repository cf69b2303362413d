"""Uploads and jobs: streamed, made once, and followed over whatever happens to the service."""

import asyncio
import io
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

import eigencal
from eigencal._sending.following import Following, ended_well
from tests.client.test_retries import Script, problem
from tests.support.both_clients import Driver
from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.services import Hold, asked, cities, llm_and_embedder, questions, service, until

JOB = {
    "id": "job_1", "kind": "calibrate", "state": "queued", "created_at": "2026-01-01T00:00:00Z", "name": "",
    "stage": None, "done": 0, "total": 0, "eta_s": None, "note": "", "error": None, "calibration_id": None,
    "activated": None, "decision": None, "refused_rows": 0,
    "started_at": None, "finished_at": None, "links": {},
}  # fmt: skip
ACCEPTED = httpx.Response(202, json=JOB)
QUICK = {"retries": 3, "longest_wait_s": 0.01}
ROW = {"prompt": "What?", "reference": "This \u2028 é"}
LINE = json.dumps(ROW, ensure_ascii=False).encode() + b"\n"


class Unseekable(io.BytesIO):
    """A pipe: readable once."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


def skipped(data: bytes) -> io.BytesIO:
    file = io.BytesIO(b"not this\n" + data)
    file.seek(len(b"not this\n"))
    return file


@pytest.fixture(params=["path", "text path", "file", "file from here on", "text file", "pipe", "rows"])
def dev(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(LINE * 3)
    kinds: dict[str, Any] = {
        "path": lambda: path,
        "text path": lambda: str(path),
        "file": lambda: io.BytesIO(LINE * 3),
        "file from here on": lambda: skipped(LINE * 3),
        "text file": lambda: io.StringIO((LINE * 3).decode()),
        "pipe": lambda: Unseekable(LINE * 3),
        "rows": lambda: iter([ROW] * 3),
    }
    return kinds[request.param]()


def test_all_of_it_is_sent_again_under_the_same_key(drive: Driver, dev: Any) -> None:
    script = Script(httpx.ReadError("broke off"), problem(503, "overloaded"), ACCEPTED)
    with drive("http://host", answer=script, **QUICK) as client:
        job = client.calibrate(dev, name="mine", seed=3, method=None)
        client.calibrate([ROW])
    assert (job.id, job.state) == ("job_1", "queued")
    keys = [request.headers["idempotency-key"] for request in script.seen]
    assert len(set(keys[:3])) == 1 and keys[3] != keys[0]
    for request in script.seen[:3]:
        assert request.content.count(LINE) == 3 and b"not this" not in request.content
        assert b'name="name"\r\n\r\nmine' in request.content and b'name="seed"\r\n\r\n3' in request.content
        assert b"method" not in request.content and b'name="file"; filename=' in request.content


def test_ones_own_key_is_sent(drive: Driver) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client:
        client.evaluate([ROW], [ROW], idempotency_key="mine")
    [request] = script.seen
    assert request.headers["idempotency-key"] == "mine"
    assert b'name="dev"' in request.content and b'name="test"' in request.content


@pytest.mark.parametrize("bad", ["nowhere.jsonl", [7]])
def test_what_cannot_be_read_is_not_sent(drive: Driver, bad: Any) -> None:
    script = Script(ACCEPTED)
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.InvalidSetup):
        client.calibrate(bad)
    assert script.seen == []


def test_a_large_file_is_never_held(drive: Driver, tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "dev.jsonl"
    with path.open("wb") as file:
        file.truncate(size)
    read = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while read < length:
            read += len(await reader.read(1 << 16))
        body = json.dumps(JOB).encode()
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async def listening() -> AsyncIterator[int]:
        async with await asyncio.start_server(swallow, "127.0.0.1") as server:
            yield server.sockets[0].getsockname()[1]

    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(asynccontextmanager(listening)()) as port:
            with drive(f"http://127.0.0.1:{port}") as client:
                tracemalloc.start()
                try:
                    assert client.calibrate(path).id == "job_1"
                    peak = tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
    assert read > size
    assert peak < size / 8


# A service that is killed


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_a_job_is_waited_for_over_a_kill_9(drive: Driver, store: str, tmp_path: Path) -> None:
    hold = Hold(after=10)
    server = OpenAIServer(default=llm_and_embedder(cities, hold=hold))
    with serving_in_thread(server):
        with service(store, server, tmp_path) as first:
            url = str(first.http.base_url).rstrip("/")
            with drive(url) as client:
                job = client.calibrate(questions(40), name="mine")
                events: Iterator[Any] = client.events(job.id, patience_s=200)
                seen = [next(events)]
                until(lambda: len(asked(server)) > hold.after)
                first.process.kill()
                first.process.wait()
                hold.go_on()
                with service(store, server, tmp_path, port=url.rsplit(":", 1)[1]):
                    seen += events
                    assert [one.id for one in client.jobs()] == [job.id]
                    assert job.wait() == seen[-1]
    assert (seen[-1].state, seen[-1].calibration_id is not None) == ("succeeded", True)
    assert {one.id for one in seen} == {job.id}


def test_a_service_that_dies_after_it_accepted_has_one_job(drive: Driver, store: str, tmp_path: Path) -> None:
    """The answer to the first upload never comes: it was accepted, and then the connection broke."""
    server = OpenAIServer(default=llm_and_embedder(cities))
    with serving_in_thread(server), service(store, server, tmp_path) as only:
        inner, lost = httpx.Client(), []

        def answer(request: httpx.Request) -> httpx.Response:
            hop = ("host", "content-length", "transfer-encoding")
            sent = {name: value for name, value in request.headers.items() if name not in hop}
            found = inner.request(request.method, request.url, headers=sent, content=request.content)
            if not lost:
                lost.append(found.json()["id"])
                raise httpx.RemoteProtocolError("the service died")
            return httpx.Response(found.status_code, headers=found.headers, content=found.content)

        with inner, drive(str(only.http.base_url), answer=answer, **QUICK) as client:
            job = client.calibrate(questions(30))
            assert [job.id] == lost == [one.id for one in client.jobs()]
            client.cancel(job.id)


# Following, on a clock of its own


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_patience_begins_when_the_service_goes() -> None:
    clock, gone = Clock(), eigencal.ConnectionFailed("gone")
    following = Following("job_1", None, 60.0, clock)
    clock.now = 1000.0
    waits = [following.wait_after(gone) for _ in range(7)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    clock.now += 59
    following.wait_after(gone)
    following.heard()
    clock.now += 59
    assert following.wait_after(gone) == 0.25
    clock.now += 61
    with pytest.raises(eigencal.ConnectionFailed):
        following.wait_after(gone)


def test_a_wait_ends_with_its_time_and_what_is_wrong_ends_it_at_once() -> None:
    clock = Clock()
    following = Following("job_1", 30.0, 60.0, clock)
    assert following.silence_s() == 30.0
    with pytest.raises(eigencal.NotFound):
        following.wait_after(eigencal.NotFound("no such job", status=404))
    clock.now = 30.0
    with pytest.raises(eigencal.TimedOut, match="it goes on"):
        following.heard()


def events(*states: dict[str, Any]) -> bytes:
    told = [f": ping\r\n\r\nevent: job\r\ndata: {json.dumps(JOB | state)}\r\n\r\n" for state in states]
    return "".join(told).encode()


def test_an_end_without_a_result_raises(drive: Driver) -> None:
    error = {"code": "llm_error", "detail": "the LLM refused"}
    failed = events({"state": "running"}, {"state": "failed", "error": error})
    with drive("http://host", answer=Script(httpx.Response(200, content=failed))) as client:
        with pytest.raises(eigencal.JobFailed, match="the LLM refused") as caught:
            client.wait("job_1")
    assert (caught.value.code, caught.value.job_id) == ("llm_error", "job_1")
    with pytest.raises(eigencal.JobCancelled):
        ended_well(eigencal.Job.model_validate(JOB | {"state": "cancelled"}))


def test_events_go_on_where_they_broke_off(drive: Driver) -> None:
    parts = [
        events({"state": "running", "done": 1}),
        events({"state": "succeeded", "calibration_id": "cal_1"}),
    ]
    script = Script(*(httpx.Response(200, content=part) for part in parts))
    told: list[Any] = []
    with drive("http://host", answer=script) as client:
        done = client.wait("job_1", progress=lambda *at: told.append(at))
    assert (done.calibration_id, len(script.seen)) == ("cal_1", 2)
    assert told == [(1, 0, "running"), (0, 0, "succeeded")]


@pytest.mark.parametrize("body", [b"data: {}\n\n", b"data: <html>\n\n"])
def test_an_event_that_is_none_is_an_error(drive: Driver, body: bytes) -> None:
    with drive("http://host", answer=Script(httpx.Response(200, content=body))) as client:
        with pytest.raises(eigencal.UnexpectedAnswer):
            client.wait("job_1")
