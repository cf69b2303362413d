"""What the experiments share: both files, the maps fitted on dev, and what they serve on test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from service.domain.calibrating.material import Material
from service.domain.calibration import Method
from service.domain.study.split import Split
from service.spectral.density import frobenius_cosines
from service.spectral.fit import Bootstrap, DepolarizedFit, TemperatureFit, bootstrap, fit
from service.spectral.maps import DEFAULT_EPS, CalibrationMap, Identity, ServedSpectrum

Floats = NDArray[np.float64]
METHODS: tuple[Method, ...] = ("temperature", "depolarized")
RESAMPLES = 200
# Beyond this many prompts the table of all Frobenius cosines (8 bytes a pair) is not kept.
MAX_COSINES = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The test prompts as one map serves them: lambda_max, entropy (n,)."""

    name: str
    map: CalibrationMap
    spectra: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats


def serve(name: str, map_: CalibrationMap, split: Split) -> Served:
    """Return what a map serves on a split."""
    served = [map_.serve(one.eigenvalues, one.dimension) for one in split.spectra]
    largest = np.clip([s.lambda_max for s in served], 0.0, 1.0)
    return Served(name, map_, served, largest, np.array([s.entropy for s in served]))


class Bench:
    """Two splits and everything derived from them once.

    deep: the material whose answers show how the estimator converges; may be one with more answers.
    """

    def __init__(self, dev: Split, test: Split, *, seed: int = 0, eps: float = DEFAULT_EPS) -> None:
        self.dev, self.test, self.seed, self.eps = dev, test, seed, eps
        self.deep: Material = test.material

    def rng(self, stream: int) -> np.random.Generator:
        """Return the random numbers of one experiment, the same whichever others run."""
        return np.random.default_rng([self.seed, stream])

    @cached_property
    def fits(self) -> Mapping[Method, TemperatureFit | DepolarizedFit]:
        """Both maps, fitted on dev."""
        return {method: fit(self.dev.dev, method, eps=self.eps) for method in METHODS}

    @cached_property
    def bootstraps(self) -> Mapping[Method, Bootstrap]:
        """Their uncertainty over the prompts of dev."""
        return {
            m: bootstrap(self.dev.dev, m, rng=self.rng(1), resamples=RESAMPLES, eps=self.eps) for m in METHODS
        }

    @cached_property
    def maps(self) -> Mapping[str, CalibrationMap]:
        """Every map by name, raw first."""
        return {"raw": Identity(self.eps), **{m: one.map for m, one in self.fits.items()}}

    @cached_property
    def served(self) -> Mapping[str, Served]:
        """What each map serves on test."""
        return {name: serve(name, map_, self.test) for name, map_ in self.maps.items()}

    @cached_property
    def cosines(self) -> Floats | None:
        """Frobenius cosines (n, n) of the test prompts; None where there are too many to keep."""
        return frobenius_cosines(self.test.stack) if len(self.test) <= MAX_COSINES else None
