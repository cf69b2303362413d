"""Calibrating end to end with a real vLLM server, with three kills. `make test-vllm`."""

import asyncio
import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from benchmarks.processes import PYTHON, ROOT, free_port, wait_for
from tests.e2e.conftest import VllmServer
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread

pytestmark = pytest.mark.vllm
QUESTIONS, SAMPLES, KILLS = 40, 10, 3
BEYOND = 4  # calls that a kill may interrupt


def questions() -> list[dict]:
    """Return TriviaQA development questions if available, else our own everyday questions."""
    shared = ROOT.parent / "shared" / "data" / "triviaqa_dev.jsonl"
    own = ROOT / "demo" / "everyday_questions.jsonl"
    rows = [json.loads(line) for line in (shared if shared.exists() else own).read_text().splitlines()]
    return [{"prompt": row["prompt"], "reference": row["reference"]} for row in rows[:QUESTIONS]]


class Service:
    """Our service as a process that can be killed; data folder and port stay."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "service.log"
        self._environment = {
            **environment,
            "EIGENCAL_PORT": str(self.port),
            "EIGENCAL_DATA_DIR": str(folder),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        import os

        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [PYTHON, "-m", "service"],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(f"{self.url}/readyz", self._process, 120)

    def kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def job(self, job_id: str) -> dict:
        return httpx.get(f"{self.url}/jobs/{job_id}", timeout=60).json()

    def until(self, job_id: str, condition, timeout_s: float = 600) -> dict:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            job = self.job(job_id)
            assert job["state"] not in ("failed", "cancelled"), job
            if condition(job):
                return job
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.3)
        raise TimeoutError(f"the job stands at {self.job(job_id)}")

    def succeeded(self, job_id: str) -> dict:
        job = self.until(job_id, lambda job: job["state"] == "succeeded")
        return httpx.get(f"{self.url}/calibrations/{job['calibration_id']}", timeout=60).json()


class Gate:
    """Lets a limited number of calls through to vLLM and holds the rest, so that kills hit running calls."""

    def __init__(self, vllm: VllmServer) -> None:
        self.url = ""
        self._behind = vllm.url
        self._left = 0

    def let(self, draws: int) -> None:
        """Let `number` more calls through."""
        self._left = draws

    async def __call__(self, exchange: Exchange) -> None:
        """Forward a request in its turn, unless its caller has been killed."""
        while self._left < 1:
            await asyncio.sleep(0.02)
            if exchange.reader.at_eof():
                raise ConnectionError("the caller has gone")
        self._left -= 1
        async with httpx.AsyncClient(timeout=600, trust_env=False) as client:
            answer = await client.post(self._behind + exchange.path, json=exchange.body)
        await exchange.send(answer.status_code, answer.content)


@pytest.fixture
def gate(vllm: VllmServer) -> Iterator[Gate]:
    gate_ = Gate(vllm)
    with serving_in_thread(OpenAIServer(default=gate_, models=["smollm2"])) as server:
        gate_.url = server.url
        yield gate_


@pytest.fixture
def service(base_environment: dict[str, str], gate: Gate, tmp_path: Path) -> Iterator[Service]:
    settings = {"EIGENCAL_LLM_URL": gate.url, "EIGENCAL_NUM_SAMPLES": str(SAMPLES)}
    running = Service({**base_environment, **settings}, tmp_path)
    running.start()
    yield running
    running.kill()


def finished(vllm: VllmServer) -> float:
    """Return the number of answers finished by the server, without those cut by a disconnect."""
    lines = httpx.get(f"{vllm.url}/metrics", timeout=30).text.splitlines()
    counted = [line for line in lines if line.startswith("vllm:request_success_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counted if '"stop"' in line or '"length"' in line)


def test_three_kills_cause_no_repeated_sampling(service: Service, gate: Gate, vllm: VllmServer) -> None:
    before = finished(vllm)
    rows = questions()
    # Always activated, because forty rows may not show a gain.
    request = {"examples": rows, "name": "killed", "activate": "always"}
    sent = httpx.post(f"{service.url}/calibrate", json=request, timeout=60)
    assert sent.status_code == 202, sent.text
    job_id = sent.json()["id"]
    for kill in range(1, KILLS + 1):
        aim = kill * QUESTIONS // (KILLS + 1)
        # A few more than the target, so that kills hit running calls. The target is reached despite losses.
        gate.let(aim - service.job(job_id)["done"] + BEYOND)
        service.until(job_id, lambda job, aim=aim: job["done"] >= aim)
        service.kill()
        service.start()
        assert service.job(job_id)["done"] >= aim
    gate.let(10 * QUESTIONS)
    calibration = service.succeeded(job_id)
    drawn = finished(vllm) - before
    # Only requests in progress at a kill are repeated, no answers of stored rows.
    slots = 64 // 8
    assert QUESTIONS * SAMPLES <= drawn <= QUESTIONS * SAMPLES + KILLS * slots * SAMPLES
    exported = httpx.get(f"{service.url}/calibrations/{calibration['id']}/data", timeout=60)
    kept = [json.loads(line) for line in exported.text.splitlines()]
    assert [len(row["samples"]) for row in kept] == [SAMPLES] * QUESTIONS
    again = httpx.post(
        f"{service.url}/calibrate",
        files={"file": ("kept.jsonl", exported.content)},
        data={"drawn_by": "service", "name": "undisturbed", "activate": "never"},
        timeout=60,
    )
    undisturbed = service.succeeded(again.json()["id"])
    assert finished(vllm) - before == drawn, "the answers were there: nothing was to be drawn"
    assert undisturbed["temperature"] == pytest.approx(calibration["temperature"], abs=1e-9)
    assert undisturbed["depolarization"] == pytest.approx(calibration["depolarization"], abs=1e-9)
    assert undisturbed["method"] == calibration["method"]  # of three maps, chosen by cross-validated risk
    score = httpx.post(f"{service.url}/score", json={"prompt": "Who wrote Hamlet?"}, timeout=120).json()
    assert score["calibrated"] and score["calibration"]["id"] == calibration["id"]
    fewer = {"prompt": "Who wrote Hamlet?", "num_samples": 5, "sampling": {"max_tokens": 31}}
    other = httpx.post(f"{service.url}/score", json=fewer, timeout=120).json()
    assert other["warnings"][0]["differs"] == ["sampling.max_tokens"]
    served_by_evidence(service, exported.content)


def served_by_evidence(service: Service, rows: bytes) -> None:
    """Fit the evidence map on answers with log-probabilities, and score with few answers."""
    sent = httpx.post(
        f"{service.url}/calibrate",
        files={"file": ("kept.jsonl", rows)},
        data={"drawn_by": "service", "method": "evidence", "activate": "always"},
        timeout=60,
    )
    calibration = service.succeeded(sent.json()["id"])
    request = {"prompt": "Who wrote Hamlet?"}
    for body, number in (({"num_samples": 3}, 3), ({"num_samples": 1}, 1)):
        score = httpx.post(f"{service.url}/score", json={**request, **body}, timeout=120).json()
        assert score["num_samples"] == number
        assert 0 < score["evidence"]["missing_mass"] < 1 and score["evidence"]["mean_logprob"] < 0
        used = score["calibration"]
        assert used["id"] == calibration["id"] and used["method"] == "evidence"
        assert 0 < used["depolarization"] < 1 and used["evidence_slope"] >= 0
        assert 0 < score["lambda_max"] < 1
        assert "evidence_missing" not in [warning["code"] for warning in score["warnings"]]
