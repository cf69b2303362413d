"""Two whole services on one PostgreSQL, over HTTP: activation, and a job whose owner is killed or frozen.

The LLM and the embedder are one scripted server, which counts what it is asked.
"""

import asyncio
import hashlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.processes import PYTHON, free_port, running, wait_for
from tests.support.openai_server import Exchange, OpenAIServer, answers, serving_in_thread
from tests.support.postgres import Cluster, cluster

ROWS = 40
SLOTS = 2  # a quarter of EIGENCAL_LLM_SLOTS
CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
pytestmark = pytest.mark.postgres


def vector(text: str) -> list[float]:
    rng = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
    drawn: list[float] = rng.standard_normal(24).tolist()
    return drawn


async def llm_and_embedder(exchange: Exchange) -> None:
    if exchange.path.endswith("/embeddings"):
        data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(exchange.body["input"])]
        await exchange.send(200, {"data": data, "model": "scripted-embedder"})
        return
    number = int(exchange.body["messages"][-1]["content"].split()[-1])
    await asyncio.sleep(0.1)
    await answers(*(CITIES[(number * i) % len(CITIES)] for i in range(1, 6)))(exchange)


@dataclass
class Service:
    """One replica: its process, and a client that waits for what is to come."""

    process: subprocess.Popen[bytes]
    http: httpx.Client

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/jobs/{job_id}").raise_for_status().json()
        return found

    def until(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Follow the job's events until one of them is as wanted, or the last."""
        with self.http.stream("GET", f"/jobs/{job_id}/events") as events:
            for line in events.iter_lines():
                if line.startswith("data:") and condition(job := httpx.Response(200, text=line[5:]).json()):
                    return dict(job)
        return self.job(job_id)


@contextmanager
def service(url: str, name: str, server: OpenAIServer, folder: Path) -> Iterator[Service]:
    port = free_port()
    env = {
        "EIGENCAL_PORT": str(port),
        "EIGENCAL_DATA_DIR": str(folder / name),
        "EIGENCAL_DATABASE_URL": url,
        "EIGENCAL_REPLICA_ID": name,
        "EIGENCAL_LLM_BACKEND": "vllm",
        "EIGENCAL_LLM_URL": server.url,
        "EIGENCAL_EMBEDDER_URL": server.url,
        "EIGENCAL_LLM_SLOTS": "8",
        "EIGENCAL_CALIBRATION_SHARE": "0.25",
        "EIGENCAL_NUM_SAMPLES": "5",
    }
    with running([PYTHON, "-m", "service"], env=env, log=folder / f"{name}.log") as process:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, 60)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            yield Service(process, http)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    with cluster() as running_cluster:
        yield running_cluster


@pytest.fixture
def replicas(postgres: Cluster, tmp_path: Path) -> Iterator[tuple[Service, Service, OpenAIServer]]:
    with ExitStack() as stack:
        url = postgres.database()
        server = stack.enter_context(serving_in_thread(OpenAIServer(default=llm_and_embedder)))
        first, second = (stack.enter_context(service(url, n, server, tmp_path)) for n in ("a", "b"))
        yield first, second, server


def asked(server: OpenAIServer) -> list[str]:
    """The prompts that the LLM was asked for, in order."""
    return [body["messages"][-1]["content"] for body in server.bodies if "messages" in body]


def calibrate(replica: Service, **options: Any) -> str:
    examples = [{"prompt": f"question {i}", "reference": CITIES[i % 5]} for i in range(ROWS)]
    answer = replica.http.post("/calibrate", json={"examples": examples, **options}).raise_for_status()
    return str(answer.json()["id"])


def succeeded(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "succeeded")


def half_drawn(job: dict[str, Any]) -> bool:
    return bool(job["stage"] == "sampling" and job["done"] >= ROWS // 4)


def test_activation_is_served_by_the_other(replicas: tuple[Service, Service, OpenAIServer]) -> None:
    first, second, server = replicas
    done = second.until(calibrate(first), succeeded)
    assert sorted(asked(server)) == sorted(f"question {i}" for i in range(ROWS))
    older = done["calibration_id"]
    newer = first.until(calibrate(second, activate="always"), succeeded)["calibration_id"]
    assert {scored_with(one, newer)["calibration"]["id"] for one in (first, second)} == {newer}
    second.http.post(f"/calibrations/{older}/activate").raise_for_status()
    scores = [scored_with(one, older) for one in (second, first)]
    assert [score["calibration"]["id"] for score in scores] == [older, older]
    assert all(score["calibrated"] for score in scores)


def start_on(owner: Service, peer: Service) -> str:
    """Have the owner take a job up, which needs the peer not to be quicker."""
    peer.process.send_signal(signal.SIGSTOP)
    job_id = calibrate(owner)
    owner.until(job_id, half_drawn)
    peer.process.send_signal(signal.SIGCONT)
    return job_id


def test_the_job_of_a_killed_owner(replicas: tuple[Service, Service, OpenAIServer]) -> None:
    first, second, server = replicas
    job_id = start_on(first, second)
    first.process.kill()
    ended = second.until(job_id, succeeded)
    assert succeeded(ended), ended
    assert set(asked(server)) == {f"question {i}" for i in range(ROWS)}
    assert len(asked(server)) <= ROWS + SLOTS  # what was in flight


def test_the_job_of_a_frozen_owner_that_wakes(replicas: tuple[Service, Service, OpenAIServer]) -> None:
    first, second, server = replicas
    job_id = start_on(first, second)
    first.process.send_signal(signal.SIGSTOP)
    before = len(asked(server))
    while len(asked(server)) <= before + SLOTS:  # the peer has begun to draw
        assert second.job(job_id)["state"] == "running"
    first.process.send_signal(signal.SIGCONT)
    ended = second.until(job_id, succeeded)
    assert succeeded(ended), ended
    assert len(asked(server)) <= ROWS + 2 * SLOTS  # what was in flight, and once more before it hears
    listed = first.http.get("/calibrations").raise_for_status().json()
    assert [one["id"] for one in listed] == [ended["calibration_id"]]
    assert succeeded(first.until(calibrate(first), succeeded))


def scored_with(replica: Service, calibration_id: str) -> dict[str, Any]:
    """Score until the calibration named is the one served; replicas have two seconds to learn of it."""
    found: dict[str, Any] = {}
    for _ in range(20):  # each score takes a tenth of a second at least
        found = replica.http.post("/score", json={"prompt": "question 3"}).raise_for_status().json()
        if (found["calibration"] or {}).get("id") == calibration_id:
            break
    return found
