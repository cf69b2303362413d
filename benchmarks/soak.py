"""Minutes of mixed load on the real service, with an LLM that is well, slow, silent or dead by turns.

Callers with and without a deadline, callers who hang up, batches, supplied answers, readiness checks and, now
and then, a calibration. Two models are served at one address, each with a calibration of its own, and every
answer names the model that wrote it. The exit code is 1 if the answers, the model and the calibration of a
score do not belong together, a score never comes, or work is left over at the end; the memory is printed.

    python -m benchmarks.soak [--minutes 10]
"""

import argparse
import asyncio
import collections
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import PYTHON, free_port, running, wait_for
from tests.support.openai_server import Exchange, OpenAIServer, completion, hang

MODELS = ("m1", "m2")
SLOTS = 16
NUM_SAMPLES = 5
LLM_TIMEOUT_S = 8
PATIENCE_S = 60  # a caller that waits longer than this has met a wedge
CYCLE = (("well", 30), ("slow", 10), ("silent", 10), ("well", 5), ("dead", 5))


def texts(model: str, prompt: str, count: int) -> list[str]:
    """Return answers that name their model; some new, some that came before."""
    made = random.Random(f"{model} {prompt}")
    return [f"{model} says {made.randrange(2)} of {made.randrange(60_000)}" for _ in range(count)]


@dataclass
class Llm:
    """The LLM server: two models, in the state of the phase; it answers as the other model now and then."""

    state: str = "well"
    strangers: float = 0.02
    server: OpenAIServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = OpenAIServer(default=self.behave, models=MODELS, port=free_port())

    async def behave(self, exchange: Exchange) -> None:
        del self.server.requests[:]  # nobody reads them here
        if self.state == "silent":
            return await hang(exchange)
        await asyncio.sleep({"slow": 3.0}.get(self.state, random.uniform(0.1, 0.4)))
        asked = exchange.body.get("model", MODELS[0])
        told = asked if random.random() > self.strangers else MODELS[asked == MODELS[0]]
        prompt = json.dumps(exchange.body.get("messages") or exchange.body.get("prompt"))
        said = texts(told, prompt, int(exchange.body.get("n", 1)))
        if not exchange.body.get("stream"):
            return await exchange.send(200, completion(exchange, said, "stop", told))
        await exchange.start_stream()
        for i, text in enumerate(said):
            choice = {"index": i, "finish_reason": "stop", "delta": {"content": text}, "text": text}
            await exchange.event({"model": told, "choices": [choice]})
        await exchange.event("[DONE]")
        exchange.writer.close()
        return None

    async def phases(self) -> None:
        while True:
            for self.state, seconds in CYCLE:
                if self.state == "dead":
                    await self.server.__aexit__()
                    await asyncio.sleep(seconds)
                    await self.server.__aenter__()
                else:
                    await asyncio.sleep(seconds)


@dataclass
class Tally:
    """What the callers saw since the last line was printed, and over the whole run."""

    codes: collections.Counter[str] = field(default_factory=collections.Counter)
    total: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, code: str, seconds: float) -> None:
        self.codes[code] += 1
        self.total[code] += 1
        self.seconds.append(seconds)

    def line(self) -> str:
        p50 = statistics.median(self.seconds) if self.seconds else 0.0
        told = ", ".join(f"{name} {count}" for name, count in self.codes.most_common())
        slowest = max(self.seconds, default=0.0)
        self.codes.clear()
        self.seconds.clear()
        return f"p50 {p50:.2f} s, longest {slowest:.1f} s | {told}"


class Callers:
    """Everyone who calls the service, until told to stop."""

    def __init__(self, base: str, calibrations: dict[str, str]) -> None:
        self.base = base
        self.calibrations = calibrations
        self.tally = Tally()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self.http = httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, limits=limits, trust_env=False)
        self.over = asyncio.Event()

    async def repeat(self, call: Any, pause_s: float) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            try:
                code = await call()
            except httpx.TimeoutException:
                code = "WEDGED"
            except httpx.HTTPError as error:
                code = type(error).__name__
            self.tally.add(code, time.monotonic() - began)
            await asyncio.sleep(random.uniform(0, 2 * pause_s))

    def body(self, **more: Any) -> dict[str, Any]:
        prompt = f"question {random.randrange(100_000)}"
        return {"prompt": prompt, "model": random.choice(MODELS), "return": ["samples"], **more}

    async def score(self, **more: Any) -> str:
        response = await self.http.post("/score", json=self.body(**more))
        return self.judge(response.status_code, response.json())

    async def plain(self) -> str:
        return await self.score()

    async def with_deadline(self) -> str:
        return await self.score(deadline_ms=1500)

    async def hang_up(self) -> str:
        more = {"deadline_ms": 1500} if random.random() < 0.5 else {}
        try:
            await self.http.post("/score", json=self.body(**more), timeout=random.uniform(0.05, 1.0))
        except httpx.TimeoutException:
            return "hung up"
        return "done before the hang-up"

    async def batch(self) -> str:
        items = [self.body(deadline_ms=3000) for _ in range(8)]
        lines = (await self.http.post("/score/batch", json={"items": items})).text.splitlines()
        for line in map(json.loads, lines):
            if "result" in line:
                self.judge(200, line["result"])
        return f"batch of {len(lines)}"

    async def supplied(self) -> str:
        samples = [f"supplied {random.randrange(60_000)}" for _ in range(20)]
        response = await self.http.post("/score", json={"samples": samples})
        return f"supplied {response.status_code}"

    async def ready(self) -> str:
        return f"readyz {(await self.http.get('/readyz')).status_code}"

    async def calibrate(self) -> str:
        rows = [{"prompt": f"dev {i}", "reference": f"m1 says {i % 2} of {i}"} for i in range(30)]
        response = await self.http.post("/calibrate", json={"examples": rows, "activate": "never"})
        job = response.json().get("id", "")
        await asyncio.sleep(40)
        await self.http.delete(f"/jobs/{job}")
        return f"calibration {response.status_code}"

    def judge(self, status: int, said: dict[str, Any]) -> str:
        if status != 200:
            return str(said.get("code", status))
        authors = {text.split(" ", 1)[0] for text in said["samples"]}
        used = said["calibration"] and said["calibration"]["id"]
        if authors != {said["model"]} or used not in (None, self.calibrations[said["model"]]):
            self.tally.wrong.append(json.dumps({k: said[k] for k in ("model", "calibration", "samples")}))
        return "calibrated" if used else "raw"

    def tasks(self) -> list[asyncio.Task[None]]:
        crowd = [(self.with_deadline, 0.3, 40), (self.plain, 0.5, 10), (self.hang_up, 0.2, 10)]
        crowd += [
            (self.batch, 2.0, 2),
            (self.supplied, 1.0, 2),
            (self.ready, 0.5, 2),
            (self.calibrate, 20.0, 1),
        ]
        return [asyncio.create_task(self.repeat(c, p)) for c, p, count in crowd for _ in range(count)]


async def fit(base: str, model: str) -> str:
    """Return the id of a calibration of this model, activated: fitted on answers as the LLM gives them."""
    rows = []
    for i in range(60):
        samples = texts(model, f"dev {i}", NUM_SAMPLES)
        rows.append({"prompt": f"dev {i}", "reference": samples[i % 2], "samples": samples})
    async with httpx.AsyncClient(base_url=base, timeout=120, trust_env=False) as http:
        options = {"drawn_by": "service", "activate": "always", "name": model}
        response = await http.post("/calibrate", json={"examples": rows, **options})
        response.raise_for_status()
        while (job := (await http.get(response.headers["location"])).json())["state"] != "succeeded":
            if job["state"] == "failed":
                raise RuntimeError(f"the calibration of {model} failed: {job}")
            await asyncio.sleep(0.5)
        return str(job["calibration_id"])


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def in_flight(metrics: str) -> float:
    """Return the number of scores under way, from the metrics."""
    return next(
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith("eigencal_scores_in_flight ")
    )


def service_env(llm: Llm, folder: str, model: str) -> dict[str, str]:
    """Return the settings of the service under test."""
    settings = {
        "LLM_BACKEND": "vllm", "LLM_URL": llm.server.url, "LLM_MODEL": model, "LLM_SLOTS": SLOTS,
        "LLM_TIMEOUT_S": LLM_TIMEOUT_S, "NUM_SAMPLES": NUM_SAMPLES, "EMBEDDER": "all-MiniLM-L6-v2",
        "EMBEDDER_CACHE": 5000, "EMBEDDER_THREADS": 1, "LOG_LEVEL": "error",
        "DATABASE_URL": f"sqlite:///{folder}/soak.db",
    }  # fmt: skip
    return {f"EIGENCAL_{name}": str(value) for name, value in settings.items()}


async def drive(minutes: float) -> int:
    llm = Llm()
    with tempfile.TemporaryDirectory() as folder:
        async with llm.server:
            calibrations = {}
            for model in MODELS:  # each is fitted by a service that is set up for it
                async with serving(llm, folder, model) as (base, _):
                    calibrations[model] = await fit(base, model)
            async with serving(llm, folder, MODELS[0]) as (base, pid):
                return await soak(llm, Callers(base, calibrations), pid, minutes)


@asynccontextmanager
async def serving(llm: Llm, folder: str, model: str) -> AsyncIterator[tuple[str, int]]:
    """Run the service, set up for a model; yield its address and process id."""
    port = free_port()
    env = service_env(llm, folder, model) | {"EIGENCAL_PORT": str(port)}
    with running([PYTHON, "-m", "service"], env=env) as process:
        base = f"http://127.0.0.1:{port}"
        await asyncio.to_thread(wait_for, f"{base}/readyz", process, 120)
        yield base, process.pid


async def soak(llm: Llm, callers: Callers, pid: int, minutes: float) -> int:
    phases, tasks, memory = asyncio.create_task(llm.phases()), callers.tasks(), []
    for half_minute in range(round(2 * minutes)):
        await asyncio.sleep(30)
        memory.append(resident_mib(pid))
        print(f"{(half_minute + 1) / 2:4.1f} min: {memory[-1]:5.0f} MiB, {callers.tally.line()}", flush=True)
    callers.over.set()
    await asyncio.wait(tasks, timeout=2 * PATIENCE_S)
    phases.cancel()
    await asyncio.gather(phases, return_exceptions=True)
    llm.state = "well"
    return await verdict(llm, callers, memory)


async def verdict(llm: Llm, callers: Callers, memory: list[float]) -> int:
    await asyncio.sleep(LLM_TIMEOUT_S + 2)
    left = in_flight((await callers.http.get("/metrics")).text)
    last = [await callers.plain() for _ in range(5)]
    early = memory[4:6] or memory[:1]
    print(f"left over: {left:.0f} scores, {llm.server.active} requests at the LLM; then: {last}")
    print(f"memory after two minutes {statistics.mean(early):.0f} MiB, at the end {memory[-1]:.0f} MiB")
    print(f"in all: {dict(callers.tally.total)}; of the wrong model: {len(callers.tally.wrong)}")
    for one in callers.tally.wrong[:5]:
        print("  ", one)
    await callers.http.aclose()
    bad = callers.tally.wrong or callers.tally.total["WEDGED"] or left or llm.server.active
    return 1 if bad or set(last) - {"calibrated", "raw"} else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    sys.exit(asyncio.run(drive(parser.parse_args().minutes)))
