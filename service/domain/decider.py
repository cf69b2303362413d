"""Whether an answer is right, and whether to let it through, by number of answers (method, section 8)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from numpy.typing import ArrayLike

from service.spectral.correctness_model import LEAST_OF_A_KIND, CorrectnessModel, logit_probability
from service.spectral.evidence import EvidenceMap
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.missing_mass import logit_missing_mass
from service.spectral.selective import SelectiveCounts

_MAPS: dict[str, type[DepolarizedMap | TemperatureMap | EvidenceMap]] = {
    "depolarized": DepolarizedMap,
    "temperature": TemperatureMap,
    "evidence": EvidenceMap,
}
# Whose texts verdicts are on: the rows' own `answer`, the dominant answer drawn, or either by row.
JudgedTexts = Literal["given", "dominant", "mixed"]
# Right answers, and wrong ones, that a file should have: half of its rows fit the model, half are counted.
NEEDED_OF_A_KIND = 2 * LEAST_OF_A_KIND
# What a promise is about (method, section 9); it stands wherever one is shown.
PROMISE_MEANING = (
    "A promise holds on average over the calibrations that might have been made. Of targets barely within "
    "reach, those shown as reachable are often broken: choose yours before you look at what is reachable."
)
WITHOUT_EVIDENCE = frozenset({"logit_probability", "entropy"})


@dataclass(frozen=True, slots=True)
class Decider:
    """P(correct), and what thresholds on it let through. Numbers only.

    The rows of a fit were split in two. On one part `map` was fitted, and on what it says of those rows
    `model`. `counts` are of the other part, which nothing here has seen: so what they promise holds for new
    questions like them, and texts like those judged. Of those, texts that no answer drawn supports
    (`born.supported`) are never let through, here as in a score. What serves a score was fitted on all rows,
    hence a map of its own here.
    """

    map: DepolarizedMap | TemperatureMap | EvidenceMap
    model: CorrectnessModel
    counts: SelectiveCounts
    judged: JudgedTexts

    def map_for(self, missing_mass: float | None) -> DepolarizedMap | TemperatureMap | None:
        """Return the map that makes the features of one prompt.

        missing_mass: u of its answers; None: no log-probabilities. None where map or model takes them.
        """
        if isinstance(self.map, EvidenceMap):
            return None if missing_mass is None else self.map.at(missing_mass)
        takes_them = not WITHOUT_EVIDENCE.issuperset(self.model.features)
        return None if takes_them and missing_mass is None else self.map

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return the decider from what `stored` returned, also by way of JSON."""
        map_ = dict(stored["map"])
        kind = _MAPS[map_.pop("method")]
        model, counts = CorrectnessModel.of(stored["model"]), SelectiveCounts.of(stored["counts"])
        return cls(kind(**map_), model, counts, stored["judged"])

    def stored(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        [method] = (name for name, kind in _MAPS.items() if isinstance(self.map, kind))
        map_ = {"method": method, **asdict(self.map)}
        numbers = {"map": map_, "model": asdict(self.model), "counts": asdict(self.counts)}
        return {**numbers, "judged": self.judged}


def features(
    probability: ArrayLike,
    entropy: ArrayLike,
    missing_mass: ArrayLike | None = None,
    mean_log_probability: ArrayLike | None = None,
) -> dict[str, ArrayLike]:
    """Return the columns that a correctness model knows, (n,) each or one number each.

    probability: p(y) of the judged text under `Decider.map`, in [0, 1]; entropy: of the spectrum that it
    serves, in nats; missing_mass, mean_log_probability: of the prompt's answers, None where they have none.
    """
    columns: dict[str, ArrayLike] = {"logit_probability": logit_probability(probability), "entropy": entropy}
    if missing_mass is not None and mean_log_probability is not None:
        columns["logit_missing_mass"] = logit_missing_mass(missing_mass)
        columns["mean_log_probability"] = mean_log_probability
    return columns
