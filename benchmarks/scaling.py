"""Use of cores, memory and Postgres by replicas, for each number of answers and of replicas.

First the embedder on one thread without a cache: core-seconds for 100 scores of the bundled recorded answers.
Then real services with a scripted LLM on a real Postgres: connections and transactions when idle and under
load, memory, and the size in bytes of a score, a row and a job.

    python -m benchmarks.scaling [--replicas 1 3] [--embedder all-MiniLM-L6-v2]
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import psycopg

from benchmarks.processes import PYTHON, ROOT, free_port, running, wait_for
from tests.support.openai_server import MODEL, Exchange, OpenAIServer, completion
from tests.support.postgres import cluster

RECORDED = [json.loads(line) for line in (ROOT / "demo/everyday_recorded.jsonl").open()]
QUIET_S = 20.0
SCORES, CALLERS = 2000, 32
ROWS = 200
EMBED = """
import asyncio, json, sys, time, torch
from pathlib import Path
from service.embedding.local import SentenceTransformerEmbedder
torch.set_num_threads(1)
scores = json.load(sys.stdin)
async def main():
    embedder = SentenceTransformerEmbedder(sys.argv[1], cache_dir=Path("data/weights"), cache_size=0)
    await embedder.start()
    for texts in scores[:5]:
        await embedder.embed(texts)
    began = time.process_time()
    for texts in scores:
        await embedder.embed(texts)
    print((time.process_time() - began) / len(scores))
    await embedder.stop()
asyncio.run(main())
"""


def embedding_s(embedder: str, num_samples: int) -> tuple[float, float]:
    """Return the core-seconds per score, and the mean number of distinct answers."""
    scores = [[*dict.fromkeys(row["samples"][:num_samples]), row["prompt"]] for row in RECORDED]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [PYTHON, "-c", EMBED, embedder]
    completed = subprocess.run(
        command, input=json.dumps(scores), env=env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return float(completed.stdout.split()[-1]), sum(len(texts) - 1 for texts in scores) / len(scores)


def by_num_samples(embedders: list[str]) -> None:
    for embedder in embedders:
        for num_samples in (3, 8, 20):
            seconds, distinct = embedding_s(embedder, num_samples)
            shown = f"{100 * seconds:.2f} core-seconds for 100 scores"
            print(f"{embedder}, {num_samples} answers ({distinct:.1f} distinct): {shown}")


async def answer(exchange: Exchange, counter: itertools.count) -> None:
    del exchange.server.requests[:]
    n = int(exchange.body.get("n", 1))
    await exchange.send(
        200, completion(exchange, [f"answer {next(counter) % 9000}" for _ in range(n)], "stop")
    )


def memory_mib(pid: int, name: str = "VmRSS") -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


class Store:
    """Statistics of Postgres."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._name = self._connection.info.dbname

    def value(self, query: str) -> float:
        row = self._connection.execute(query.encode()).fetchone()
        return float(row[0]) if row and row[0] is not None else 0.0

    @property
    def connections(self) -> int:
        of = f"datname = '{self._name}' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        return int(self.value(f"SELECT count(*) FROM pg_stat_activity WHERE {of}"))

    @property
    def commits(self) -> float:
        self._connection.execute("SELECT pg_stat_clear_snapshot()")
        of = f"datname = '{self._name}'"
        return self.value(f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE {of}")

    def size(self, table: str = "") -> float:
        """Return the bytes of a table with its indexes, or of all tables."""
        self._connection.execute("CHECKPOINT")
        ours = "relkind = 'r' AND relnamespace::regnamespace::text !~ '^(pg_|information)'"
        tables = f"SELECT oid FROM pg_class WHERE {ours}"
        where = f"SELECT '{table}'::regclass::oid" if table else tables
        return self.value(f"SELECT sum(pg_total_relation_size(oid)) FROM ({where}) AS t(oid)")


Service = tuple[subprocess.Popen[bytes], str]


@asynccontextmanager
async def services(number: int, url: str, llm: str, embedder: str) -> AsyncIterator[list[Service]]:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "weights").symlink_to(ROOT / "data" / "weights")
        started = []
        for i in range(number):
            port = free_port()
            env = {
                "EIGENCAL_LLM_URL": llm, "EIGENCAL_DATABASE_URL": url,
                "EIGENCAL_PORT": str(port), "EIGENCAL_DATA_DIR": folder,
                "EIGENCAL_EMBEDDER": embedder, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
                "MALLOC_TRIM_THRESHOLD_": "131072", "EIGENCAL_MAX_TOKENS": "32",
            }  # fmt: skip
            command = [PYTHON, "-m", "service"]
            process = stack.enter_context(
                running(command, env=env, log=Path("data") / f"bench-scaling-{i}.log")
            )
            started.append((process, f"http://127.0.0.1:{port}"))
        for process, address in started:
            await asyncio.to_thread(wait_for, f"{address}/readyz", process, 180)
        yield started


async def load(addresses: list[str], scores: int, store: Store) -> int:
    """Score distinct prompts; return the maximum number of open connections."""
    numbers, most = iter(range(scores)), 0
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as http:

        async def caller(address: str) -> None:
            for number in numbers:
                while True:
                    reply = await http.post(f"{address}/score", json={"prompt": f"Question {number}?"})
                    if reply.status_code != 503:
                        break
                    await asyncio.sleep(float(reply.headers["retry-after"]))
                reply.raise_for_status()

        callers = asyncio.gather(*(caller(addresses[i % len(addresses)]) for i in range(CALLERS)))
        while not callers.done():
            most = max(most, await asyncio.to_thread(lambda: store.connections))
            await asyncio.wait({callers}, timeout=0.2)
        await callers
    return most


async def calibrate(address: str) -> None:
    rows = [
        {"id": str(i), "prompt": f"Question {i}?", "reference": f"answer {i % 7}",
         "samples": [f"answer {(i * j) % (3 + i % 9)}" for j in range(20)],
         "logprobs": [-1.0 - j / 10 for j in range(20)]}
        for i in range(ROWS)
    ]  # fmt: skip
    body = "\n".join(map(json.dumps, rows)).encode()
    async with httpx.AsyncClient(base_url=address, timeout=300) as http:
        reply = await http.post(
            "/calibrate", files={"file": ("rows.jsonl", body)}, data={"activate": "never"}
        )
        job = reply.raise_for_status().json()["id"]
        while (state := (await http.get(f"/jobs/{job}")).json())["state"] in ("queued", "running"):
            await asyncio.sleep(0.5)
        if state["state"] != "succeeded":
            raise RuntimeError(state)


async def on_postgres(replicas: list[int], embedder: str) -> None:
    counter = itertools.count()
    with cluster() as database:
        async with OpenAIServer(default=lambda exchange: answer(exchange, counter), models=(MODEL,)) as llm:
            for number in replicas:
                store = Store(url := database.database())
                async with services(number, url, llm.url, embedder) as started:
                    await one_run(number, store, started)


async def one_run(number: int, store: Store, started: list[Service]) -> None:
    await asyncio.sleep(5)
    idle, before = store.connections, store.commits
    await asyncio.sleep(QUIET_S)
    per_s = (store.commits - before) / QUIET_S
    print(f"{number} replica(s), nobody asks: {idle} connections, {per_s:.1f} transactions/s")
    fresh = [memory_mib(process.pid) for process, _ in started]
    before, size, began = store.commits, store.size("kept"), time.perf_counter()
    most = await load([address for _, address in started], SCORES, store)
    took = time.perf_counter() - began
    await asyncio.sleep(2)
    per_score = (store.commits - before - per_s * (took + 2)) / SCORES
    print(f"  {SCORES} scores of 20 answers: {most} connections at most, {per_score:.2f} transactions each")
    print(f"  a score kept: {(store.size('kept') - size) / SCORES:.0f} bytes")
    after = [memory_mib(process.pid) for process, _ in started]
    print(f"  memory: {fresh[0]:.0f} MiB after the start, {after[0]:.0f} MiB after {SCORES} scores")
    rows, whole = store.size("dev_rows"), store.size()
    await calibrate(started[0][1])
    await asyncio.sleep(2)
    row, job = (store.size("dev_rows") - rows) / ROWS, store.size() - whole
    print(f"  a row of 20 short answers: {row:.0f} bytes; a job of {ROWS} rows, all tables: {job:.0f}")
    pid = started[0][0].pid
    print(
        f"  memory: {memory_mib(pid):.0f} MiB after the job, {memory_mib(pid, 'VmHWM'):.0f} at most",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--embedder", default="all-mpnet-base-v2")
    options = parser.parse_args()
    by_num_samples(["all-MiniLM-L6-v2", "all-mpnet-base-v2"])
    asyncio.run(on_postgres(options.replicas, options.embedder))


if __name__ == "__main__":
    main()
