"""Experiments of the paper that need neither another LLM nor other answers than those of the test file.

Convergence of lambda_max with the number of answers; the constant predictor, a check of the risk; similarity
of the density matrices that Algorithm 1 averages over; Cal_S, risk and ECE scaled to [0, 1].
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.algorithm1 import Clustering
from lab.density import DensityStack
from service.report.words import estimate, finite
from service.spectral.dev_set import DevSpectra, Overlaps, mean_entropy, risk
from service.spectral.fit import fit_temperature
from service.spectral.resampling import percentile_interval
from service.spectral.spectrum import RANK_TOLERANCE, TemperatureMap

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
SUBSETS = 20  # random subsets of each prompt's answers, for each number of answers
STEP = 5  # between numbers of answers; 1 for fewer than twice as many
TEMPERATURES = np.geomspace(0.2, 5.0, 41)  # of the constant predictor


def convergence(prompts: Sequence[Overlaps], rng: np.random.Generator) -> list[dict[str, float]]:
    """Return mean and deviation of raw lambda_max by the number of answers, ascending to m.

    prompts: with m answers each. deviation: between random subsets of the answers of one prompt (root of the
    mean variance). Subsets overlap: at m the deviation is 0, and near m it is smaller than between new draws.
    """
    m = prompts[0].index.size
    sizes = [*range(STEP if m >= 2 * STEP else 1, m, STEP if m >= 2 * STEP else 1), m]
    values = [
        [_subset_lambda_max(prompt.cosines, prompt.index, size, rng) for size in sizes] for prompt in prompts
    ]
    means = np.mean(values, axis=(0, 2))
    deviations = np.sqrt(np.var(values, axis=2).mean(axis=0))
    columns = zip(sizes, means.tolist(), deviations.tolist(), strict=True)
    return [{"num_samples": size, "mean": mean, "deviation": std} for size, mean, std in columns]


def _subset_lambda_max(cosines: Floats, drawn: Ints, size: int, rng: np.random.Generator) -> Floats:
    """Return lambda_max (SUBSETS,) of random subsets of answers. drawn: (m,), the text of each answer."""
    # `permuted` shuffles within each row; `permutation` would reorder the rows.
    picks = rng.permuted(np.tile(drawn, (SUBSETS, 1)), axis=1)[:, :size]
    roots = np.sqrt((picks[:, :, None] == np.arange(len(cosines))).sum(axis=1) / size)
    return np.asarray(np.linalg.eigvalsh(roots[:, :, None] * cosines * roots[:, None, :])[:, -1])


def constant_predictor(targets: DensityStack, rng: np.random.Generator, resamples: int) -> dict[str, Any]:
    """Return risk and entropy, in nats, over T of the mean of the references, served for every prompt.

    No other constant matrix has a lower risk on these references (Gibbs' inequality). So the risk is correct
    only if it is lowest at T = 1. optimum: the best T, with its interval over resamples of the prompts.
    """
    rows, starts = targets.factor(np.arange(len(targets)))
    exact, size = rows.astype(np.float64), len(targets)
    # The right singular vectors are the eigenvectors of the mean, which need not be formed.
    _, singular, directions = np.linalg.svd(exact / np.sqrt(size), full_matrices=False)
    kept = np.square(singular) > RANK_TOLERANCE
    values = np.square(singular[kept]) / np.square(singular[kept]).sum()
    along = np.add.reduceat(np.square(exact @ directions[kept].T), starts)

    def weighted(shares: Floats) -> DevSpectra:
        # The risk is linear in the targets: a single row with their mean has the risk of all.
        c = np.clip(shares @ along, 0.0, 1.0)
        outside = np.array([np.clip(1.0 - c.sum(), 0.0, 1.0)])
        return DevSpectra(values[None], c[None], outside, np.array([values.size]), targets.dimension)

    dev, maps = weighted(np.full(size, 1 / size)), [TemperatureMap(float(t)) for t in TEMPERATURES]
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    refits = [fit_temperature(weighted(count / size)).map.temperature for count in counts]
    return {
        "temperatures": TEMPERATURES.tolist(),
        "risk": [risk(map_, dev) for map_ in maps],
        "entropy": [mean_entropy(map_, dev) for map_ in maps],
        "optimum": estimate(fit_temperature(dev).map.temperature, percentile_interval(np.array(refits))),
    }


def similarity(cosines: Floats, clustering: Clustering) -> list[dict[str, Any]]:
    """Return the mean Frobenius cosine of the pairs within each bin, and within its clusters, in [0, 1].

    cosines: (n, n), of all prompts. Null for a bin without a pair. Higher = the matrices are more alike.
    """
    rows = []
    for b, clusters in enumerate(clustering.clusters):
        members = np.flatnonzero(clustering.bins == b)
        rows.append(
            {
                "predicted": float(clustering.mean_predicted[b]),
                "within_bin": finite(_mean_pair(cosines, [members])),
                "within_clusters": finite(_mean_pair(cosines, clusters)),
            }
        )
    return rows


def mean_cosine(cosines: Floats) -> float:
    """Return the mean Frobenius cosine of all pairs of different prompts."""
    return _mean_pair(cosines, [np.arange(len(cosines))])


def _mean_pair(cosines: Floats, groups: Sequence[Ints]) -> float:
    pairs = sum(group.size * (group.size - 1) for group in groups)
    if not pairs:
        return float("nan")
    total = sum(cosines[np.ix_(group, group)].sum() - cosines[group, group].sum() for group in groups)
    return float(total / pairs)


def scaled(points: Sequence[Mapping[str, float | None]], name: str) -> list[float | None]:
    """Return a measure at each point, scaled so that it runs from 0 (lowest) to 1; null where unknown.

    >>> scaled([{"risk": 4.0}, {"risk": 2.0}, {"risk": 3.0}], "risk")
    [1.0, 0.0, 0.5]
    """
    values = [point[name] for point in points]
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    spread = (high - low) or 1.0
    return [None if value is None else (value - low) / spread for value in values]
