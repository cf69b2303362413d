"""Mixed load on two replicas in containers, and faults.

The composition of docs/deploying.md on PostgreSQL, in front of a scripted LLM server on this machine. The
load: scores (also with a deadline, of supplied answers, in batches), chats (whole and streamed), calibrations
with and without drawn answers, and callers who hang up. The faults are the methods of `Faults`.

The exit code is 1 if a status is not expected, an error has no code, a reply breaks off without a kill, a
score uses the calibration of another model, a job is lost, or the memory, the open files or the threads of
the surviving replica grow by more than a tenth, measured while the callers are paused.

    make soak ARGS="--minutes 30"
"""

import argparse
import asyncio
import collections
import contextlib
import json
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from numpy.typing import NDArray

from service.jobs.engine import STOP_AFTER_S
from tests.docker.composition import ADMIN, KILL, SCORE, Composition, run
from tests.support.openai_server import Behaviour, Exchange, OpenAIServer, drop, hang, status

OWN, OTHER = "own", "other"  # models: one is calibrated again and again, the other never
PROMPTS, PHRASES = 500, 3000
ROWS, SAMPLES = 40, 5
PATIENCE_S = 150.0
MAY_BE = {502, 503, 504}
ENDED = ("succeeded", "failed", "cancelled")
JUNK = "{"
ON_DISK = """
services:
  postgres:
    volumes: ["{disk}/data:/var/lib/postgresql/data"]
"""
# Statuses of the LLM while it fails, as real servers have them.
FAILURES: tuple[Behaviour, ...] = (
    status(500, {"error": {"message": "out of memory"}}),
    status(503, {"error": {"message": "loading"}}, {"retry-after": "1"}),
    status(429, {"error": {"message": "too many"}}, {"retry-after": "1"}),
    status(200, JUNK.encode(), {"content-type": "application/json"}),
    drop,
)
LLM_SAYS = ((500, "out of memory"), (429, "too many"), (503, "loading"))


def answers_to(prompt: int) -> tuple[list[str], NDArray[np.float64]]:
    """Return the four answers that the LLM has for a prompt, and how likely each is."""
    made = np.random.default_rng(prompt)
    texts = [f"It was number {made.integers(PHRASES)} of the list" for _ in range(4)]
    return texts, made.dirichlet([0.5] * 4)


def question(prompt: int) -> str:
    return f"What did they choose in case {prompt}?"


@dataclass
class Llm:
    """The LLM server: two models, well or in the state of a fault."""

    state: str = "well"
    is_dead: bool = False
    unanswered: dict[int, float] = field(default_factory=dict)  # when, by prompt
    server: OpenAIServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = OpenAIServer(default=self.behave, models=(OWN, OTHER), host="0.0.0.0")

    async def end(self) -> None:
        """Refuse connections."""
        await self.server.__aexit__()
        self.is_dead = True

    async def begin(self) -> None:
        """Serve again at the same port."""
        await self.server.__aenter__()
        self.is_dead = False

    async def behave(self, exchange: Exchange) -> None:
        """Answer one call."""
        self.server.requests.clear()
        body = exchange.body
        prompt = int(re.findall(r"\d+", json.dumps(body["messages"]))[-1])
        if self.state == "silent":
            self.unanswered[prompt] = time.monotonic()
            return await hang(exchange)
        if self.state == "failing" and random.random() < 0.7:
            return await random.choice(FAILURES)(exchange)
        await asyncio.sleep(random.uniform(0.1, 0.5))
        texts, shares = answers_to(prompt)
        chosen = random.choices(range(4), weights=shares.tolist(), k=int(body.get("n", 1)))
        choices = []
        for index, answer in enumerate(chosen):
            token = {
                "token": texts[answer],
                "logprob": max(math.log(shares[answer]), -50.0),
                "top_logprobs": [],
            }
            told = {"logprobs": {"content": [token]}} if body.get("logprobs") else {}
            text = {"role": "assistant", "content": texts[answer]}
            name = "delta" if body.get("stream") else "message"
            choices.append({"index": index, "finish_reason": "stop", name: text, **told})
        if not body.get("stream"):
            return await exchange.send(200, {"model": body["model"], "choices": choices})
        await exchange.start_stream()
        for choice in choices:
            await exchange.event({"model": body["model"], "choices": [choice]})
            await asyncio.sleep(0.02)
        if self.state == "failing":  # it breaks off before its end
            return exchange.writer.close()
        await exchange.event("[DONE]")
        exchange.writer.close()
        return None


@dataclass
class Tally:
    """The observations of the callers."""

    seen: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)
    broken: list[tuple[float, float, str]] = field(default_factory=list)  # replies: asked at, broken at, kind
    num_calibrated: int = 0
    jobs: dict[str, str] = field(default_factory=dict)  # state by id, "" while it goes on

    def error(self, kind: str, reply: httpx.Response) -> str:
        """Return an error's code. Record unexpected errors and errors of a replica that died."""
        try:
            told = reply.json()
            code = str(told["code"] if "code" in told else told["error"]["code"])
        except (ValueError, KeyError, TypeError):
            code = "no code"
        if reply.status_code not in MAY_BE or code == "no code":
            self.wrong.append(f"{kind}: {reply.status_code} {reply.text[:300]}")
        if code == "no_replica":
            now = time.monotonic()
            self.broken.append((now - reply.elapsed.total_seconds(), now, f"{kind}: {reply.status_code}"))
        return f"{reply.status_code} {code}"


class Callers:
    """All callers, until they are stopped."""

    def __init__(self, url: str, llm: Llm) -> None:
        self.tally, self.over, self.may_call = Tally(), asyncio.Event(), asyncio.Event()
        self.may_call.set()
        self.llm, self.under_way = llm, collections.Counter[str]()

        def client(key: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {key}"}
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            return httpx.AsyncClient(
                base_url=url, headers=headers, timeout=PATIENCE_S, limits=limits, trust_env=False
            )

        self.http, self.admin = client(SCORE), client(ADMIN)

    async def repeat(self, call: Callable[[], Awaitable[str]], pause_s: float) -> None:
        """Call until it is over."""
        while not self.over.is_set():
            await self.may_call.wait()
            await self.once(call)
            await asyncio.sleep(random.uniform(0, 2 * pause_s))

    async def once(self, call: Callable[[], Awaitable[str]]) -> None:
        """Call, and note how it ended."""
        kind, began = call.__name__, time.monotonic()
        self.under_way[kind] += 1
        try:
            told = await call()
        except httpx.TimeoutException:
            told = "WEDGED"
            self.tally.wrong.append(f"{kind}: no reply in {PATIENCE_S:.0f} s")
        except httpx.TransportError as error:
            told = f"broken off ({type(error).__name__})"
            self.tally.broken.append((began, time.monotonic(), kind))
        finally:
            self.under_way[kind] -= 1
        self.tally.seen[f"{kind}: {told}"] += 1

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Pause all callers and wait until their calls have ended.

        A replica without open jobs stops DBOS, with its threads, after `STOP_AFTER_S`. Expired connections to
        the LLM are closed only by the next call of their replica, so some scores are requested first. The
        proxy chooses the replicas at random.
        """
        self.may_call.clear()
        try:
            end = time.monotonic() + 2 * PATIENCE_S
            while +self.under_way and time.monotonic() < end:
                await asyncio.sleep(0.2)
            if open_calls := dict(+self.under_way):
                self.tally.wrong.append(f"calls that do not end: {open_calls}")
                for job_id in [job_id for job_id, state in self.tally.jobs.items() if not state]:
                    with contextlib.suppress(httpx.TransportError):
                        self.tally.wrong.append((await self.admin.get(f"/jobs/{job_id}")).text)
            await asyncio.sleep(STOP_AFTER_S + 10)
            for _ in range(20):
                await self.once(self.score)
            yield
        finally:
            self.may_call.set()

    def body(self, **more: Any) -> dict[str, Any]:
        """Return a request, mostly for the calibrated model."""
        model = OWN if random.random() < 0.8 else OTHER
        asked = {"prompt": question(random.randrange(PROMPTS)), "model": model}
        return {**asked, "num_samples": random.randint(2, SAMPLES), **more}

    def scored(self, score: dict[str, Any]) -> str:
        """Check the calibration of a score."""
        if not score["calibrated"]:
            return "not calibrated"
        self.tally.num_calibrated += 1
        if score["model"] != OWN:
            self.tally.wrong.append(f"calibration of another model: {json.dumps(score)[:1500]}")
        return "calibrated"

    async def score(self, **more: Any) -> str:
        """Score a prompt."""
        reply = await self.http.post("/score", json=self.body(**more))
        return self.scored(reply.json()) if reply.status_code == 200 else self.tally.error("score", reply)

    async def score_by_deadline(self) -> str:
        """Score with a short deadline."""
        return await self.score(deadline_ms=1500)

    async def score_and_go(self) -> str:
        """Hang up before a score has come."""
        try:
            await self.http.post("/score", json=self.body(), timeout=random.uniform(0.05, 1.0))
        except httpx.TimeoutException:
            return "gone"
        return "done before"

    async def score_supplied(self) -> str:
        """Score answers of the caller's own."""
        texts, shares = answers_to(random.randrange(PROMPTS))
        samples = random.choices(texts, weights=shares.tolist(), k=6)
        reply = await self.http.post("/score", json={"samples": samples})
        return self.scored(reply.json()) if reply.status_code == 200 else self.tally.error("supplied", reply)

    async def batch(self) -> str:
        """Score several prompts in one call."""
        items = [self.body(deadline_ms=3000) for _ in range(8)]
        reply = await self.http.post("/score/batch", json={"items": items})
        if reply.status_code != 200:
            return self.tally.error("batch", reply)
        lines = [json.loads(line) for line in reply.text.splitlines()]
        for line in lines:
            if "result" in line:
                self.scored(line["result"])
            elif line["error"]["status"] not in MAY_BE or not line["error"].get("code"):
                self.tally.wrong.append(f"batch: {json.dumps(line)[:300]}")
        if len(lines) != len(items):
            self.tally.wrong.append(f"batch: {len(lines)} lines of {len(items)}")
        return "whole"

    async def chat(self, stream: bool = False) -> str:
        """Chat through the drop-in, with a score in the answer."""
        prompt = random.randrange(PROMPTS)
        messages = [{"role": "user", "content": question(prompt)}]
        body = {"model": OWN, "messages": messages, "stream": stream}
        began = time.monotonic()
        try:
            # Long enough for a frozen replica. Only callers give up a call that the LLM server leaves open.
            reply = await self.http.post("/v1/chat/completions", json=body, timeout=40)
        except httpx.ReadTimeout:
            if self.llm.unanswered.get(prompt, 0) >= began:
                return "given up: the LLM is silent"
            raise
        if reply.text == JUNK:
            return "junk of the LLM"
        if reply.status_code != 200:
            if any(reply.status_code == code and said in reply.text for code, said in LLM_SAYS):
                return f"{reply.status_code} of the LLM"  # passed through as it came
            return self.tally.error("chat", reply)
        if stream:
            if not re.search(r'\[DONE\]|"finish_reason": ?"stop"|"code": ?"', reply.text):
                self.tally.wrong.append(f"stream: {reply.text[-300:]}")
            return "scored" if '"lambda_max"' in reply.text else "without a score"
        return "scored" if "lambda_max" in (reply.json().get("uncertainty") or {}) else "without a score"

    async def chat_streamed(self) -> str:
        """Chat by a stream of events."""
        return await self.chat(stream=True)

    async def calibrate_drawn(self) -> str:
        """Have the service draw the answers of a calibration."""
        rows = [
            {"prompt": question(number), "reference": answers_to(number)[0][0]}
            for number in random.sample(range(PROMPTS), ROWS)
        ]
        return await self.calibrate(rows)

    async def calibrate_uploaded(self) -> str:
        """Upload rows with answers that the service has drawn."""
        rows = []
        for number in random.sample(range(PROMPTS), ROWS):
            texts, shares = answers_to(number)
            drawn = random.choices(range(4), weights=shares.tolist(), k=SAMPLES)
            rows.append(
                {
                    "prompt": question(number),
                    "reference": texts[0],
                    "samples": [texts[one] for one in drawn],
                    "logprobs": [max(math.log(shares[one]), -50.0) for one in drawn],
                }
            )
        return await self.calibrate(rows, drawn_by="service")

    async def calibrate(self, rows: list[dict[str, Any]], **options: Any) -> str:
        """Follow a calibration to its end."""
        reply = await self.admin.post("/calibrate", json={"examples": rows, "activate": "always", **options})
        if reply.status_code != 202:
            return self.tally.error("calibrate", reply)
        job_id = reply.json()["id"]
        self.tally.jobs[job_id] = ""
        while not self.over.is_set() and not self.tally.jobs[job_id]:
            await asyncio.sleep(1)
            await self.look_at(job_id)
        return self.tally.jobs[job_id] or "goes on"

    async def look_at(self, job_id: str) -> None:
        """Ask for a job; note how it ended."""
        try:
            reply = await self.admin.get(f"/jobs/{job_id}")
        except httpx.TransportError:
            return
        if reply.status_code != 200:
            self.tally.error(f"job {job_id}", reply)
            return
        job = reply.json()
        if job["state"] in ENDED:
            why = f" {job['error']['code']}: {job['error']['detail']}" if job.get("error") else ""
            self.tally.jobs[job_id] = job["state"] + why

    def tasks(self) -> list[asyncio.Task[None]]:
        """Start the crowd."""
        crowd: list[tuple[Callable[[], Awaitable[str]], float, int]] = [
            (self.score, 0.5, 4),
            (self.score_by_deadline, 0.5, 2),
            (self.score_and_go, 1.0, 1),
            (self.score_supplied, 1.0, 1),
            (self.batch, 3.0, 1),
            (self.chat, 0.5, 2),
            (self.chat_streamed, 0.5, 2),
            (self.calibrate_drawn, 20.0, 1),
            (self.calibrate_uploaded, 20.0, 1),
        ]
        return [asyncio.create_task(self.repeat(c, p)) for c, p, count in crowd for _ in range(count)]


class Faults:
    """The faults of the composition. The first replica is frozen, but lives: its memory is measured.

    `disk`: the folder of PostgreSQL's data, on a small disk.
    """

    def __init__(self, made: Composition, llm: Llm, disk: Path) -> None:
        self.made, self.llm, self.disk = made, llm, disk
        self.lives, self.dies = made.replicas()
        (self.postgres,) = made.shell("docker compose ps --quiet postgres").split()
        self.kills: list[tuple[float, float]] = []  # from the kill until the replica serves again
        self.starts = set[asyncio.Task[None]]()
        self.history = list[tuple[str, float, float]]()  # each fault, from when to when

    async def go_on(self) -> None:
        """Let one after the other happen, with a pause between."""
        while True:
            await asyncio.sleep(random.uniform(10, 30))
            fault = random.choice(
                [
                    self.killed,
                    self.restarted,
                    self.frozen,
                    self.database_killed,
                    self.database_frozen,
                    self.database_read_only,
                    self.database_disk_full,
                    self.llm_silent,
                    self.llm_failing,
                    self.llm_dead,
                ]
            )
            began = time.monotonic()
            await fault()
            self.history.append((fault.__name__, began, time.monotonic()))

    async def docker(self, *command: str) -> None:
        """Have the engine do something."""
        await asyncio.to_thread(run, "docker", *command)

    async def _while_it_dies(self, *command: str) -> None:
        before = (await asyncio.to_thread(self.made.inspect, self.dies))["State"]["StartedAt"]
        began = time.monotonic()
        try:
            await self.docker(*command)
        finally:
            self.starts.add(asyncio.create_task(self._until_healthy(began, before)))

    async def _until_healthy(self, began: float, before: str) -> None:
        """Note a kill once the container has been started after `before` and is healthy."""
        is_healthy = False
        while not is_healthy:
            await asyncio.sleep(1)
            state = (await asyncio.to_thread(self.made.inspect, self.dies))["State"]
            is_healthy = state["StartedAt"] != before and state["Health"]["Status"] == "healthy"
        self.kills.append((began, time.monotonic()))

    async def killed(self) -> None:
        """Kill the process of one replica; its container starts it again."""
        await self._while_it_dies("exec", self.dies, "sh", "-c", f"{KILL} || true")

    async def restarted(self) -> None:
        """Stop a replica as an operator does, and start it."""
        await self._while_it_dies("restart", "--time", "40", self.dies)

    async def frozen(self) -> None:
        """Let a replica stand still."""
        one = random.choice([self.lives, self.dies])
        await self.docker("pause", one)
        await asyncio.sleep(random.uniform(3, 12))
        await self.docker("unpause", one)

    async def database_killed(self) -> None:
        """Kill PostgreSQL and start it again."""
        await self.docker("kill", self.postgres)
        await asyncio.sleep(random.uniform(0, 5))
        await self.docker("start", self.postgres)

    async def database_frozen(self) -> None:
        """Let PostgreSQL stand still."""
        await self.docker("pause", self.postgres)
        await asyncio.sleep(random.uniform(3, 12))
        await self.docker("unpause", self.postgres)

    async def database_read_only(self) -> None:
        """Let PostgreSQL refuse writes, as after a failover to another server."""
        await self._psql(READ_ONLY.format("on"))
        try:
            await asyncio.sleep(random.uniform(5, 15))
        finally:
            await self._psql(READ_ONLY.format("off"))

    async def _psql(self, statements: str) -> None:
        command = ("psql", "--username=eigencal", "--dbname=eigencal", "--no-psqlrc", "--quiet")
        options = [f"--command={statement}" for statement in statements.split(";")]
        await self.docker("exec", self.postgres, *command, *options)

    async def database_disk_full(self) -> None:
        """Fill the disk of PostgreSQL, which stops when it cannot write its log."""
        filler = self.disk / "filler"
        await asyncio.to_thread(fill, filler)
        await asyncio.sleep(random.uniform(10, 20))
        filler.unlink()
        await self.docker("start", self.postgres)

    async def _llm(self, state: str, seconds: float) -> None:
        self.llm.state = state
        await asyncio.sleep(seconds)
        self.llm.state = "well"

    async def llm_silent(self) -> None:
        """Let the LLM take calls and say nothing."""
        await self._llm("silent", random.uniform(5, 15))

    async def llm_failing(self) -> None:
        """Let the LLM answer most calls with an error, junk or nothing."""
        await self._llm("failing", random.uniform(5, 20))

    async def llm_dead(self) -> None:
        """Let the LLM refuse connections."""
        await self.llm.end()
        await asyncio.sleep(random.uniform(2, 10))
        await self.llm.begin()


READ_ONLY = (
    "SET default_transaction_read_only = off;"
    "ALTER DATABASE eigencal SET default_transaction_read_only = {};"
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def fill(filler: Path) -> None:
    """Write a file until its disk is full."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk of 1.5 GB; needs root."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1500m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


# Runs in a container. Prints memory, open files without connections to PostgreSQL, these connections, and
# threads of the service's process.
COUNTED = """
import os, re
pid = open("/proc/1/task/1/children").read().split()[0]
lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/{pid}/net/{name}")]
to_postgres = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(":1538")}
files = []
for name in os.listdir(f"/proc/{pid}/fd"):
    try:
        files.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    except FileNotFoundError:
        pass
pooled = sum(file in to_postgres for file in files)
rss = re.search(r"VmRSS:\\s+(\\d+)", open(f"/proc/{pid}/status").read())[1]
print(rss, len(files) - pooled, pooled, len(os.listdir(f"/proc/{pid}/task")))
"""


def measured(made: Composition, replica: str) -> dict[str, float]:
    """Return the memory, open files and threads of the service's process in a container, and disk sizes.

    Connections to PostgreSQL are counted separately: a fault of PostgreSQL empties their pools, which then
    refill to their limits. Leaked connections would exhaust the pools, and calls would fail. Probes continue
    while callers are paused, so each number is the smallest of ten.
    """
    counts = [
        [int(number) for number in run("docker", "exec", replica, "python", "-c", COUNTED).split()]
        for _ in range(10)
    ]
    rss, files, pooled, threads = (min(column) for column in zip(*counts, strict=True))
    sizes = run("docker", "exec", replica, "sh", "-c", "du -sk /data /tmp | cut -f1").split()
    data, tmp = (float(size) for size in sizes)
    size = made.shell(
        "docker compose exec -T postgres psql -U eigencal -Atc \"select pg_database_size('eigencal')\""
    )
    return {
        "RSS MiB": rss / 1024,
        "open files": files,
        "connections to PostgreSQL": pooled,
        "threads": threads,
        "/data MiB": data / 1024,
        "/tmp MiB": tmp / 1024,
        "database MiB": float(size) / 2**20,
    }


async def drive(minutes: float) -> int:
    """Run the load and the faults, and say how it went."""
    llm = Llm()
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "disk") as disk:
        async with llm.server:
            made = await asyncio.to_thread(
                Composition,
                Path(folder) / "project",
                COMPOSE_PROFILES="external,postgres",
                IMAGE_TAG="test",
                REPLICAS="2",
                POSTGRES_PASSWORD="letters4and0digits",
                EIGENCAL_DATABASE_URL="postgresql://eigencal:${POSTGRES_PASSWORD}@postgres:5432/eigencal",
                EIGENCAL_LLM_URL=f"http://host.docker.internal:{llm.server.port}/v1",
                EIGENCAL_LLM_MODEL=OWN,
                EIGENCAL_LLM_TIMEOUT_S="20",
                EIGENCAL_NUM_SAMPLES=str(SAMPLES),
                EIGENCAL_GET_TO_KNOW="false",
                EIGENCAL_EMBEDDER="all-MiniLM-L6-v2",
                WEIGHTS="all-MiniLM-L6-v2",
            )
            try:
                # Merged with the override file of the composition.
                (made.folder / "docker-compose.disk.yml").write_text(ON_DISK.format(disk=disk))
                files = "docker-compose.yml:docker-compose.override.yml:docker-compose.disk.yml"
                made.set(COMPOSE_FILE=files)
                await asyncio.to_thread(made.shell, "docker compose up -d --build")
                await asyncio.to_thread(made.ready)
                return await soak(made, llm, minutes, disk)
            finally:
                await asyncio.to_thread(made.down)


async def soak(made: Composition, llm: Llm, minutes: float, disk: Path) -> int:
    """Run it for so long, then let everything come to an end."""
    callers = Callers(made.url, llm)
    faults = Faults(made, llm, disk)
    tasks, befalling = callers.tasks(), asyncio.create_task(faults.go_on())
    figures = []
    for third in range(3):
        await asyncio.sleep(20 * minutes)
        befalling.cancel()  # in the middle of its work: the rest follows
        await asyncio.gather(befalling, return_exceptions=True)
        await mended(made, llm, disk)
        async with callers.at_rest():
            figures.append(await asyncio.to_thread(measured, made, faults.lives))
        print(f"{(third + 1) * minutes / 3:.0f} min:", told(figures[-1]), flush=True)
        print("   ", dict(callers.tally.seen), "wrong:", len(callers.tally.wrong), flush=True)
        befalling = asyncio.create_task(faults.go_on())
    befalling.cancel()
    await asyncio.gather(befalling, return_exceptions=True)
    await mended(made, llm, disk)
    callers.over.set()
    await asyncio.gather(*tasks)
    end = time.monotonic() + 2 * PATIENCE_S
    while "" in callers.tally.jobs.values() and time.monotonic() < end:
        for job_id in [one for one, state in callers.tally.jobs.items() if not state]:
            await callers.look_at(job_id)
        await asyncio.sleep(1)
    await asyncio.gather(*faults.starts)
    restarts = (await asyncio.to_thread(made.inspect, faults.lives))["RestartCount"]
    return verdict(callers, faults, figures, restarts)


async def mended(made: Composition, llm: Llm, disk: Path) -> None:
    """Undo the last fault and wait until the service is ready."""
    (disk / "filler").unlink(missing_ok=True)
    llm.state = "well"
    if llm.is_dead:
        await llm.begin()
    paused = "docker compose ps --quiet --status paused | xargs --no-run-if-empty docker unpause"
    await asyncio.to_thread(made.shell, f"{paused}; docker compose up -d")
    await asyncio.to_thread(made.ready)


def told(figures: dict[str, float]) -> str:
    """Return figures in a line."""
    return ", ".join(f"{name} {number:.0f}" for name, number in figures.items())


def verdict(callers: Callers, faults: Faults, figures: list[dict[str, float]], restarts: int) -> int:
    """Print all that was seen; return 1 where something should not have been.

    restarts: of the replica that lives through it.
    """
    tally = callers.tally
    lost = [one for one, state in tally.jobs.items() if not state]
    unexplained = [
        (began, ended, kind)
        for began, ended, kind in tally.broken
        if not any(began <= over and killed <= ended for killed, over in faults.kills)
    ]
    grown = [
        name for name in ("RSS MiB", "open files", "threads") if figures[2][name] > 1.1 * figures[0][name]
    ]
    ended = collections.Counter(tally.jobs.values())
    absent = [] if tally.num_calibrated else ["a calibrated score"]
    absent += [] if ended["succeeded"] else ["a job that succeeds"]
    print("faults:", dict(collections.Counter(name for name, *_ in faults.history)))
    for kind, count in sorted(tally.seen.items()):
        print(f"  {count:6} {kind}")
    print("calibrated scores:", tally.num_calibrated)
    print("jobs:", dict(ended), "lost:", lost)
    print(f"broken off, or 502 of a dead replica: {len(tally.broken)}, unexplained: {len(unexplained)}")
    for began, ended, kind in unexplained:
        latest = [
            f"{name} from {start - began:+.1f} to {over - began:+.1f} s"
            for name, start, over in faults.history
            if start < ended and over > began - 40
        ]
        print(f"   {kind} after {ended - began:.1f} s; faults: {', '.join(latest) or 'none'}")
    print("grown by a tenth:", grown, "not seen at all:", absent, "starts anew:", restarts)
    print("wrong:", len(tally.wrong))
    for one in tally.wrong[:20]:
        print("  ", one)
    failed = [state for state in ended if "internal" in state]
    return 1 if tally.wrong or lost or unexplained or grown or absent or failed or restarts else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    sys.exit(asyncio.run(drive(parser.parse_args().minutes)))
