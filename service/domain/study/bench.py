"""What the experiments of a study share: prompts, the maps fitted for them, and what those serve."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating import fitting
from service.domain.calibrating.evidence import EvidenceFound, find_evidence
from service.domain.calibrating.fitting import Fitted, Stream
from service.domain.calibrating.judged import FullRows
from service.domain.calibrating.material import Material
from service.domain.calibration import Calibration
from service.domain.study.by_answers import AtSize, judge, judge_held_out, mean_tokens
from service.domain.study.readings import (
    GRID,
    NAIVE,
    STANDARD,
    Algorithm1Reading,
    CorrectnessReading,
    ProjectionReading,
    Setting,
    read_algorithm1,
    read_correctness,
    read_projection,
)
from service.domain.study.split import Served, Split, served
from service.spectral.density import frobenius_cosines
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import Bootstrap, CrossValidation, DepolarizedFit, TemperatureFit
from service.spectral.fit import Method as PlainMethod
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, Identity
from service.spectral.risk import risks

Floats = NDArray[np.float64]
# Beyond this many prompts the table of all Frobenius cosines (8 bytes a pair) is not kept.
MAX_COSINES = 4000


def serve(name: str, map_: CalibrationMap, split: Split) -> Served:
    """Return what a map serves on a split."""
    spectra = [map_.serve(one.eigenvalues, one.dimension) for one in split.spectra]
    return served(name, spectra, risks(map_, split.dev))


class Bench:
    """Maps fitted on `dev` and judged on `test`; what is derived from the two is made once, when asked for.

    deep: the material whose answers show how the estimator converges; may be one with more answers.
    """

    def __init__(self, dev: Split, test: Split, *, seed: int = 0, eps: float = DEFAULT_EPS) -> None:
        self.dev, self.test, self.seed, self.eps = dev, test, seed, eps
        self.deep: Material = test.material
        # By map: the null worlds of a map are drawn from what it serves.
        self._algorithm1: dict[tuple[str, Setting], Algorithm1Reading] = {}

    def rng(self, stream: Stream) -> np.random.Generator:
        """Return the random numbers of one experiment, the same whichever others run."""
        return fitting.rng(self.seed, stream)

    @cached_property
    def fits(self) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
        """Both maps, fitted on dev."""
        return fitting.fits(self.dev.dev, self.eps)

    @cached_property
    def bootstraps(self) -> Mapping[PlainMethod, Bootstrap]:
        """Their uncertainty over the prompts of dev."""
        return fitting.bootstraps(self.dev.dev, self.seed, self.eps)

    @cached_property
    def evidence(self) -> EvidenceFound | None:
        """The evidence map, fitted on dev; None unless every prompt of both has log-probabilities."""
        if self.test.missing_mass is None:
            return None
        dev, fold = self.dev, self._plain.fold
        found = self.rng(Stream.BOOTSTRAP)
        return find_evidence(dev.material, dev.dev, fold, None, found, fitting.RESAMPLES)

    @cached_property
    def _plain(self) -> CrossValidation:
        return fitting.held_out(self.dev.dev, self.seed, self.eps)

    @cached_property
    def held_out(self) -> CrossValidation:
        """Out-of-fold risks on dev of every map, and those maps that need no log-probabilities."""
        return fitting.with_evidence(self._plain, self.evidence)

    @cached_property
    def maps(self) -> Mapping[str, CalibrationMap]:
        """Every map of all test prompts at once, by name, raw first; that of evidence has a g for each."""
        found: dict[str, CalibrationMap] = {"raw": Identity(self.eps)}
        found |= {method: one.map for method, one in self.fits.items()}
        if self.evidence is not None and self.test.missing_mass is not None:
            found["evidence"] = self.evidence.fit.map.over(self.test.missing_mass)
        return found

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each of the n test prompts, one for each."""
        if name == "evidence" and self.evidence is not None and self.test.missing_mass is not None:
            return [self.evidence.fit.map.at(u) for u in self.test.missing_mass]
        return [self.maps[name]] * len(self.test)

    def risks_of(self, name: str) -> Floats:
        """Return what a map's fitted operators cost on the references of test, (n,) in nats."""
        return risks(self.maps[name], self.test.dev)

    @property
    def names(self) -> Sequence[str]:
        """The maps that are judged, raw first."""
        return tuple(self.maps)

    @cached_property
    def served(self) -> Mapping[str, Served]:
        """What each map serves on test."""
        return {name: self._served(name) for name in self.names}

    def _served(self, name: str) -> Served:
        pairs = zip(self.maps_of(name), self.test.spectra, strict=True)
        spectra = [map_.serve(one.eigenvalues, one.dimension) for map_, one in pairs]
        return served(name, spectra, self.risks_of(name))

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what is fitted on dev with the first answers of each prompt, as judged on test."""
        tokens = mean_tokens(self.test.material, num_samples)
        dev, test = (one.at(num_samples) for one in self._rows)
        return judge(dev, test, num_samples, tokens, self.eps, partial(self.rng, Stream.ANSWERS))

    @cached_property
    def _rows(self) -> tuple[FullRows, FullRows]:
        dev, test = (FullRows(one.material, one_text=True) for one in (self.dev, self.test))
        return dev, test

    @cached_property
    def cosines(self) -> Floats | None:
        """Frobenius cosines (n, n) of the test prompts; None where there are too many to keep."""
        return frobenius_cosines(self.test.stack) if len(self.test) <= MAX_COSINES else None

    @cached_property
    def projection(self) -> Mapping[str, ProjectionReading]:
        """The projection diagram of each map, with its null."""
        return {
            name: read_projection(one, self.test, self.rng(Stream.PROJECTION))
            for name, one in self.served.items()
        }

    @cached_property
    def correctness(self) -> Mapping[str, CorrectnessReading]:
        """The correctness diagram of each map, with its band."""
        return {
            name: read_correctness(one, self.test, self.rng(Stream.CORRECTNESS))
            for name, one in self.served.items()
        }

    def algorithm1(self, name: str, setting: Setting = STANDARD) -> Algorithm1Reading:
        """Return Algorithm 1 of a map.

        Only the standard setting is read alone: the first other one brings all, which share null worlds.
        """
        if (name, setting) not in self._algorithm1:
            self._read(name, (STANDARD,) if setting == STANDARD else (NAIVE, STANDARD, *GRID))
        return self._algorithm1[name, setting]

    def _read(self, name: str, settings: Sequence[Setting]) -> None:
        # One setting needs the pairs within its bins only: the table of all would be more work, and memory.
        cosines = None if len(settings) == 1 else self.cosines
        found = read_algorithm1(
            self.served[name], self.test, settings, self.rng(Stream.ALGORITHM1), cosines=cosines
        )
        self._algorithm1.update({(name, setting): one for setting, one in found.items()})


class HeldOut(Bench):
    """One file alone: each of its prompts is judged as served by the map of the fold that held it out.

    fitted: on the full rows of the file. Its maps are those that `Fitted.held_out` has risks of: "evidence"
    where the rows have log-probabilities, and "active".
    """

    def __init__(self, rows: Split, fitted: Fitted, *, seed: int = 0, eps: float = DEFAULT_EPS) -> None:
        super().__init__(rows, rows, seed=seed, eps=eps)
        self._fitted = fitted
        self._first_answers: dict[int, AtSize] = {}

    @cached_property
    def fits(self) -> Mapping[PlainMethod, TemperatureFit | DepolarizedFit]:
        """Both maps, as fitted."""
        return self._fitted.fits

    @cached_property
    def bootstraps(self) -> Mapping[PlainMethod, Bootstrap]:
        """Their uncertainty, as found with the fit."""
        return self._fitted.bootstraps

    @cached_property
    def held_out(self) -> CrossValidation:
        """Out-of-fold risks and maps, those of the active calibration included."""
        return self._fitted.held_out

    @cached_property
    def evidence(self) -> EvidenceFound | None:
        """The evidence map, as fitted."""
        return self._fitted.evidence

    @property
    def names(self) -> Sequence[str]:
        """The maps that have out-of-fold risks, "active" last."""
        return tuple(self.held_out.risks)

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each prompt, fitted without its fold."""
        return self._fitted.maps_of(name)

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what the first answers of each prompt are worth, each judged by fits without its fold."""
        if num_samples not in self._first_answers:
            tokens, fold = mean_tokens(self.test.material, num_samples), self.held_out.fold
            rows, rng = self._full.at(num_samples), partial(self.rng, Stream.ANSWERS)
            self._first_answers[num_samples] = judge_held_out(rows, fold, num_samples, tokens, self.eps, rng)
        return self._first_answers[num_samples]

    def correct_by(self, calibration: Calibration) -> Floats | None:
        """Return P(correct) (n,) by the model of a calibration fitted elsewhere, of the texts judged here.

        By as many of the first answers as it serves. None where it has no model of them, or one that takes
        log-probabilities which these rows lack.
        """
        size = min(self.test.material.num_samples, calibration.num_samples)
        decider, rows = calibration.deciders.get(size), self._full.at(size)
        if decider is None or (isinstance(decider.map, EvidenceMap) and rows.missing_mass is None):
            return None
        columns = rows.columns(decider.map)
        return decider.model.predict(columns) if columns.keys() >= set(decider.model.features) else None

    @cached_property
    def _full(self) -> FullRows:
        return FullRows(self.test.material, one_text=True)

    def risks_of(self, name: str) -> Floats:
        """Return the out-of-fold risks of a map, (n,) in nats."""
        return self.held_out.risks[name]
