"""Parameters of the `evidence` map for every number of answers from 1 (method, sections 3 and 6).

Fitted on the subsets that `subsets.fit_by_num_samples` draws for the other maps, each with the missing mass
of its own distinct answers: fewer answers cover less.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.batch import Answers, Overlaps, overlaps, solve, weighted
from service.spectral.evidence import EvidenceMap, EvidenceSet
from service.spectral.evidence_fit import fit_evidence
from service.spectral.missing_mass import checked_log_probabilities, missing_mass
from service.spectral.subsets import draw_subsets, fitted_sizes

Floats = NDArray[np.float64]
Totals = dict[Overlaps, Floats]
OnDone = Callable[[int, int], None]


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
