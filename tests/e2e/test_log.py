"""The log of a real process: set-up, errors with their requests, and jobs."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from benchmarks.processes import PYTHON, running, wait_for
from tests.support.openai_server import Exchange, OpenAIServer, answers, serving_in_thread, status
from tests.support.services import PATIENCE_S, address, until

SECRETS = ("sk-of-the-llm", "sk-of-the-embedder", "sk-of-the-admin", "user-name", "pass-word")
PROMPT = "Where is the treasure of the island?"
REFUSAL = {"error": {"message": f"cannot answer {PROMPT}", "code": 400}}
ROWS = 30


async def embedder(exchange: Exchange) -> None:
    vectors = [[float(len(text)), 1.0, float(i % 3), 0.5] for i, text in enumerate(exchange.body["input"])]
    data = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    await exchange.send(200, {"data": data, "model": "scripted-embedder"})


async def llm(exchange: Exchange) -> None:
    if exchange.path.endswith("/embeddings"):
        await embedder(exchange)
    elif PROMPT in exchange.body["messages"][-1]["content"]:
        await status(400, REFUSAL)(exchange)
    else:
        await answers("Paris", "Lyon", "Nice and warm")(exchange)


@dataclass
class Service:
    """A service in a separate process, and its log."""

    http: httpx.Client
    log: Path
    server: OpenAIServer

    def lines(self) -> list[str]:
        """Return the lines of our own loggers: level and message."""
        matches = re.findall(r"^\S+ \S+ ([A-Z]+) service\S*: (.*)$", self.log.read_text(), re.MULTILINE)
        return [f"{level} {message}" for level, message in matches]


def environment(folder: Path, llm_url: str, embedder_url: str) -> dict[str, str]:
    return {
        "EIGENCAL_PORT": "0",
        "EIGENCAL_DATA_DIR": str(folder),
        "EIGENCAL_LLM_URL": llm_url,
        "EIGENCAL_LLM_API_KEY": "sk-of-the-llm",
        "EIGENCAL_EMBEDDER": "scripted-embedder",
        "EIGENCAL_EMBEDDER_URL": embedder_url,
        "EIGENCAL_EMBEDDER_API_KEY": "sk-of-the-embedder",
        "EIGENCAL_ADMIN_KEY": "sk-of-the-admin",
        "EIGENCAL_NUM_SAMPLES": "5",
        "EIGENCAL_LOG_LEVEL": "debug",  # no line at this level has a prompt, an answer or a key
    }


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    log = tmp_path / "service.log"
    with ExitStack() as stack:
        server = stack.enter_context(serving_in_thread(OpenAIServer(default=llm)))
        named = server.url.replace("://", "://user-name:pass-word@")
        env = environment(tmp_path / "data", named, server.url)
        process = stack.enter_context(running([PYTHON, "-m", "service"], env=env, log=log))
        url = address(process, log)
        wait_for(f"{url}/readyz", process, PATIENCE_S)
        key = {"Authorization": "Bearer sk-of-the-admin"}
        http = httpx.Client(base_url=url, timeout=PATIENCE_S, headers=key)
        yield Service(stack.enter_context(http), log, server)


def calibrate(service: Service) -> dict[str, Any]:
    """Run a calibration to its end and return the job."""
    # For this embedder all questions are near, and near ones with a common reference count once.
    rows = [{"prompt": f"question {i}", "reference": f"Paris {i}"} for i in range(ROWS)]
    job = service.http.post("/calibrate", json={"examples": rows}).raise_for_status().json()
    while not job["finished_at"]:
        time.sleep(0.05)
        job = service.http.get(f"/jobs/{job['id']}").raise_for_status().json()
    return dict(job)


def wait_for_line(log: Path, text: str) -> None:
    until(lambda: text in log.read_text())


def test_log_contains_setup_errors_and_jobs(service: Service) -> None:
    refused = service.http.post("/score", json={"prompt": PROMPT}, headers={"X-Request-ID": "mine-1"})
    assert refused.status_code == 502
    service.http.post("/score", json={"prompt": "question 1", "num_samples": "many"})
    job = calibrate(service)
    assert job["state"] == "succeeded", job
    wait_for_line(service.log, f"job {job['id']} succeeded")  # logged after it is stored
    lines, text = service.lines(), service.log.read_text()

    assert f"INFO store: SQLite file {service.log.parent / 'data' / 'eigencal.db'}" in lines
    assert f"INFO LLM: {service.server.url} (API for prompts: chat), model scripted-model" in lines
    assert "INFO embedder: scripted-embedder, revision scripted-embedder, 4 dimensions, float32" in lines
    assert any(line.startswith("INFO Eigencal ") for line in lines)
    assert f"Uvicorn running on http://127.0.0.1:{service.http.base_url.port}" in text

    (error,) = [line for line in lines if "mine-1" in line]
    assert error.startswith("ERROR 502 llm_error, request mine-1, POST /score: ")
    assert "cannot answer" not in text  # the server's message may quote the prompt
    assert any(line.startswith("INFO 422 invalid_request, request req_") for line in lines)

    of_the_job = [line.removeprefix(f"INFO job {job['id']} ") for line in lines if job["id"] in line]
    assert of_the_job[:2] == ["accepted", "runs on this replica"]
    stages = re.findall(rf"job {job['id']}: (\w+), \d+ of \d+ done", text)
    assert list(dict.fromkeys(stages)) == ["sampling", "embedding", "checking", "fitting", "reporting"]
    assert of_the_job[-1].startswith(f"succeeded: calibration {job['calibration_id']}. ")
    assert "ctivated: " in of_the_job[-1]

    assert not [word for word in (*SECRETS, PROMPT, "question", "Paris") if word in text]
