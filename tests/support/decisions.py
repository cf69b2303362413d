"""A decider of round numbers."""

from service.domain.decider import Decider
from service.spectral.correctness_model import CorrectnessModel
from service.spectral.evidence import EvidenceMap
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.selective import SelectiveCounts

# At 90 % confidence, thresholds 0.8, 0.5 and 0.0 can promise errors of 0.074, 0.150 and 0.336.
COUNTS = SelectiveCounts(thresholds=(0.8, 0.5, 0.0), answered=(30, 60, 100), wrong=(0, 5, 27))
PLAIN = DepolarizedMap(1.0, 0.5)


def decider(
    map_: DepolarizedMap | TemperatureMap | EvidenceMap = PLAIN,
    names: tuple[str, ...] = ("logit_probability",),
) -> Decider:
    """P(correct) = p(y) where p(y) is the only feature; each further one counts 0.1 for its size."""
    zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
    weights = (1.0, *(0.1,) * (len(names) - 1))
    return Decider(map_, CorrectnessModel(names, zeros, ones, weights, 0.0), COUNTS)
