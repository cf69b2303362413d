"""Whole services on one SQLite file: waiting jobs, changed settings, and a busy service."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.openai_server import OpenAIServer, serving_in_thread, status
from tests.support.services import (
    PATIENCE_S,
    Hold,
    asked,
    cities,
    llm_and_embedder,
    questions,
    service,
    until,
)

ROWS, SLOTS = 40, 2


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_service_with_other_settings_does_not_run_the_job(url: str, tmp_path: Path) -> None:
    """A service is killed and restarted with other settings, then with the old ones."""
    hold = Hold(after=ROWS // 4)
    server = OpenAIServer(default=llm_and_embedder(cities, hold=hold))
    with serving_in_thread(server):
        with service(url, server, tmp_path, sampling_temperature="0.7") as first:
            job = first.post(questions(ROWS)).raise_for_status().json()["id"]
            until(lambda: len(asked(server)) == hold.after + SLOTS)  # earlier answers are stored
            first.process.kill()
            first.process.wait()
        before = len(asked(server))
        hold.go_on()
        with service(url, server, tmp_path, sampling_temperature="0.9") as other:
            waits = other.until(job, lambda state: "Waits for a service with the settings" in state["note"])
            assert waits["state"] == "running"
            assert "differ: messages_sampling.temperature, sampling.temperature." in waits["note"]
            assert len(asked(server)) == before
        with service(url, server, tmp_path, sampling_temperature="0.7") as third:
            ended = third.ended(job)
            assert ended["state"] == "succeeded", ended
            made = third.http.get(f"/calibrations/{ended['calibration_id']}").json()
    assert made["fingerprint"]["sampling.temperature"] == 0.7
    assert len(asked(server)) <= ROWS + SLOTS  # requests in progress
    assert {body["temperature"] for body in server.bodies if "messages" in body} == {0.7}


def test_job_waiting_for_the_llm_does_not_block_jobs_with_own_answers(url: str, tmp_path: Path) -> None:
    down = status(500, {"error": {"message": "down", "type": "server_error", "code": 500}})
    server = OpenAIServer(default=llm_and_embedder(down))
    with serving_in_thread(server), service(url, server, tmp_path) as only:
        waiting = only.post(questions(ROWS)).raise_for_status().json()["id"]
        only.until(waiting, lambda state: "Waiting" in state["note"])
        brought = [{**row, "samples": ["Paris", "Lyon", "Nice"]} for row in questions(ROWS)]
        own = only.post(brought).raise_for_status().json()["id"]
        assert only.ended(own)["state"] == "succeeded"
        assert only.job(waiting)["state"] == "running"


@contextmanager
def live_load(url: httpx.URL, callers: int) -> Iterator[Counter[str]]:
    """Score continuously from several callers; yield the number of answered scores."""
    stop, answered = threading.Event(), Counter[str]()

    def call(number: int) -> None:
        prompt = f"question {1000 + number}"
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            while not stop.is_set():
                http.post("/score", json={"prompt": prompt}).raise_for_status()
                answered[prompt] += 1

    threads = [threading.Thread(target=call, args=(i,)) for i in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield answered
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_busy_service_calibrates_slowly(url: str, tmp_path: Path) -> None:
    server = OpenAIServer(default=llm_and_embedder(cities, slow_s=0.3))
    with serving_in_thread(server), service(url, server, tmp_path, llm_slots="16") as only:
        with live_load(only.http.base_url, 8) as scores:
            job = only.post(questions(24)).raise_for_status().json()["id"]
            before = scores.total()
            ended = only.ended(job)
            meanwhile = scores.total() - before
        assert ended["state"] == "succeeded", ended
        assert meanwhile > 40  # it was busy all the time
        # A draw, and a pause as long: in which 8 callers get about 16 scores, on a slow machine, too.
        assert meanwhile < 24 * 45
