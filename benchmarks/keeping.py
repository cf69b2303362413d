"""What keeping each score for GET /scores/{id} adds to /score: processor time and latency, in turn.

Two services with fakes of the LLM and the embedder, their store a SQLite file of its own: one keeps scores,
the other does not. Rounds of requests go to one and the other, so that other work on the machine meets both.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load import Load, request, run
from benchmarks.processes import PYTHON, free_port, running, wait_for

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
REQUESTS = 1000  # in a round


def serve(port: int) -> None:
    import uvicorn

    from benchmarks.fake_service import ANSWERS
    from service.app import create_app
    from service.settings import Settings
    from tests.support.fakes import FakeEmbedder, FakeLLM

    app = create_app(Settings(), llm=FakeLLM(default=ANSWERS), embedder=FakeEmbedder(768))
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def processor_s(pid: int) -> float:
    """Processor time that a process has used, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--callers", type=int, default=4)
    options = parser.parse_args()
    with ExitStack() as stack:
        ports, pids = {}, {}
        for name, keep_s in (("kept", "3600"), ("not kept", "0")):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            port = ports[name] = free_port()
            env = {"OMP_NUM_THREADS": "1", "EIGENCAL_DATA_DIR": folder, "EIGENCAL_SCORE_TTL_S": keep_s}
            command = [PYTHON, "-m", "benchmarks.keeping", "serve", str(port)]
            process = stack.enter_context(running(command, env=env))
            wait_for(f"http://127.0.0.1:{port}/healthz", process, 60)
            pids[name] = process.pid
        compare(ports, pids, options.rounds, options.callers)


def compare(ports: dict[str, int], pids: dict[str, int], rounds: int, callers: int) -> None:
    used: dict[str, list[float]] = {name: [] for name in ports}
    loads: dict[str, list[Load]] = {name: [] for name in ports}
    for number in range(-1, rounds):
        for name in sorted(ports, reverse=bool(number % 2)):
            raw = request("127.0.0.1", ports[name], "/score", json.dumps({"prompt": "Who?"}).encode())
            before = processor_s(pids[name])
            load = asyncio.run(run("127.0.0.1", ports[name], raw, callers=callers, requests=REQUESTS))
            if number >= 0:  # the first warms up
                used[name].append((processor_s(pids[name]) - before) / REQUESTS * 1e6)
                loads[name].append(load)
    for name in ports:
        p50, p99 = (statistics.median(getattr(one, f"{p}_ms") for one in loads[name]) for p in ("p50", "p99"))
        print(
            f"{name}: {statistics.median(used[name]):.0f} us of processor time a score, "
            f"p50 {p50:.2f} ms, p99 {p99:.2f} ms ({callers} callers)"
        )
    ratios = [one / other for one, other in zip(used["kept"], used["not kept"], strict=True)]
    low, middle, high = statistics.quantiles(ratios)
    print(f"processor time, kept over not kept: {middle:.3f} (quartiles of rounds {low:.3f} .. {high:.3f})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    else:
        main()
