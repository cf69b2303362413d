"""A small load generator: keep-alive connections on plain sockets, so that the client costs little."""

import asyncio
import statistics
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Requests per second and latencies (ms) of one run."""

    per_second: float
    p50_ms: float
    p99_ms: float


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> None:
    writer.write(raw)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    body = await reader.readexactly(length)
    if status != 200:
        raise RuntimeError(f"status {status}: {body[:300]!r}")


def request(host: str, port: int, path: str, body: bytes) -> bytes:
    """Return a POST request as bytes."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def run(host: str, port: int, raw: bytes, *, callers: int, requests: int) -> Load:
    """Send `requests` requests from `callers` connections, each waiting for its answer before the next."""
    latencies: list[float] = []

    async def caller(count: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for _ in range(count):
            start = time.perf_counter()
            await _one(reader, writer, raw)
            latencies.append(time.perf_counter() - start)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(caller(requests // callers) for _ in range(callers)))
    wall = time.perf_counter() - start
    cuts = statistics.quantiles(latencies, n=100)
    return Load(len(latencies) / wall, statistics.median(latencies) * 1000, cuts[98] * 1000)
