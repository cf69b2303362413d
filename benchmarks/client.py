"""What the Python client adds to a bare httpx call of the same request to the same service.

One call of each in turn, on kept connections, the order swapped every time: POST /score by httpx with its
body as JSON and its answer read as JSON, and `score` of the client. Medians, their difference and ratio;
waiting and awaited. The service has a fake LLM and a fake embedder, so that its own share is small.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from benchmarks.processes import PYTHON, free_port, running, wait_for
from eigencal import AsyncClient, Client

PROMPT = "How many legs does a spider have?"
BODY = {"prompt": PROMPT, "num_samples": 10}
WARM_UP = 50
Step = Callable[[], Awaitable[object]]


@dataclass
class Pair:
    """Latencies of both, in ms, by round."""

    bare: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)

    def told(self, name: str) -> str:
        bare, client = statistics.median(self.bare), statistics.median(self.client)
        own = statistics.quantiles(
            [ours - theirs for ours, theirs in zip(self.client, self.bare, strict=True)]
        )
        return (
            f"{name}: bare {bare:.3f} ms, client {client:.3f} ms; difference of medians "
            f"{client - bare:+.3f} ms (rounds {own[0]:+.3f} .. {own[2]:+.3f}), ratio {client / bare:.3f}"
        )


async def in_turn(bare: Step, client: Step, rounds: int) -> Pair:
    """Make both calls in every round; which is first changes from round to round."""
    found = Pair()
    for number in range(-WARM_UP, rounds):
        both = [(bare, found.bare), (client, found.client)]
        for step, kept in both if number % 2 else reversed(both):
            start = time.perf_counter()
            await step()
            if number >= 0:
                kept.append((time.perf_counter() - start) * 1000)
    return found


def waiting(call: Callable[[], object]) -> Step:
    """Return a call that waits in the shape of one that is awaited: nothing is scheduled for it."""

    async def step() -> object:
        return call()

    return step


async def compare(url: str, rounds: int) -> None:
    with httpx.Client(timeout=60) as http, Client(url, timeout_s=60) as ours:
        found = await in_turn(
            waiting(lambda: http.post(f"{url}/score", json=BODY).raise_for_status().json()),
            waiting(lambda: ours.score(PROMPT, num_samples=10)),
            rounds,
        )
    print(found.told("waiting"), flush=True)

    async with httpx.AsyncClient(timeout=60) as awaited, AsyncClient(url, timeout_s=60) as ours_awaited:

        async def bare() -> object:
            return (await awaited.post(f"{url}/score", json=BODY)).raise_for_status().json()

        async def client() -> object:
            return await ours_awaited.score(PROMPT, num_samples=10)

        found = await in_turn(bare, client, rounds)
    print(found.told("awaited"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1500)
    options = parser.parse_args()
    port = free_port()
    with running([PYTHON, "-m", "benchmarks.fake_service", str(port)]) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/healthz", process, 120)
        asyncio.run(compare(url, options.rounds))


if __name__ == "__main__":
    main()
