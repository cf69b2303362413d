"""Simulated worlds for selective answering, where the true error above any threshold is known."""

from collections.abc import Callable

import numpy as np

from service.spectral.selective import SelectiveCounts, promises, selective_counts

TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# P(right | score), by name.
KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "few right": lambda s: 0.02 + 0.5 * s**3,  # as with the recorded answers
    "half right": lambda s: 0.1 + 0.85 * s,
    "not monotone": lambda s: 0.35 + 0.3 * s * np.cos(12 * s),  # the error falls again as the threshold does
}


class World:
    """Scores even on [0, 1]; P(right | score) known, so the true error above any threshold is, too."""

    GRID = np.linspace(0.0, 1.0, 4001)

    def __init__(self, right: Callable[[np.ndarray], np.ndarray]) -> None:
        self.p = np.broadcast_to(right(self.GRID), self.GRID.shape)
        steps = (self.p[1:] + self.p[:-1]) / 2 / (self.GRID.size - 1)
        self.above = np.append(np.cumsum(steps[::-1])[::-1], 0.0)

    def draw(self, rng: np.random.Generator, size: int) -> SelectiveCounts:
        scores = rng.random(size)
        return selective_counts(scores, rng.random(size) < np.interp(scores, self.GRID, self.p))

    def error(self, threshold: float) -> float:
        return float(1 - np.interp(threshold, self.GRID, self.above) / (1 - threshold))


def naive(counts: SelectiveCounts, target: float) -> float | None:
    """The lowest threshold whose error on the very same rows is at most the target."""
    kept = np.flatnonzero(np.array(counts.wrong) <= target * np.array(counts.answered))
    return counts.thresholds[kept[-1]] if kept.size else None


def broken(world: World, targets: tuple[float, ...], worlds: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Share of worlds whose true error among the answered exceeds each target: ours and the naive one."""
    rng, found = np.random.default_rng(0), np.zeros((2, len(targets)))
    for _ in range(worlds):
        counts = world.draw(rng, size)
        chosen = [promise.threshold for promise in promises(counts, targets)]
        for row, thresholds in enumerate((chosen, [naive(counts, target) for target in targets])):
            pairs = zip(thresholds, targets, strict=True)
            found[row] += [t is not None and world.error(t) > target for t, target in pairs]
    return found[0] / worlds, found[1] / worlds
