"""Whole services as processes of their own, with a scripted server as their LLM and embedder."""

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

from benchmarks.processes import PYTHON, running
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, answers

CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
NUM_SAMPLES = 5
PATIENCE_S = 300.0  # nothing but a guard: a machine may be busy
LISTENS = re.compile(r"Uvicorn running on (http://\S+)")


def vector(text: str) -> list[float]:
    rng = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
    drawn: list[float] = rng.standard_normal(24).tolist()
    return drawn


@dataclass
class Hold:
    """How many prompts the LLM answers before a test tells it to go on.

    Without it, whether a job is still at work when a test gets there depends on the speed of the machine.
    """

    after: int = sys.maxsize

    def go_on(self) -> None:
        self.after = sys.maxsize


def llm_and_embedder(draw: Behaviour, *, slow_s: float = 0.0, hold: Hold | None = None) -> Behaviour:
    """Embed, and answer prompts that end in a number as `draw` does."""
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
    """The prompts that the LLM was asked for, in order."""
    return [prompt_of(body) for body in server.bodies if "messages" in body]


def questions(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"question {i}", "reference": CITIES[i % 5], **fields} for i in range(count)]


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in a thread or process."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where a service that was told port 0 listens, once it does.

    A port that is chosen beforehand may be somebody else's by the time the service takes it.
    """
    until(lambda: process.poll() is not None or LISTENS.search(log.read_text()) is not None)
    found = LISTENS.search(log.read_text())
    assert found, log.read_text()
    return found[1]


@dataclass
class Service:
    """One service: its process, and a client that waits for what is to come."""

    process: subprocess.Popen[bytes]
    http: httpx.Client

    def post(self, examples: list[dict[str, Any]], key: str | None = None, **options: Any) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.post("/calibrate", json={"examples": examples, **options}, headers=headers)

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

    def ended(self, job_id: str) -> dict[str, Any]:
        return self.until(job_id, lambda job: bool(job["finished_at"]))


@contextmanager
def service(url: str, server: OpenAIServer, folder: Path, **settings: str) -> Iterator[Service]:
    """Run a service on a free port; `settings` by their names without the prefix."""
    settings = {
        "port": "0",
        "data_dir": str(folder / "data"),
        "database_url": url,
        "llm_backend": "vllm",
        "llm_url": server.url,
        "embedder_url": server.url,
        "llm_slots": "16",  # two of them for calibrations
        "num_samples": str(NUM_SAMPLES),
        **settings,
    }
    env = {f"EIGENCAL_{name.upper()}": value for name, value in settings.items()}
    log = folder / f"{uuid.uuid4().hex}.log"  # there may be several in one folder
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        with httpx.Client(base_url=address(process, log), timeout=PATIENCE_S) as http:
            yield Service(process, http)
