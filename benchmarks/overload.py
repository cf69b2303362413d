"""The service under overload: answers per second, and latencies of answers and refusals.

Three processes over real sockets: a stub of an LLM server that takes about a second for a request, and a
twentieth of it for a yes-or-no question, the service with a fake embedder, and callers at 0.5, 1, 1.25, 4, 10
and 30 times the service's slots. Callers start over some seconds. A caller asks again after each answer;
after a refusal it waits for one to two times Retry-After. Rounds of `/score` without and with `deadline_ms`.
Figures per round, once it has settled: answers per second; p50 and p99 in ms of answers (200) and refusals
(503); number of late calls (504), and of calls without an answer for half a minute.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import defaultdict

import uvicorn

from benchmarks.processes import PYTHON, free_port, running, wait_for
from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder
from tests.support.sqlite_store import SqliteStore

FACTORS = (0.5, 1, 1.25, 4, 10, 30)
ANSWER_S, DEADLINE_MS, HUNG_S = 1.0, 1500, 30.0
COMING_S, SETTLING_S = 4.0, 5.0  # time in which callers start, and time before figures are taken
ROW = "{:<9} {:>7} {:>9} {:>15} {:>15} {:>6} {:>6}"


async def stub(port: int) -> None:
    """Run an LLM server that answers each request after about ANSWER_S."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the service has closed the connection
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port, backlog=4096) as server:
        await server.serve_forever()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    head = await reader.readuntil(b"\r\n\r\n")
    body = json.loads(await reader.readexactly(header(head, b"content-length", 0)) or b"{}")
    content = b'{"data": [{"id": "stub"}]}'
    if head.startswith(b"POST"):
        is_question = body.get("max_tokens") == 1
        await asyncio.sleep(ANSWER_S * random.uniform(0.75, 1.25) * (0.05 if is_question else 1))
        text: dict[str, object] = {"finish_reason": "stop", "message": {"content": "Paris"}}
        if is_question:
            likely = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
            text["logprobs"] = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": likely}]}
        choices = [{"index": i, **text} for i in range(body.get("n", 1))]
        content = json.dumps({"model": "stub", "choices": choices}).encode()
    kind = b"application/json"
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(content)))
    writer.write(content)
    await writer.drain()
    return True


def request(host: str, port: int, path: str, body: bytes) -> bytes:
    """Return a POST request as bytes."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def header(head: bytes, name: bytes, default: int) -> int:
    """Return a number from the headers of a message."""
    lines = head.lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(name + b":")), default)


def service(port: int, llm_port: int, slots: int) -> None:
    """Run the real application and LLM client, with a fake embedder and store to save CPU time."""
    url = f"http://127.0.0.1:{llm_port}"
    settings = Settings(llm_url=url, llm_model="stub", llm_slots=slots)
    app = create_app(settings, embedder=FakeEmbedder(), store=SqliteStore())
    uvicorn.run(app, port=port, log_level="error", access_log=False, backlog=4096)


class Round:
    """Callers for some seconds. `times`: latencies in s after settling, by status (0: no answer)."""

    def __init__(self, port: int, body: dict[str, object], seconds: float) -> None:
        self.port = port
        self.raw = request("127.0.0.1", port, "/score", json.dumps(body).encode())
        self.seconds = seconds
        self.begun = time.perf_counter()
        self.times: dict[int, list[float]] = defaultdict(list)

    async def run(self, callers: int) -> None:
        """Run the callers."""
        await asyncio.gather(*(self.caller(i / callers * COMING_S) for i in range(callers)))

    async def caller(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        while time.perf_counter() - self.begun < self.seconds:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                while time.perf_counter() - self.begun < self.seconds:
                    if await self.ask(reader, writer) == 503:
                        break  # by now the service has closed an idle connection
            except TimeoutError:
                self.times[0].append(HUNG_S)
            finally:
                writer.close()

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        start = time.perf_counter()
        async with asyncio.timeout(HUNG_S):
            writer.write(self.raw)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(header(head, b"content-length", 0))
        status, now = int(head.split(b" ", 2)[1]), time.perf_counter()
        if SETTLING_S < now - self.begun < self.seconds:
            self.times[status].append(now - start)
        if status == 503:
            wait_s = header(head, b"retry-after", 1) * random.uniform(1, 2)
            await asyncio.sleep(min(wait_s, max(0.0, self.begun + self.seconds - now)))
        return status

    def row(self, name: str, callers: int) -> str:
        """Return the figures of the round."""
        good = len(self.times[200]) / (self.seconds - SETTLING_S)
        late, hung = len(self.times[504]), len(self.times[0])
        return ROW.format(name, callers, f"{good:.1f}", self.cuts(200), self.cuts(503), late, hung)

    def cuts(self, status: int) -> str:
        times = self.times[status]
        if len(times) < 2:
            return "-"
        return f"{statistics.median(times) * 1000:.0f} / {_p99(times) * 1000:.0f}"


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


async def measure(port: int, slots: int, seconds: float) -> None:
    plain: dict[str, object] = {"prompt": "Who?", "num_samples": 4}
    columns = ("callers", "answers/s", "answered ms", "refused ms", "late", "hung")
    print(ROW.format("", *columns))
    for name, body in {"plain": plain, "deadline": plain | {"deadline_ms": DEADLINE_MS}}.items():
        for factor in FACTORS:
            callers = int(slots * factor)
            round_ = Round(port, body, seconds)
            await round_.run(callers)
            print(round_.row(name, callers), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20, help="length of a round")
    options = parser.parse_args()
    port, llm_port = free_port(), free_port()
    module = [PYTHON, "-m", "benchmarks.overload"]
    with (
        running([*module, "--llm", str(llm_port)]),
        running([*module, "--service", str(port), str(llm_port), str(options.slots)]) as ours,
    ):
        wait_for(f"http://127.0.0.1:{port}/readyz", ours, 60)
        asyncio.run(measure(port, options.slots, options.seconds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--llm"]:
        asyncio.run(stub(int(sys.argv[2])))
    elif sys.argv[1:2] == ["--service"]:
        service(*map(int, sys.argv[2:]))
    else:
        main()
