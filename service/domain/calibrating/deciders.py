"""P(correct), and what thresholds on it let through, for every number of answers (method, section 8)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.judged import FullRows, Judged
from service.domain.calibrating.material import Material
from service.domain.calibration import Method
from service.domain.decider import Decider, JudgedTexts
from service.spectral.correctness_model import CorrectnessFit, fit_correctness, too_few
from service.spectral.evidence import EvidenceMap, EvidenceSet
from service.spectral.evidence_fit import fit_evidence
from service.spectral.fit import fit
from service.spectral.maps import DepolarizedMap, TemperatureMap
from service.spectral.selective import SelectiveCounts, selective_counts, thinned
from service.spectral.strata import stratified_split
from service.spectral.subsets import OnDone, fitted_sizes

Bools = NDArray[np.bool_]
SHARE = 0.5  # of the rows that fit; more would leave fewer to promise by
# Of a decider. A calibration is read at every start, and thousands of rows would make it megabytes.
MOST_THRESHOLDS = 200


@dataclass(frozen=True, slots=True, eq=False)
class DecidedAt:
    """What the verdicts allow with one number of answers.

    fit: of P(correct), on the rows that fitted, whose verdicts are `fitted` (n1,); counted: (n2,) verdicts of
    the others. decider: None where there is no model; `fit` says why.
    """

    fit: CorrectnessFit
    fitted: Bools
    counted: Bools
    decider: Decider | None


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What the verdicts allow, by number of answers.

    fitting: (n,) which of the full rows fitted map and model; the others were counted.
    """

    fitting: Bools
    at: Mapping[int, DecidedAt]

    def deciders(self) -> dict[int, Decider]:
        """Return the deciders that there are, by number of answers."""
        return {m: one.decider for m, one in self.at.items() if one.decider is not None}


def fit_deciders(
    material: Material,
    method: Method,
    *,
    rng: np.random.Generator,
    eps: float,
    progress: OnDone | None = None,
) -> Decided:
    """Return what the verdicts on the full rows allow, for their first answers of every number.

    The rows are split once, by their verdicts with all answers: one that fits for any number is counted for
    none. method: the kind of map, which all rows have chosen (by risk, not by verdicts: decision 0023).
    From 1 answer for "evidence", else from 2; of more than 64, those that maps are fitted for.
    Blocking: seconds.
    """
    rows = FullRows(material)
    whole = rows.at(material.num_samples)
    fitting = stratified_split(whole.right, SHARE, rng)
    sizes = [*([1] if method == "evidence" else []), *fitted_sizes(material.num_samples)]
    found = {}
    # A stream for each number: what one draws does not hang on how much the others draw.
    for done, (size, own) in enumerate(zip(sizes, rng.spawn(len(sizes)), strict=True), start=1):
        seen = whole if size == material.num_samples else rows.at(size)
        found[size] = _decided(seen.take(fitting), seen.take(~fitting), rows.judged, method, own, eps)
        if progress is not None:
            progress(done, len(sizes))
    return Decided(fitting, found)


def _decided(
    fitted: Judged,
    counted: Judged,
    judged: JudgedTexts,
    method: Method,
    rng: np.random.Generator,
    eps: float,
) -> DecidedAt:
    num_right = int(fitted.right.sum())
    # With few of a kind, even a map cannot be fitted.
    if (none := too_few(num_right, len(fitted) - num_right)) is not None:
        return DecidedAt(none, fitted.right, counted.right, None)
    map_ = _map(fitted, method, eps)
    model = fit_correctness(fitted.columns(map_), fitted.right, rng=rng)
    decider = None
    if model.model is not None:
        # Nothing until here has seen the rows that are counted: the promise rests on that.
        scores = model.model.predict(counted.columns(map_))
        decider = Decider(map_, model.model, _counts(scores, counted), judged)
    return DecidedAt(model, fitted.right, counted.right, decider)


def _map(rows: Judged, method: Method, eps: float) -> DepolarizedMap | TemperatureMap | EvidenceMap:
    if method != "evidence":
        return fit(rows.rows, method, eps=eps).map
    assert rows.missing_mass is not None, "chosen only where all rows have log-probabilities"
    return fit_evidence(EvidenceSet(rows.rows, rows.missing_mass)).map


def _counts(scores: NDArray[np.float64], rows: Judged) -> SelectiveCounts:
    # What a score never lets through must not count as let through, or the promise is about other texts.
    return thinned(selective_counts(scores, rows.right, rows.supported), MOST_THRESHOLDS)
