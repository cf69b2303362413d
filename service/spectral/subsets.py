"""Calibration parameters for every number of answers (**ours**, method, section 3).

The largest eigenvalue of m' samples is biased upwards, more for small m', and the best parameters move with
m'. So each m' has its own, fitted on random subsets of the answers drawn.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.spectral.batch import Answers, Overlaps, overlaps, solve, weighted
from service.spectral.fit import Method, fit
from service.spectral.maps import DEFAULT_EPS, DepolarizedMap, TemperatureMap
from service.spectral.risk import DevSet

FittedMap = TemperatureMap | DepolarizedMap
OnDone = Callable[[int, int], None]

MAX_FITTED = 64  # up to this number of answers every m' is fitted; beyond, a geometric grid of about as many


def fitted_sizes(num_samples: int) -> list[int]:
    """Return the m' that are fitted, ascending from 2 to `num_samples`: all of them, or a geometric grid."""
    if num_samples <= MAX_FITTED:
        return list(range(2, num_samples + 1))
    return sorted({int(m) for m in np.rint(np.geomspace(2, num_samples, MAX_FITTED))})


def draw_subsets(
    prompts: Sequence[Overlaps], num_samples: int, subsets_per_prompt: int, rng: np.random.Generator
) -> list[tuple[Overlaps, NDArray[np.int_]]]:
    """Return (prompt, positions of the draws taken) for random subsets of `num_samples` draws.

    Prompts with fewer draws drop out; one with exactly as many is taken once, whole.
    """
    taken = []
    for prompt in prompts:
        size = prompt.index.size
        repeats = 0 if size < num_samples else 1 if size == num_samples else subsets_per_prompt
        if repeats:
            # `permuted` shuffles every row by itself; `permutation` would shuffle the rows.
            order = rng.permuted(np.tile(np.arange(size), (repeats, 1)), axis=1)
            taken += [(prompt, np.sort(row[:num_samples])) for row in order]
    return taken


def subset_dev_set(
    prompts: Sequence[Overlaps],
    num_samples: int,
    dimension: int,
    *,
    subsets_per_prompt: int = 4,
    seed: int = 0,
) -> DevSet:
    """Return the dev set of random subsets of `num_samples` draws of each prompt that has as many.

    Each m' has its own stream of the seed, so its subsets do not depend on which others are fitted.
    Raises ValueError when no prompt has as many.
    """
    rng = np.random.default_rng([seed, num_samples])
    taken = draw_subsets(prompts, num_samples, subsets_per_prompt, rng)
    return solve([weighted(prompt, draws) for prompt, draws in taken], dimension)


def _fill(fitted: dict[int, FittedMap], method: Method, eps: float) -> dict[int, FittedMap]:
    """Return maps for every m' between those fitted: log T and g interpolated linearly in log m'."""
    sizes = sorted(fitted)
    wanted = range(sizes[0], sizes[-1] + 1)
    at, known = np.log(wanted), np.log(sizes)
    temperatures = np.exp(np.interp(at, known, [np.log(fitted[m].temperature) for m in sizes]))
    g = np.interp(at, known, [getattr(fitted[m], "depolarization", 0.0) for m in sizes])

    def between(i: int) -> FittedMap:
        t = float(temperatures[i])
        return TemperatureMap(t, eps) if method == "temperature" else DepolarizedMap(t, float(g[i]))

    return {m: fitted[m] if m in fitted else between(i) for i, m in enumerate(wanted)}


def fit_by_num_samples(
    answers: Iterable[Answers],
    method: Method,
    *,
    dimension: int,
    eps: float = DEFAULT_EPS,
    subsets_per_prompt: int = 4,
    seed: int = 0,
    min_prompts: int = 1,
    progress: OnDone | None = None,
) -> dict[int, FittedMap]:
    """Return the fitted map for every number of answers m', from 2 to the largest that enough prompts have.

    answers: one entry per prompt; an iterator is read once and its vectors are forgotten.
    min_prompts: how many prompts must have m' answers for m' to be in the table.
    progress: called with (m' done, m' to do).
    The last entry is fitted on whole prompts (those with that many answers), each once: where all have the
    same number it is the headline fit itself. Raises ValueError when too few prompts have two answers.
    """
    prompts = [overlaps(one) for one in answers]
    counts = np.sort([prompt.index.size for prompt in prompts])[::-1]
    if len(prompts) < max(min_prompts, 1) or counts[max(min_prompts, 1) - 1] < 2:
        raise ValueError("too few prompts have two answers")
    sizes = fitted_sizes(int(counts[max(min_prompts, 1) - 1]))
    fitted: dict[int, FittedMap] = {}
    for done, size in enumerate(sizes, start=1):
        dev = subset_dev_set(prompts, size, dimension, subsets_per_prompt=subsets_per_prompt, seed=seed)
        fitted[size] = fit(dev, method, eps=eps).map
        if progress is not None:
            progress(done, len(sizes))
    return _fill(fitted, method, eps)
