"""The figures of maps that are fitted on one file and judged on another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lab.resampling import DEFAULT, Resamples
from lab.splits import Served, Split
from service.calibration.diagnostics import (
    AtSize,
    CrossValidated,
    Scored,
    correct_maps,
    correctness_scored,
)
from service.calibration.fitting import Stream, fit_maps, folds
from service.calibration.labels import Judged
from service.spectral.correctness_model import base_rate, fit_correctness, log_losses
from service.spectral.dev_set import AnyMap, risks
from service.spectral.evidence import EvidenceMap
from service.spectral.fit import no_prior
from service.spectral.resampling import ResampleCounts
from service.spectral.spectrum import CalibrationMap, TemperatureMap

Floats = NDArray[np.float64]


class TwoFiles(CrossValidated):
    """Maps fitted on `dev` and judged on `test`.

    "evidence" needs log-probabilities of every prompt of both files.
    """

    def __init__(self, dev: Split, test: Split, *, seed: int = 0, resamples: Resamples = DEFAULT) -> None:
        self.dev, self.test, self.rows, self.priors = dev, test, test.rows, no_prior
        self.seed, self.resamples = seed, resamples
        self._served: dict[str, Served] = {}
        self._first_answers = {}
        spectra = dev.rows.dev
        if test.rows.dev.missing_mass is None:
            spectra = replace(spectra, missing_mass=None)
        self.fitted = fit_maps(spectra, dev.material.num_samples, folds(dev.rows, seed))

    @property
    def why_no_evidence(self) -> str | None:
        """Why no evidence map was fitted, as a sentence; None if one was."""
        return self.dev.rows.why_no_evidence() or self.test.rows.why_no_evidence()

    @cached_property
    def maps(self) -> Mapping[str, AnyMap]:
        """The maps by name, raw first."""
        return {"raw": TemperatureMap(1.0), **{name: fit.map for name, fit in self.fitted.fits.items()}}

    @cached_property
    def risks(self) -> Mapping[str, Floats]:
        """The risk (n,) of each map on the references of the test prompts, in nats, by name, raw first."""
        return {name: risks(map_, self.test.rows.dev) for name, map_ in self.maps.items()}

    @cached_property
    def picks(self) -> ResampleCounts:
        """The resamples of all AUROCs."""
        number = self.resamples.auroc
        return ResampleCounts.of(len(self.test), self.rng(Stream.AUROC), number, self.rows.groups)

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each of the n test prompts."""
        map_, masses = self.maps[name], self.test.rows.dev.missing_mass
        if isinstance(map_, EvidenceMap):
            assert masses is not None, "fitted only where all prompts have it"
            return [map_.at(u) for u in masses]
        return [map_] * len(self.test)

    def served(self, name: str) -> Served:
        """Return the scores that a map serves for the test prompts."""
        if name not in self._served:
            self._served[name] = self.test.served(self.maps_of(name), self.risks[name])
        return self._served[name]

    def lambda_max(self, name: str) -> Floats:
        """Return the largest eigenvalue (n,) that a map serves for each test prompt, 0..1."""
        return self.served(name).lambda_max

    @property
    def judges_without_answers(self) -> bool:
        """Whether every judged text of both files has a log-probability of its own."""
        return self.dev.rows.own_logprob_share == self.test.rows.own_logprob_share == 1

    def _judge(self, judged: Judged, num_samples: int) -> AtSize:
        """Return `judged` with its scores, by fits on the dev file."""
        dev = self.dev.rows.at(num_samples, one_text=True)
        maps = correct_maps(dev, num_samples)
        if judged.rows.missing_mass is None and not judged.tokens:
            maps.pop("evidence", None)
        base = np.full(len(judged), base_rate(dev.right))
        fold = self.fitted.fold[dev.places]
        scored, why_none = list[Scored](), ""
        for name in maps:
            outcome = fit_correctness(dev.columns(maps[name]), dev.right, fold)
            if outcome.why_none == "one_kind" and num_samples:
                kind = "right" if outcome.num_right else "wrong"
                why_none = f"all {dev.right.size} answers of the dev file are {kind}"
            if outcome.held_out is not None:
                model = outcome.model
                p = None if model is None else model.predict(judged.columns(maps[name]))
                scored.append(correctness_scored(name, p, base, judged.right))
        return AtSize(
            num_samples,
            judged.right,
            scored,
            log_losses(base, judged.right),
            why_none,
            self.rows.mean_tokens(num_samples),
            same_text=bool(num_samples) or self.rows.has_own_texts,
        )
