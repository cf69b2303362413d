"""Calls that are compared, made in turn within one run: what else the machine does meets all alike."""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

Call = Callable[[int], Awaitable[None]]


@dataclass
class Rounds:
    """Latencies in ms, by call and round: in a round each call is made by every caller at once."""

    callers: int
    ms: dict[str, list[list[float]]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Return how many rounds there were."""
        return min(map(len, self.ms.values()))

    def p50(self, name: str) -> float:
        """Return the median latency over all rounds."""
        return statistics.median(one for block in self.ms[name] for one in block)

    def ratio(self, name: str, base: str) -> str:
        """Return the ratio of two calls' medians, and the quartiles of the rounds' own ratios, as text."""
        pairs = zip(self.ms[name], self.ms[base], strict=True)
        ratios = [statistics.median(one) / statistics.median(other) for one, other in pairs]
        low, _, high = statistics.quantiles(ratios)
        return f"{self.p50(name) / self.p50(base):.3f} (rounds {low:.2f} .. {high:.2f})"

    def saved(self, name: str, base: str) -> str:
        """Return by how many ms the call's median is below the other's, as text."""
        return f"{self.p50(base) - self.p50(name):+.0f} ms"


async def alternate(calls: Mapping[str, Call], *, callers: int, seconds: float) -> Rounds:
    """Make rounds, each in another order, until the time is over: two at least, and one that is not counted.

    A call is told a number, the same for all calls of a round, to choose its question by.
    """
    found, names = Rounds(callers, {name: [] for name in calls}), list(calls)

    async def one(name: str, number: int) -> float:
        start = time.perf_counter()
        await calls[name](number)
        return (time.perf_counter() - start) * 1000

    ends, number = time.monotonic() + seconds, -1
    while time.monotonic() < ends or number < 2:
        number += 1
        for i in range(len(names)):
            name = names[(i + number) % len(names)]
            block = await asyncio.gather(*(one(name, number * callers + j) for j in range(callers)))
            if number:
                found.ms[name].append(list(block))
    return found


def told(found: Rounds) -> str:
    """Return the callers, the rounds and the load of the machine, which figures are to be read by."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg()[:2])
    return f"{found.callers} caller(s), {found.number} rounds, load of the machine {load}"
