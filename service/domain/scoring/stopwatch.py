"""Where the time of a score went."""

import time


class Stopwatch:
    """Seconds by stage, from the arrival of the request on."""

    def __init__(self, start: float | None = None) -> None:
        self._start = self._last = time.perf_counter() if start is None else start
        self.laps: dict[str, float] = {}

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start

    def lap(self, stage: str) -> None:
        """Close a stage."""
        now = time.perf_counter()
        self.laps[stage] = now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds of one stage to another."""
        moved = min(seconds, self.laps[source])
        self.laps[source] -= moved
        self.laps[target] += moved

    def total(self) -> dict[str, float]:
        """Return the laps and their total."""
        return {**self.laps, "total": self._last - self._start}
