"""Whole services as processes of their own, with a scripted server as their LLM and embedder."""

import asyncio
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.processes import PYTHON, free_port, running, wait_for
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, answers

CITIES = ("Paris", "Lyon", "Nice", "Lille", "Metz")
NUM_SAMPLES = 5


def vector(text: str) -> list[float]:
    rng = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
    drawn: list[float] = rng.standard_normal(24).tolist()
    return drawn


def llm_and_embedder(draw: Behaviour, *, slow_s: float = 0.0) -> Behaviour:
    """Embed, and answer prompts that end in a number as `draw` does."""

    async def behave(exchange: Exchange) -> None:
        if exchange.path.endswith("/embeddings"):
            data = [{"index": i, "embedding": vector(text)} for i, text in enumerate(exchange.body["input"])]
            await exchange.send(200, {"data": data, "model": "scripted-embedder"})
            return
        await asyncio.sleep(slow_s)
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


@dataclass
class Service:
    """One service: its process, and a client that waits for what is to come."""

    process: subprocess.Popen[bytes]
    http: httpx.Client
    port: int

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
    port = free_port()
    settings = {
        "port": str(port),
        "data_dir": str(folder / "data"),
        "database_url": url,
        "llm_backend": "vllm",
        "llm_url": server.url,
        "embedder_url": server.url,
        "llm_slots": "8",
        "calibration_share": "0.25",
        "num_samples": str(NUM_SAMPLES),
        **settings,
    }
    env = {f"EIGENCAL_{name.upper()}": value for name, value in settings.items()}
    with running([PYTHON, "-m", "service"], env=env, log=folder / f"{port}.log") as process:
        wait_for(f"http://127.0.0.1:{port}/healthz", process, 60)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=180) as http:
            yield Service(process, http, port)
