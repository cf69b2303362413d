"""Requests per second and latency of /score on one core, with fakes of the LLM and the embedder.

The server has a core to itself, the load generator another. Beside it, in the same run, GET /healthz: what
the HTTP stack alone costs.
"""

import asyncio
import json
import urllib.request

from benchmarks.load import Load, request, run
from benchmarks.processes import PYTHON, free_port, running, wait_for


def main() -> None:
    port = free_port()
    env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with running([PYTHON, "-m", "benchmarks.fake_service", str(port)], env=env, cores={0}) as server:
        wait_for(f"http://127.0.0.1:{port}/healthz", server, 60)
        score = request("127.0.0.1", port, "/score", json.dumps({"prompt": "Who?"}).encode())
        health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        asyncio.run(run("127.0.0.1", port, score, callers=1, requests=300))  # warm-up
        for callers in (1, 8):
            base = asyncio.run(run("127.0.0.1", port, health, callers=callers, requests=2000))
            ours = asyncio.run(run("127.0.0.1", port, score, callers=callers, requests=2000))
            show(f"GET /healthz, {callers} caller(s)", base)
            show(f"POST /score,  {callers} caller(s)", ours)
            print(f"  /score costs {base.per_second / ours.per_second:.1f} times /healthz")
        body = urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{port}/score", b'{"prompt":"Who?"}', {"Content-Type": "application/json"}
            )
        ).read()
        print("stages of one score (ms):", json.loads(body)["timings_ms"])


def show(name: str, load: Load) -> None:
    print(f"{name}: {load.per_second:.0f} requests/s, p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms")


if __name__ == "__main__":
    import os

    os.sched_setaffinity(0, {1})
    main()
