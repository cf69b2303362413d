"""Uploads and jobs: streamed, created once, and followed despite failures of the service."""

import io
import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import eigencal
from tests.client.script import JOB, QUICK, Script, problem
from tests.support.both_clients import Driver

ACCEPTED = httpx.Response(202, json=JOB)
ROW = {"prompt": "What?", "reference": "This \u2028 é"}
LINE = json.dumps(ROW, ensure_ascii=False).encode() + b"\n"


class Pipe(io.BytesIO):
    """Readable only once."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


@pytest.fixture(params=["path", "pipe", "rows"])
def dev(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(LINE * 3)
    kinds: dict[str, Any] = {
        "path": lambda: path,
        "pipe": lambda: Pipe(LINE * 3),
        "rows": lambda: iter([ROW] * 3),
    }
    return kinds[request.param]()


def test_retried_upload_is_complete_and_has_the_same_key(drive: Driver, dev: Any) -> None:
    script = Script(httpx.ReadError("broke off"), problem(503, "overloaded"), ACCEPTED)
    with drive("http://host", answer=script, **QUICK) as client:
        job = client.calibrate(dev, name="mine", seed=3, method=None)
        client.calibrate([ROW])
        client.calibrate([ROW], idempotency_key="mine")
    assert (job.id, job.state) == ("job_1", "queued")
    keys = [request.headers["idempotency-key"] for request in script.seen]
    assert len(set(keys[:3])) == 1 and keys[3] != keys[0] and keys[4] == "mine"
    for request in script.seen[:3]:
        assert request.content.count(LINE) == 3
        assert b'name="name"\r\n\r\nmine' in request.content and b'name="seed"\r\n\r\n3' in request.content
        assert b"method" not in request.content and b'name="file"; filename=' in request.content


# Waiting


def looks(*states: dict[str, Any]) -> Script:
    return Script(*(httpx.Response(200, json=JOB | state) for state in states))


def test_errors_that_end_waiting(drive: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(problem(404, "not_found", retryable=False))
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.NotFoundError):
        client.wait("job_1")
    assert len(script.seen) == 1
    with drive("http://host", answer=looks({"state": "running"})) as client:
        with pytest.raises(eigencal.APITimeoutError, match="it goes on"):
            client.wait("job_1", timeout_s=0.3)
    monkeypatch.setattr("eigencal.resources.jobs.PATIENCE_S", 0.6)
    script = Script(httpx.ConnectError("gone"))
    with drive("http://host", answer=script) as client, pytest.raises(eigencal.APIConnectionError):
        client.wait("job_1")
    assert len(script.seen) >= 2


def test_failed_or_cancelled_job_raises(drive: Driver) -> None:
    failed = {"state": "failed", "error": {"code": "llm_error", "detail": "the LLM refused"}}
    with drive("http://host", answer=looks({"state": "running"}, failed)) as client:
        with pytest.raises(eigencal.JobEndedError, match="the LLM refused") as caught:
            client.wait("job_1")
    assert caught.value.code == "llm_error"
    with drive("http://host", answer=looks({"state": "cancelled"})) as client:
        with pytest.raises(eigencal.JobEndedError) as cancelled:
            client.wait("job_1")
    assert cancelled.value.code == "job_cancelled"


def test_progress_is_reported_on_change_and_waiting_survives_an_outage(drive: Driver) -> None:
    running = httpx.Response(200, json=JOB | {"state": "running", "done": 1})
    done = httpx.Response(200, json=JOB | {"state": "succeeded", "calibration_id": "cal_1"})
    script = Script(running, running, httpx.ReadError("broke off"), problem(503, "starting"), done)
    reports: list[Any] = []
    with drive("http://host", answer=script) as client:
        job = client.wait("job_1", progress=lambda *at: reports.append(at))
    assert (job.calibration_id, len(script.seen)) == ("cal_1", 5)
    assert reports == [(1, 0, "running"), (0, 0, "succeeded")]
