"""Compare calls by alternating them in one run, so that other load on the machine affects all equally."""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

Call = Callable[[int], Awaitable[None]]


@dataclass
class Rounds:
    """Latencies in ms by call and round. In a round, all callers make each call at the same time."""

    callers: int
    ms: dict[str, list[list[float]]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Number of rounds."""
        return min(map(len, self.ms.values()))

    def p50(self, name: str) -> float:
        """Return the median latency over all rounds."""
        return statistics.median(latency for block in self.ms[name] for latency in block)

    def ratio(self, name: str, base: str) -> str:
        """Return the ratio of two calls' medians, and the quartiles of the ratios by round, as text."""
        pairs = zip(self.ms[name], self.ms[base], strict=True)
        ratios = [
            statistics.median(latencies) / statistics.median(base_latencies)
            for latencies, base_latencies in pairs
        ]
        low, _, high = statistics.quantiles(ratios)
        return f"{self.p50(name) / self.p50(base):.3f} (rounds {low:.2f} .. {high:.2f})"

    def saved(self, name: str, base: str) -> str:
        """Return the difference of the base's median and the call's median in ms, as text."""
        return f"{self.p50(base) - self.p50(name):+.0f} ms"


async def alternate(calls: Mapping[str, Call], *, callers: int, seconds: float) -> Rounds:
    """Run a warm-up round, then at least two rounds in rotating order until the time is over.

    Each call gets a number to choose its question; it is the same for all calls of a round.
    """
    rounds, names = Rounds(callers, {name: [] for name in calls}), list(calls)

    async def timed(name: str, number: int) -> float:
        start = time.perf_counter()
        await calls[name](number)
        return (time.perf_counter() - start) * 1000

    ends, number = time.monotonic() + seconds, -1
    while time.monotonic() < ends or number < 2:
        number += 1
        for i in range(len(names)):
            name = names[(i + number) % len(names)]
            block = await asyncio.gather(*(timed(name, number * callers + j) for j in range(callers)))
            if number:
                rounds.ms[name].append(list(block))
    return rounds


def describe(rounds: Rounds) -> str:
    """Return callers, rounds and load of the machine, the context of all figures."""
    load = ", ".join(f"{load_:.1f}" for load_ in os.getloadavg()[:2])
    return f"{rounds.callers} caller(s), {rounds.number} rounds, load of the machine {load}"
