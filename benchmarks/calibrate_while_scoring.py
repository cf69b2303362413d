"""What a calibration costs the callers: the median latency of /score, alone and beside a calibration.

One real vLLM server, one service; phases with and without a running calibration alternate in one run.
"""

import asyncio
import itertools
import json
import statistics
import time
from pathlib import Path

import httpx

from benchmarks.overhead import QUESTIONS
from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from service.llm.embedded import converted_model
from service.llm.prompting import FEW_SHOT
from tests.support.vllm import ENVIRONMENT, serve_command

CALLERS, SCORES, PAIRS = 8, 40, 2


def dev_rows() -> list[dict]:
    """Return enough questions to last for a phase; what their references say does not matter here."""
    source = ROOT / "service" / "demo" / "everyday_questions.jsonl"
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    return [
        {"prompt": f"{row['prompt']} ({i})", "reference": row["reference"]} for i in range(5) for row in rows
    ]


async def phase(http: httpx.AsyncClient, salt: itertools.count) -> list[float]:
    """Return the latencies (s) of SCORES scores asked by CALLERS callers; no prompt comes twice."""
    left, latencies = iter(range(SCORES)), []

    async def caller() -> None:
        for i in left:
            start = time.perf_counter()
            prompt = f"{QUESTIONS[i % len(QUESTIONS)]} [{next(salt)}]"
            (await http.post("/score", json={"prompt": prompt})).raise_for_status()
            latencies.append(time.perf_counter() - start)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return latencies


async def sampling(http: httpx.AsyncClient, job_id: str) -> int:
    """Return how many rows are drawn, once the job draws."""
    while True:
        job = (await http.get(f"/jobs/{job_id}")).json()
        if job["stage"] == "sampling":
            return job["done"]
        assert job["state"] in ("queued", "running"), job
        await asyncio.sleep(0.1)


async def measure(url: str) -> None:
    salt = itertools.count()
    async with httpx.AsyncClient(base_url=url, timeout=900) as http:
        await phase(http, salt)
        alone, beside, drawn = [], [], 0
        for pair in range(PAIRS):
            alone += await phase(http, salt)
            job = (await http.post("/calibrate", json={"examples": dev_rows(), "seed": pair})).json()["id"]
            before = await sampling(http, job)
            beside += await phase(http, salt)
            drawn += await sampling(http, job) - before
            (await http.delete(f"/jobs/{job}")).raise_for_status()
    a, b = statistics.median(alone), statistics.median(beside)
    print(f"{CALLERS} callers, {len(alone)} scores alone and {len(beside)} beside a calibration")
    print(f"median latency {b / a:.2f} times ({a:.2f} s alone, {b:.2f} s beside)")
    print(f"the calibration drew {drawn} rows meanwhile, callers {len(beside)}")


def main() -> None:
    llm_port, port, data = free_port(), free_port(), Path("data")
    model = converted_model(ROOT / "data" / "weights")
    serve = serve_command(model, llm_port)
    env = {
        "EIGENCAL_LLM_BACKEND": "vllm",
        "EIGENCAL_LLM_URL": f"http://127.0.0.1:{llm_port}/v1",
        "EIGENCAL_LLM_API": "completions",
        "EIGENCAL_LLM_PRIORITY": "true",
        "EIGENCAL_FEW_SHOT": FEW_SHOT,
        "EIGENCAL_MAX_TOKENS": "32",
        "EIGENCAL_PORT": str(port),
        "EIGENCAL_DATABASE_URL": f"sqlite:///{data / 'bench.db'}",
    }
    with running(serve, env=ENVIRONMENT, log=data / "bench-vllm.log") as vllm:
        wait_for(f"http://127.0.0.1:{llm_port}/health", vllm, 300)
        with running([PYTHON, "-m", "service"], env=env, log=data / "bench-service.log") as ours:
            wait_for(f"http://127.0.0.1:{port}/readyz", ours, 120)
            asyncio.run(measure(f"http://127.0.0.1:{port}"))


if __name__ == "__main__":
    main()
