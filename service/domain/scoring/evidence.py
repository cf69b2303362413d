"""What the log-probabilities of the answers to one prompt say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.models import Draw
from service.domain.outcomes import log_probabilities
from service.spectral.missing_mass import mean_log_probability, missing_mass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the log-probabilities of the answers say.

    `missing_mass`: u in (0, 1), the mass that the LLM gives to none of the answers; higher = less certain.
    `mean_log_probability`: of whole answers, in nats, 0 at most; higher = more certain.
    """

    missing_mass: float
    mean_log_probability: float


def evidence_of(draws: Sequence[Draw], index: NDArray[np.int_]) -> Evidence | None:
    """Return the evidence of the answers, None unless each has a log-probability.

    index: (m,) which distinct text each answer is.
    """
    totals = log_probabilities(draws)
    return None if totals is None else Evidence(missing_mass(totals, index), mean_log_probability(totals))
