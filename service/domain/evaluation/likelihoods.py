"""Recorded log-probabilities of the samples, where there are any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.evaluation.split import Split
from service.spectral.likelihood import per_word

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Log-probabilities in nats, one array (m,) per prompt.

    normalised: per `unit`, tokens where the server told (answers drawn here), else words; totals: of whole
    answers, None where only the mean per token is known.
    """

    normalised: Sequence[Floats]
    totals: Sequence[Floats] | None
    unit: Literal["token", "word"]


def recorded(split: Split, totals_by_line: Mapping[int, Sequence[float]]) -> Likelihoods | None:
    """Return those of a file's `logprob` (of whole answers, by line); None when a prompt lacks any."""
    m = split.material.num_samples
    rows = [split.material.rows[int(i)] for i in split.material.full]
    totals = [np.array(totals_by_line.get(one.row.line, ())[:m], dtype=np.float64) for one in rows]
    if any(t.size < m or not np.isfinite(t).all() for t in totals):
        return None
    pairs = zip(totals, rows, strict=True)
    return Likelihoods([per_word(t, [d.text for d in one.draws]) for t, one in pairs], totals, "word")


def drawn(split: Split) -> Likelihoods | None:
    """Return those that came with answers drawn here (mean per token); None when a sample lacks its own."""
    found = []
    for i in split.material.full:
        values = [draw.logprob for draw in split.material.rows[int(i)].draws]
        if any(value is None for value in values):
            return None
        found.append(np.array(values, dtype=np.float64))
    return Likelihoods(found, None, "token")
