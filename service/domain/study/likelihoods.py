"""Recorded log-probabilities of the samples, where there are any."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.devdata.reader import Recorded
from service.domain.study.split import Split
from service.spectral.likelihood import per_word

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Log-probabilities in nats, one array (m,) per prompt.

    normalised: per `unit`: tokens where their number is known (answers drawn here, or a file that tells),
    else words; totals: of whole answers, None where only the mean per token is known.
    """

    normalised: Sequence[Floats]
    totals: Sequence[Floats] | None
    unit: Literal["token", "word"]


def recorded(split: Split, by_line: Mapping[int, Recorded]) -> Likelihoods | None:
    """Return those of a file's `logprob`, over `tokens` if every prompt has them; None when one lacks it."""
    m = split.material.num_samples
    rows = [split.material.rows[int(i)] for i in split.material.full]
    found = [by_line.get(one.row.line, Recorded()) for one in rows]
    totals = _whole([one.logprob for one in found], m)
    if totals is None:
        return None
    tokens = _whole([one.tokens for one in found], m)
    if tokens is not None:
        return Likelihoods([t / n for t, n in zip(totals, tokens, strict=True)], totals, "token")
    pairs = zip(totals, rows, strict=True)
    return Likelihoods([per_word(t, [d.text for d in one.draws]) for t, one in pairs], totals, "word")


def _whole(values: Iterable[Sequence[float]], m: int) -> list[Floats] | None:
    """Return the first m of each; None when one has fewer, or holds what is no number."""
    found = [np.array(one[:m], dtype=np.float64) for one in values]
    return None if any(one.size < m or not np.isfinite(one).all() for one in found) else found


def drawn(split: Split) -> Likelihoods | None:
    """Return those that came with answers drawn here (mean per token); None when a sample lacks its own."""
    found = []
    for i in split.material.full:
        values = [draw.logprob for draw in split.material.rows[int(i)].draws]
        if any(value is None for value in values):
            return None
        found.append(np.array(values, dtype=np.float64))
    return Likelihoods(found, None, "token")
