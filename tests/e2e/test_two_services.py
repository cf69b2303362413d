"""Two whole services on one PostgreSQL, over HTTP: activation, and a job whose owner is killed or frozen.

The LLM and the embedder are one scripted server, which counts what it is asked.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.openai_server import OpenAIServer, serving_in_thread
from tests.support.postgres import Cluster, cluster
from tests.support.services import (
    PATIENCE_S,
    Hold,
    Service,
    asked,
    cities,
    llm_and_embedder,
    questions,
    service,
    until,
)

ROWS = 40
SLOTS = 2  # a quarter of EIGENCAL_LLM_SLOTS
pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    with cluster() as running_cluster:
        yield running_cluster


def folder_of(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


@pytest.fixture
def hold() -> Hold:
    return Hold()


@pytest.fixture
def replicas(
    postgres: Cluster, tmp_path: Path, hold: Hold
) -> Iterator[tuple[Service, Service, OpenAIServer]]:
    with ExitStack() as stack:
        url = postgres.database()
        behaviour = llm_and_embedder(cities, slow_s=0.1, hold=hold)
        server = stack.enter_context(serving_in_thread(OpenAIServer(default=behaviour)))
        first, second = (
            stack.enter_context(service(url, server, folder_of(tmp_path, name), replica_id=name))
            for name in ("a", "b")
        )
        yield first, second, server


def calibrate(replica: Service, **options: Any) -> str:
    return str(replica.post(questions(ROWS), **options).raise_for_status().json()["id"])


def succeeded(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "succeeded")


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


def start_on(owner: Service, peer: Service, server: OpenAIServer, hold: Hold) -> str:
    """Have the owner draw a quarter of a job, which needs the peer not to be quicker."""
    hold.after = ROWS // 4
    peer.process.send_signal(signal.SIGSTOP)
    job_id = calibrate(owner)
    until(lambda: len(asked(server)) == hold.after + SLOTS)  # the answers before these are kept
    peer.process.send_signal(signal.SIGCONT)
    return job_id


def test_the_job_of_a_killed_owner(replicas: tuple[Service, Service, OpenAIServer], hold: Hold) -> None:
    first, second, server = replicas
    job_id = start_on(first, second, server, hold)
    first.process.kill()
    hold.go_on()
    ended = second.until(job_id, succeeded)
    assert succeeded(ended), ended
    assert set(asked(server)) == {f"question {i}" for i in range(ROWS)}
    assert len(asked(server)) <= ROWS + SLOTS  # what was in flight


def test_the_job_of_a_frozen_owner_that_wakes(
    replicas: tuple[Service, Service, OpenAIServer], hold: Hold
) -> None:
    first, second, server = replicas
    job_id = start_on(first, second, server, hold)
    first.process.send_signal(signal.SIGSTOP)
    before = len(asked(server))
    hold.after = before + 2 * SLOTS
    until(lambda: len(asked(server)) > before + SLOTS)  # the peer has begun to draw
    assert second.job(job_id)["state"] == "running"
    first.process.send_signal(signal.SIGCONT)
    hold.go_on()
    ended = second.until(job_id, succeeded)
    assert succeeded(ended), ended
    assert len(asked(server)) <= ROWS + 2 * SLOTS  # what was in flight, and once more before it hears
    listed = first.http.get("/calibrations").raise_for_status().json()
    assert [one["id"] for one in listed] == [ended["calibration_id"]]
    assert succeeded(first.until(calibrate(first), succeeded))


def scored_with(replica: Service, calibration_id: str) -> dict[str, Any]:
    """Score until the calibration named is the one served, which replicas learn by and by."""
    found: dict[str, Any] = {}
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = replica.http.post("/score", json={"prompt": "question 3"}).raise_for_status().json()
        if (found["calibration"] or {}).get("id") == calibration_id:
            break
    return found
