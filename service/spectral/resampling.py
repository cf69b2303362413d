"""Is a difference real? Bootstrap of the difference between two figures on the same prompts, in pairs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.algorithm1 import DensityStack
from service.spectral.dev_set import Answers, DevSet, Overlaps, overlaps, solve, weighted
from service.spectral.evidence import (
    EvidenceMap,
    EvidenceSet,
    checked_log_probabilities,
    fit_evidence,
    missing_mass,
)
from service.spectral.fit import Interval, Method, fit, fit_temperature
from service.spectral.maps import DEFAULT_EPS, DepolarizedMap, TemperatureMap
from service.spectral.reliability import rounded_ties
from service.spectral.spectrum import RANK_TOLERANCE

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two figures, its percentile interval, and the share of resamples above 0."""

    value: float
    low: float
    high: float
    share_above: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def _difference(value: float, drawn: Floats, level: float) -> Difference:
    drawn = drawn[np.isfinite(drawn)]
    if drawn.size == 0:
        return Difference(value, float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Difference(value, float(low), float(high), float((drawn > 0).mean()))


def mean_difference(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Difference:
    """Return the mean of first - second (n,), paired by prompt. Raises ValueError for other shapes."""
    gaps = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if gaps.ndim != 1 or gaps.size == 0:
        raise ValueError("a paired difference needs two vectors of one length")
    means = np.array([gaps[rng.integers(0, gaps.size, gaps.size)].mean() for _ in range(resamples)])
    return _difference(float(gaps.mean()), means, level)


def figure_difference(
    figure: Callable[[Ints], tuple[float, float]],
    size: int,
    rng: np.random.Generator,
    *,
    resamples: int = 500,
    level: float = 0.95,
) -> Difference:
    """Return the difference of two figures that are no means (AUROC, ECE).

    figure: from prompts picked (size,) to both figures. Resamples where one is NaN are left out.
    """
    value = np.subtract(*figure(np.arange(size)))
    picks = (rng.integers(0, size, size) for _ in range(resamples))
    # Both figures of each pick: that is what pairs them.
    drawn = np.array([np.subtract(*figure(pick)) for pick in picks])
    return _difference(float(value), drawn, level)


# One set of bootstrap resamples for many figures of the same prompts, so that all of them pair.
#
# `paired` and `correctness.bootstrap_auroc` draw anew for each figure, one resample after the other; where
# dozens of figures are compared, as by number of answers, resamples kept as counts cost a product each.


@dataclass(frozen=True, slots=True, eq=False)
class Resamples:
    """counts: (B, n), how often each of B resamples holds each of n prompts; rows of sum n."""

    counts: Floats

    @classmethod
    def of(cls, size: int, rng: np.random.Generator, number: int = 1000) -> Self:
        """Return so many resamples of n = `size` prompts. Raises ValueError for no prompts."""
        if size < 1:
            raise ValueError("nothing to resample")
        return cls(rng.multinomial(size, np.full(size, 1 / size), size=number).astype(np.float64))

    def means(self, values: ArrayLike) -> Floats:
        """Return the mean of values (n,) in each resample, (B,)."""
        found = np.asarray(values, dtype=np.float64)
        return np.asarray(self.counts @ found / found.size)

    def aurocs(self, scores: ArrayLike, labels: ArrayLike) -> Floats:
        """Return the AUROC of scores (n,), higher = more certain, in each resample, (B,).

        As `correctness.auroc`: ties count half. NaN in a resample that holds one kind only.
        """
        groups = np.unique(rounded_ties(scores), return_inverse=True)[1]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        drawn, right = self.counts[:, order], np.asarray(labels, dtype=np.float64)[order]
        positives = np.add.reduceat(drawn * right, starts, axis=1)
        negatives = np.add.reduceat(drawn * (1 - right), starts, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives
        ordered = (positives * (below + negatives / 2)).sum(axis=1)
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        with np.errstate(invalid="ignore"):  # 0 / 0: such a resample has no AUROC
            return np.asarray(ordered / pairs)


def interval(drawn: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of resampled values (B,), those that are NaN left out; NaN for none."""
    known = drawn[np.isfinite(drawn)]
    if known.size < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# How many samples are enough (method, section 4): lambda_max over random subsets of the answers drawn.


@dataclass(frozen=True, slots=True, eq=False)
class SampleSizeCurve:
    """lambda_max against the number of answers, over prompts and random subsets.

    sizes: (K,) ascending; mean: (K,) of lambda_max in (0, 1], falling towards its large-sample value.
    std: (K,) spread between subsets of one prompt (root of the mean variance). Subsets of one draw overlap,
    so it falls to 0 at the full size and understates the spread of fresh draws near it.
    """

    sizes: Ints
    mean: Floats
    std: Floats


def subset_sizes(num_samples: int, step: int = 5) -> Ints:
    """Return step, 2 step, .. up to num_samples, which is always the last.

    >>> subset_sizes(12).tolist()
    [5, 10, 12]
    """
    if num_samples < 1 or step < 1:
        raise ValueError("num_samples and step must be at least 1")
    return np.array([*range(step, num_samples, step), num_samples], dtype=np.intp)


def subset_lambda_max(
    cosines: ArrayLike, outcomes: ArrayLike, size: int, num_subsets: int, rng: np.random.Generator
) -> Floats:
    """Return lambda_max (num_subsets,) of random subsets of `size` answers, drawn without replacement.

    cosines: (k, k) Gram matrix of the distinct answers; outcomes: (m,) which of them each sample is.
    Raises ValueError when size is not in 1 .. m.
    """
    gram, drawn = np.asarray(cosines, dtype=np.float64), np.asarray(outcomes, dtype=np.intp)
    if not 1 <= size <= drawn.size:
        raise ValueError(f"size must be in 1 .. {drawn.size}, got {size}")
    # `permuted` shuffles every row by itself; `permutation` would shuffle the rows.
    picks = rng.permuted(np.tile(drawn, (num_subsets, 1)), axis=1)[:, :size]
    counts = (picks[:, :, None] == np.arange(gram.shape[0])).sum(axis=1)
    roots = np.sqrt(counts / size)
    return np.asarray(np.linalg.eigvalsh(roots[:, :, None] * gram * roots[:, None, :])[:, -1])


def lambda_max_by_size(
    cosines: Sequence[ArrayLike],
    outcomes: Sequence[ArrayLike],
    rng: np.random.Generator,
    *,
    step: int = 5,
    num_subsets: int = 20,
) -> SampleSizeCurve:
    """Return the curve over n prompts up to the smallest m among them.

    cosines, outcomes: as in `subset_lambda_max`, one of each per prompt.

    Raises ValueError when there are no prompts or the two differ in length.
    """
    if len(cosines) == 0:
        raise ValueError("a curve needs at least one prompt")
    sizes = subset_sizes(min(np.asarray(drawn).size for drawn in outcomes), step)
    pairs = list(zip(cosines, outcomes, strict=True))
    values = np.array(
        [[subset_lambda_max(gram, drawn, s, num_subsets, rng) for s in sizes] for gram, drawn in pairs]
    )
    return SampleSizeCurve(sizes, values.mean(axis=(0, 2)), np.sqrt(values.var(axis=2).mean(axis=0)))


# Calibration parameters for every number of answers (**ours**, method, section 3).
#
# The largest eigenvalue of m' samples is biased upwards, more for small m', and the best parameters move with
# m'. So each m' has its own, fitted on random subsets of the answers drawn.

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


# Parameters of the `evidence` map for every number of answers from 1 (method, sections 3 and 6).
#
# Fitted on the subsets that `subsets.fit_by_num_samples` draws for the other maps, each with the missing mass
# of its own distinct answers: fewer answers cover less.

Totals = dict[Overlaps, Floats]


def evidence_subset(
    totals: Totals, num_samples: int, dimension: int, *, subsets_per_prompt: int = 4, seed: int = 0
) -> EvidenceSet:
    """Return random subsets of `num_samples` draws of each prompt that has as many, each with its u.

    totals: prompt -> log-probability of each of its draws (m,), in nats. The subsets are those of
    `subsets.subset_dev_set` for the same prompts and seed. Raises ValueError when no prompt has as many.
    """
    rng = np.random.default_rng([seed, num_samples])
    taken = draw_subsets(list(totals), num_samples, subsets_per_prompt, rng)
    dev = solve([weighted(prompt, draws) for prompt, draws in taken], dimension)
    missing = [missing_mass(totals[prompt][draws], prompt.index[draws]) for prompt, draws in taken]
    return EvidenceSet(dev, np.array(missing))


def with_totals(answers: Iterable[Answers], log_probabilities: Iterable[ArrayLike]) -> Totals:
    """Return each prompt's overlaps with the log-probabilities of its draws (m,), checked and clipped.

    The vectors are forgotten. Raises ValueError unless there is one valid log-probability per draw.
    """
    # Overlaps are keys by identity (eq=False): equal prompts stay two.
    found: Totals = {}
    for one, given in zip(answers, log_probabilities, strict=True):
        values = checked_log_probabilities(given)
        if values.shape != one.index.shape:
            raise ValueError("every answer drawn needs a log-probability")
        found[overlaps(one)] = values
    return found


def _between(fitted: dict[int, EvidenceMap]) -> dict[int, EvidenceMap]:
    """Return maps for every m' between those fitted: log T, a and b interpolated linearly in log m'."""
    sizes = sorted(fitted)
    wanted = range(1, sizes[-1] + 1)
    known = [(np.log(fitted[m].temperature), fitted[m].intercept, fitted[m].slope) for m in sizes]
    columns = [np.interp(np.log(wanted), np.log(sizes), column) for column in np.array(known).T]
    points = zip(wanted, np.exp(columns[0]), *columns[1:], strict=True)
    made = {m: EvidenceMap(float(t), float(a), float(b)) for m, t, a, b in points}
    return made | fitted


def fit_evidence_by_num_samples(
    answers: Iterable[Answers],
    log_probabilities: Iterable[ArrayLike],
    *,
    dimension: int,
    subsets_per_prompt: int = 4,
    seed: int = 0,
    min_prompts: int = 1,
    progress: OnDone | None = None,
) -> dict[int, EvidenceMap]:
    """Return the fitted map for every number of answers m', from 1 to the largest that enough prompts have.

    answers, log_probabilities: one entry per prompt, read once; the latter (m,) in nats, of whole answers.
    min_prompts, progress: as in `subsets.fit_by_num_samples`. The last entry is fitted on whole prompts, each
    once; the temperature of m' = 1 is 1. Raises ValueError when there are fewer prompts than `min_prompts`.
    """
    totals = with_totals(answers, log_probabilities)
    sizes = [1, *fitted_sizes(_largest(totals, max(min_prompts, 1)))]
    fitted: dict[int, EvidenceMap] = {}
    for done, size in enumerate(sizes, start=1):
        rows = evidence_subset(totals, size, dimension, subsets_per_prompt=subsets_per_prompt, seed=seed)
        fitted[size] = fit_evidence(rows).map
        if progress is not None:
            progress(done, len(sizes))
    return _between(fitted)


def _largest(prompts: Iterable[Overlaps], min_prompts: int) -> int:
    """Return the largest number of draws that `min_prompts` prompts have."""
    counts = sorted((prompt.index.size for prompt in prompts), reverse=True)
    if len(counts) < min_prompts:
        raise ValueError("too few prompts")
    return int(counts[min_prompts - 1])


# The constant predictor: the mean of the references themselves, given for every prompt.
#
# Over the references that it was made of, no other constant matrix has a lower matrix log risk (Gibbs'
# inequality), so its best temperature is 1. An estimator of the risk that does not find that is wrong.


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPredictor:
    """eigenvalues: (r,) descending, sum 1; alignment: (n, r), c_i of each prompt's target; dimension: d."""

    eigenvalues: Floats
    alignment: Floats
    dimension: int

    def dev_set(self, weights: Floats | None = None) -> DevSet:
        """Return the risk's material for prompts weighted (n,), equal for None.

        The prediction is one, and the risk is linear in the targets: one row, their mean, holds them all.
        """
        size = self.alignment.shape[0]
        share = np.full(size, 1 / size) if weights is None else weights
        c = np.clip(share @ self.alignment, 0.0, 1.0)  # above 1 by rounding only
        outside = np.clip(1 - c.sum(), 0.0, 1.0)
        rank = np.array([self.eigenvalues.size])
        return DevSet(self.eigenvalues[None], c[None], np.array([outside]), rank, self.dimension)


def constant_predictor(targets: DensityStack, dimension: int) -> ConstantPredictor:
    """Return the mean of n targets Y and where each target lies in it. d = `dimension`."""
    rows, starts = targets.factor(np.arange(len(targets)))
    scaled = rows.astype(np.float64) / np.sqrt(len(targets))
    # The right singular vectors are the eigenvectors in R^d: the mean itself need not be formed.
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    values = np.square(singular)
    keep = values > RANK_TOLERANCE
    along = np.square(rows.astype(np.float64) @ directions[keep].T)
    return ConstantPredictor(values[keep] / values[keep].sum(), np.add.reduceat(along, starts), dimension)


def best_temperature(
    predictor: ConstantPredictor,
    rng: np.random.Generator,
    *,
    resamples: int = 200,
    level: float = 0.95,
    eps: float = DEFAULT_EPS,
) -> tuple[float, Interval]:
    """Return the best temperature and its percentile interval over resamples of the prompts."""
    size = predictor.alignment.shape[0]
    # A resample as counts, which are weights: no rows are copied.
    counts = rng.multinomial(size, np.full(size, 1 / size), size=resamples)
    found = [fit_temperature(predictor.dev_set(row / size), eps=eps).map.temperature for row in counts]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    best = fit_temperature(predictor.dev_set(), eps=eps).map.temperature
    return best, Interval(float(low), float(high))
