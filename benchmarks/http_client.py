"""Processor time of HTTP calls to an LLM server, and two trials of the connections.

Candidates run in turn within one run: the service's `Connections`, a bare `httpx2.AsyncClient` and, if it is
installed, aiohttp. The server is another process. `--old FILE`: a former service/remote.py with aiohttp.
"""

import argparse
import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvloop

from service.addresses import api_base, endpoint
from service.remote import Connections

CONTENT = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}]}).encode()
ANSWER = b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Paris"}}]}'
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "word"}}]}\n\n'
HEADERS = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
CHUNKS = 40
PAUSE_S = 0.002  # before an answer, and between the chunks of a stream
CALLS = {"plain": {1: 200, 16: 1600, 320: 3200}, "stream": {1: 20, 16: 320, 320: 960}}

Call = Callable[[str], Awaitable[bytes]]
Candidate = Callable[[str], Any]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            await asyncio.sleep(3600 if b" /v1/hang" in head else PAUSE_S)
            if b" /v1/stream" in head:
                kind = b"text/event-stream\r\ntransfer-encoding: chunked"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n" % kind)
                for _ in range(CHUNKS):
                    writer.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
                    await asyncio.sleep(PAUSE_S)
                writer.write(b"0\r\n\r\n")
                continue
            whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
            unasked = whole.replace(b"Paris", b"Lyon!")
            writer.write(whole + unasked if b" /v1/more" in head else whole)
            if b" /v1/later" in head:
                await asyncio.sleep(PAUSE_S)
                writer.write(unasked)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def served() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.http_client", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@asynccontextmanager
async def service(url: str) -> AsyncIterator[Call]:
    base = api_base(url, "URL")
    connections = Connections(base)

    async def call(path: str) -> bytes:
        async with connections.stream("POST", endpoint(base, path), CONTENT) as response:
            return b"".join([piece async for piece in response.aiter_raw()])

    yield call
    await connections.close()


@asynccontextmanager
async def bare_httpx2(url: str) -> AsyncIterator[Call]:
    limits = httpx2.Limits(keepalive_expiry=3.0)
    async with httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False, headers=HEADERS) as http:

        async def call(path: str) -> bytes:
            async with http.stream("POST", f"{url}/v1{path}", content=CONTENT) as response:
                return b"".join([piece async for piece in response.aiter_raw()])

        yield call


@asynccontextmanager
async def bare_aiohttp(url: str) -> AsyncIterator[Call]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=HEADERS) as http:

        async def call(path: str) -> bytes:
            async with http.post(f"{url}/v1{path}", data=CONTENT) as response:
                return b"".join([piece async for piece in response.content.iter_any()])

        yield call


def old(file: Path) -> Candidate:
    spec = importlib.util.spec_from_file_location("old_remote", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    @asynccontextmanager
    async def former(url: str) -> AsyncIterator[Call]:
        connections = module.Connections(url)

        async def call(path: str) -> bytes:
            response = await connections.request("POST", f"{url}/v1{path}", CONTENT)
            try:
                return b"".join([piece async for piece in module.pieces(response)])
            finally:
                response.close()

        yield call
        await connections.close()

    return former


async def cost_ms(candidate: Candidate, url: str, path: str, in_flight: int, calls: int) -> float:
    """Return the processor time of a call in this process, without the calls that connect."""
    async with candidate(url) as call:

        async def caller(number: int) -> None:
            for _ in range(number):
                await call(path)

        await asyncio.gather(*(caller(1) for _ in range(in_flight)))
        each, began = calls // in_flight, time.process_time()
        await asyncio.gather(*(caller(each) for _ in range(in_flight)))
        return 1000 * (time.process_time() - began) / (each * in_flight)


async def unasked_bytes(candidate: Candidate, url: str, path: str, calls: int = 10) -> str:
    """Return how many calls got their own answer from a server that sends extra bytes."""
    async with candidate(url) as call:
        good = 0
        for _ in range(calls):
            good += await call(path) == ANSWER
            await asyncio.sleep(0.1)
    return f"{good} of {calls} calls got their own answer"


async def cancelled(candidate: Candidate, url: str, rounds: int = 10, calls: int = 200) -> str:
    """Return the number of rounds of cancelled calls after which all other calls were answered."""
    good = 0
    async with candidate(url) as call:
        for number in range(rounds):
            tasks = [asyncio.create_task(call("/hang")) for _ in range(calls)]
            await asyncio.sleep(0.03 * number)  # before, while and after they connect
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with asyncio.timeout(60):
                good += set(await asyncio.gather(*(call("/plain") for _ in range(calls)))) == {ANSWER}
    return f"{good} of {rounds} rounds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve())
        return
    candidates: dict[str, Candidate] = {"service": service, "bare httpx2": bare_httpx2}
    if importlib.util.find_spec("aiohttp"):
        candidates["bare aiohttp"] = bare_aiohttp
    if options.old:
        candidates["former service"] = old(options.old)
    with served() as url:
        print("ms of processor time per call".ljust(32), *(f"{name:>15}" for name in candidates))
        for path, loads in CALLS.items():
            for in_flight, calls in loads.items():
                costs = {name: list[float]() for name in candidates}
                for _ in range(options.rounds):
                    for name, candidate in candidates.items():
                        costs[name].append(uvloop.run(cost_ms(candidate, url, f"/{path}", in_flight, calls)))
                medians = (f"{statistics.median(cost):15.3f}" for cost in costs.values())
                print(f"{path}, {in_flight} in flight".ljust(32), *medians, flush=True)
        for name, candidate in candidates.items():
            for path, when in (("/more", "with the response"), ("/later", "later")):
                outcome = uvloop.run(unasked_bytes(candidate, url, path))
                print(f"{name}, unasked bytes {when}: {outcome}", flush=True)
            print(f"{name}, 200 cancelled calls: {uvloop.run(cancelled(candidate, url))}", flush=True)


if __name__ == "__main__":
    main()
