"""A calibration: immutable numbers, what they were fitted with, and whether they fit a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from service.domain.decider import Decider
from service.domain.models import Fingerprint
from service.spectral.conformal import ConformalReference
from service.spectral.evidence import EvidenceMap
from service.spectral.maps import DepolarizedMap, TemperatureMap

Method = Literal["depolarized", "temperature", "evidence"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Of one map: the spectrum's temperature T > 0, the depolarisation 0 <= g < 1 (0 for `temperature`)."""

    temperature: float
    depolarization: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted calibration; never changed once stored.

    `parameters` holds an entry for every number of answers from 2 to `num_samples`, the number drawn when
    fitting; the entry of `num_samples` is the headline. `eps` is the null eigenvalue that the `temperature`
    map was fitted with (it does not act when serving, but T means nothing without it).

    `evidence`, for the method "evidence" alone, holds a map for every number of answers from 1 to
    `num_samples`; `parameters` are then those of `depolarized`, for answers without log-probabilities.

    `deciders`: by number of answers, where the rows' verdicts allow a model of being right.

    `reference`: what the rows' prompts are like; None in those of earlier releases, and in lists, which leave
    it in the store.
    """

    id: str
    method: Method
    fingerprint: Fingerprint
    num_samples: int
    parameters: Mapping[int, Parameters]
    created_at: datetime
    eps: float = 1e-10
    name: str = ""
    evidence: Mapping[int, EvidenceMap] = field(default_factory=dict)
    deciders: Mapping[int, Decider] = field(default_factory=dict)
    reference: ConformalReference | None = field(default=None, compare=False, repr=False)

    def headline(self) -> Parameters:
        """Return the parameters of the full number of answers."""
        return self.parameters[self.num_samples]

    def map_for(self, num_samples: int, missing_mass: float | None = None) -> DepolarizedMap | TemperatureMap:
        """Return the map for this many answers; KeyError for more than were drawn for the fit.

        missing_mass: u of the answers, in [0, 1]; None where there are no log-probabilities: then a single
        answer is a KeyError, too.
        """
        if self.evidence and missing_mass is not None:
            return self.evidence[num_samples].at(missing_mass)
        chosen = self.parameters[num_samples]
        if self.method == "temperature":
            return TemperatureMap(chosen.temperature, self.eps)
        return DepolarizedMap(chosen.temperature, chosen.depolarization)


class CalibrationSource(Protocol):
    """Where scoring finds calibrations. `active*` answer from memory: they are on the path of every score."""

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return the active calibration of a fingerprint."""

    def any_active(self) -> list[Calibration]:
        """Return all active calibrations, latest activated first."""

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return a calibration by id, active or not."""


class NoCalibrations:
    """An empty source: every score is served raw."""

    def active(self, fingerprint_key: str) -> Calibration | None:
        """Return nothing."""

    def any_active(self) -> list[Calibration]:
        """Return nothing."""
        return []

    async def get(self, calibration_id: str) -> Calibration | None:
        """Return nothing."""
