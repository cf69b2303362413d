"""Calibration parameters by number of answers m' (**ours**, method, section 3).

The largest eigenvalue of m' samples is biased upwards, more so for small m', and the best parameters depend
on m'. So each m' has its own parameters, fitted on random subsets of the answers drawn.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import Answers, DevSpectra, Overlaps, overlaps, solve, weighted
from service.spectral.evidence import EvidenceMap, checked_log_probabilities, missing_mass
from service.spectral.fit import Method, Prior, fit
from service.spectral.spectrum import DEFAULT_EPS, DepolarizedMap, TemperatureMap

Floats = NDArray[np.float64]
FittedMap = TemperatureMap | DepolarizedMap | EvidenceMap
OnDone = Callable[[int, int], None]  # number of m' done, number of m' in total
Totals = dict[Overlaps, Floats]
Priors = Callable[[int], Prior | None]  # from m'
Subset = tuple[Overlaps, NDArray[np.int_]]  # a prompt, and the positions of the chosen draws

SUBSETS_PER_PROMPT = 4
MAX_FITTED = 64  # with more answers, only about this many m' on a geometric grid are fitted


def fitted_sizes(num_samples: int) -> list[int]:
    """Return the m' to fit, ascending from 2 to `num_samples`: all of them, or a geometric grid."""
    if num_samples <= MAX_FITTED:
        return list(range(2, num_samples + 1))
    return sorted({int(m) for m in np.rint(np.geomspace(2, num_samples, MAX_FITTED))})


def draw_subsets(prompts: Iterable[Overlaps], num_samples: int, seed: int) -> list[Subset]:
    """Return random subsets of `num_samples` draws, four for each prompt with more draws.

    A prompt with exactly `num_samples` draws gives one subset, and prompts with fewer draws give none. Each
    m' has its own random stream, so its subsets depend neither on the other m' nor on the map.
    """
    rng = np.random.default_rng([seed, num_samples])
    taken: list[Subset] = []
    for prompt in prompts:
        size = prompt.index.size
        repeats = 0 if size < num_samples else 1 if size == num_samples else SUBSETS_PER_PROMPT
        if repeats:
            # `permuted` shuffles within each row; `permutation` would reorder the rows.
            order = rng.permuted(np.tile(np.arange(size), (repeats, 1)), axis=1)
            taken += [(prompt, np.sort(row[:num_samples])) for row in order]
    return taken


def subset_dev_set(subsets: Sequence[Subset], dimension: int, totals: Totals | None = None) -> DevSpectra:
    """Return the dev set of subsets. Each missing mass is computed from the answers of the subset only.

    totals: prompt -> log-probability of each of its draws (m,), in nats; None: no missing masses. Raises
    ValueError for no subsets.
    """
    dev = solve([weighted(prompt, draws) for prompt, draws in subsets], dimension)
    if totals is None:
        return dev
    missing = [missing_mass(totals[prompt][draws], prompt.index[draws]) for prompt, draws in subsets]
    return replace(dev, missing_mass=np.array(missing))


def with_totals(answers: Iterable[Answers], log_probabilities: Iterable[ArrayLike]) -> Totals:
    """Return the overlaps of each prompt with the log-probabilities of its draws (m,), checked and clipped.

    The vectors are not kept. Raises ValueError unless there is one valid log-probability per draw.
    """
    # Overlaps are keys by identity (eq=False), so equal prompts stay separate.
    totals: Totals = {}
    for prompt, of_draws in zip(answers, log_probabilities, strict=True):
        values = checked_log_probabilities(of_draws)
        if values.shape != prompt.index.shape:
            raise ValueError("every answer drawn needs a log-probability")
        totals[overlaps(prompt)] = values
    return totals


def fit_by_num_samples(
    answers: Iterable[Answers],
    method: Method,
    *,
    log_probabilities: Iterable[ArrayLike] | None = None,
    dimension: int,
    eps: float = DEFAULT_EPS,
    seed: int = 0,
    min_prompts: int = 1,
    priors: Priors = lambda _: None,
    progress: OnDone | None = None,
) -> dict[int, FittedMap]:
    """Return the map for every number of answers m', from 2 to the largest number that enough prompts have.

    "evidence" also has a map for m' = 1, of temperature 1.
    answers: one entry per prompt; an iterator is read once, and its vectors are not kept.
    log_probabilities: one entry per prompt, (m,) in nats, of whole answers; required by "evidence".
    min_prompts: number of prompts that must have m' answers for m' to be in the table.
    priors: the prior of the fit for m'.
    If all prompts have the same number of answers, the last entry is the headline fit, because each prompt
    gives one subset of all its draws. Raises ValueError if too few prompts have the smallest m'.
    """
    totals = None if log_probabilities is None else with_totals(answers, log_probabilities)
    prompts = [overlaps(prompt) for prompt in answers] if totals is None else list(totals)
    largest = _largest(prompts, min_prompts)
    if largest < 2 and method != "evidence":
        raise ValueError("too few prompts have two answers")

    def fit_size(size: int) -> FittedMap:
        subsets = draw_subsets(prompts, size, seed)
        prior = _of_subsets(priors(size), subsets)
        return fit(subset_dev_set(subsets, dimension, totals), method, eps=eps, prior=prior).map

    return _table([1] * (method == "evidence") + fitted_sizes(largest), fit_size, progress)


def _of_subsets(prior: Prior | None, subsets: Sequence[Subset]) -> Prior | None:
    """Return the prior reweighted for subsets: several subsets of a prompt count as one labelled row."""
    if prior is None:
        return None
    return replace(prior, weight=prior.weight * len(subsets) / len({prompt for prompt, _ in subsets}))


def _largest(prompts: Iterable[Overlaps], min_prompts: int) -> int:
    """Return the largest number of draws that at least `min_prompts` prompts have."""
    counts, least = sorted((prompt.index.size for prompt in prompts), reverse=True), max(min_prompts, 1)
    if len(counts) < least:
        raise ValueError("too few prompts")
    return int(counts[least - 1])


def _table(
    sizes: Sequence[int], fit_size: Callable[[int], FittedMap], progress: OnDone | None
) -> dict[int, FittedMap]:
    """Return the maps of these m' and of all m' between, linearly interpolated in log m' (T as log T)."""
    fitted: dict[int, FittedMap] = {}
    for done, size in enumerate(sizes, start=1):
        fitted[size] = fit_size(size)
        if progress is not None:
            progress(done, len(sizes))
    # The parameters of each map, temperature first. If eps is one of them, it is the same in all maps.
    numbers = np.array([astuple(fitted[m]) for m in sizes])
    numbers[:, 0] = np.log(numbers[:, 0])
    between = [m for m in range(sizes[0], sizes[-1] + 1) if m not in fitted]
    columns = [np.interp(np.log(between), np.log(sizes), column) for column in numbers.T]
    kind = type(fitted[sizes[0]])
    made = {
        m: kind(float(np.exp(log_t)), *map(float, rest))
        for m, log_t, *rest in zip(between, *columns, strict=True)
    }
    return dict(sorted({**fitted, **made}.items()))
