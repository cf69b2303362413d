"""Whole services as separate processes, with a scripted server as their LLM and embedder."""

import asyncio
import hashlib
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks.processes import PYTHON, running, wait_for
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, answers

CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
NUM_SAMPLES = 5
PATIENCE_S = 300.0  # a guard only: the machine may be busy
LISTENS = re.compile(r"Uvicorn running on (http://\S+)")


def vector(text: str) -> list[float]:
    rng = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
    drawn: list[float] = rng.standard_normal(24).tolist()
    return drawn


@dataclass
class Hold:
    """Limits the number of prompts that the LLM answers until `go_on`.

    Without this, it depends on the speed of the machine whether a job is still running when a test looks.
    """

    after: int = sys.maxsize

    def go_on(self) -> None:
        self.after = sys.maxsize


def llm_and_embedder(draw: Behaviour, *, slow_s: float = 0.0, hold: Hold | None = None) -> Behaviour:
    """Embed, and answer prompts that end in a number with `draw`."""
    held = hold or Hold()

    async def behave(exchange: Exchange) -> None:
        if exchange.path.endswith("/embeddings"):
            data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(exchange.body["input"])]
            await exchange.send(200, {"data": data, "model": "scripted-embedder"})
            return
        number = len(asked(exchange.server))
        await asyncio.sleep(slow_s)
        while number > held.after:
            await asyncio.sleep(0.01)
        await draw(exchange)

    return behave


async def cities(exchange: Exchange) -> None:
    """Answer with cities that depend on the number of the question."""
    number = int(prompt_of(exchange.body).split()[-1])
    await answers(*(CITIES[(number * i) % len(CITIES)] for i in range(1, 6)))(exchange)


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def asked(server: OpenAIServer) -> list[str]:
    """Return the prompts sent to the LLM, in order."""
    return [prompt_of(body) for body in server.bodies if "messages" in body]


def questions(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"question {i}", "reference": CITIES[i % 5], **fields} for i in range(count)]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition in another thread or process."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until a service started with port 0 listens, and return its address.

    A port chosen beforehand may be taken before the service binds it.
    """
    until(lambda: process.poll() is not None or LISTENS.search(log.read_text()) is not None)
    match = LISTENS.search(log.read_text())
    assert match, log.read_text()
    return match[1]


@contextmanager
def ready(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """Run a service with these variables and its data in the folder; yield its URL once it is ready."""
    log = folder / "service.log"
    env = env | {"EIGENCAL_PORT": "0", "EIGENCAL_DATA_DIR": str(folder)}
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        url = address(process, log)
        wait_for(f"{url}/readyz", process, PATIENCE_S)
        yield url


@dataclass
class Service:
    """A service process and a synchronous HTTP client for it."""

    process: subprocess.Popen[bytes]
    http: httpx.Client

    def post(self, examples: list[dict[str, Any]], key: str | None = None, **options: Any) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.post("/calibrate", json={"examples": examples, **options}, headers=headers)

    def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.http.get(f"/jobs/{job_id}").raise_for_status().json()
        return job

    def until(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Poll the job until it satisfies the condition or has ended, and return it."""
        while not condition(job := self.job(job_id)) and not job["finished_at"]:
            time.sleep(0.05)
        return job

    def ended(self, job_id: str) -> dict[str, Any]:
        return self.until(job_id, lambda job: bool(job["finished_at"]))


@contextmanager
def service(url: str, server: OpenAIServer, folder: Path, **settings: str) -> Iterator[Service]:
    """Run a service on a free port. `settings`: by name without the prefix."""
    settings = {
        "port": "0",
        "data_dir": str(folder / "data"),
        "database_url": url,
        "llm_url": server.url,
        "embedder_url": server.url,
        "llm_slots": "16",  # two of these for calibrations
        "self_check": "false",  # its calls would come between those that tests script
        "num_samples": str(NUM_SAMPLES),
        **settings,
    }
    env = {f"EIGENCAL_{name.upper()}": value for name, value in settings.items()}
    log = folder / f"{uuid.uuid4().hex}.log"  # several may share the folder
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        with httpx.Client(base_url=address(process, log), timeout=PATIENCE_S) as http:
            yield Service(process, http)
