"""What diagnostics share: prompts as arrays, maps fitted for them, what those serve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from service.calibration import fitting
from service.calibration.calibration import Calibration
from service.calibration.fitting import Fitted, FittedMaps, Stream, fit_maps
from service.calibration.labels import FullRows
from service.report.first_answers import AtSize, judge, judge_alone, judge_held_out, mean_tokens
from service.spectral.algorithm1 import Clustering, Nulls, cluster_prompts, nulls
from service.spectral.correctness import Auroc, bootstrap_auroc
from service.spectral.density import DensityStack
from service.spectral.dev_set import risks
from service.spectral.evidence import EvidenceMap
from service.spectral.maps import CalibrationMap, Identity, ServedSpectrum
from service.spectral.resampling import DEFAULT, Difference, Resamples, mean_difference
from service.spectral.spectrum import Spectrum, spectrum

Floats = NDArray[np.float64]
BINS, CLUSTERS = 8, 5  # of Algorithm 1, as the paper has them


class Split:
    """n prompts that have all m answers.

    answers, counts, texts, spectra: one per prompt; stack: their density matrices; targets: those of the
    references; c1: (n,) u_1^T Y u_1. Blocking: seconds for thousands.
    """

    def __init__(self, rows: FullRows) -> None:
        self.rows, self.material = rows, rows.material
        self.answers = [self.material.answers[i] for i in self.material.full]
        self.texts = [self.material.texts[i] for i in self.material.full]
        self.counts = [np.bincount(a.index, minlength=len(a.vectors)) for a in self.answers]
        pairs = zip(self.answers, self.counts, strict=True)
        self.spectra = [spectrum(a.vectors, c, dimension=self.material.dimension) for a, c in pairs]
        self.stack = DensityStack.of([a.vectors for a in self.answers], self.counts)
        self.targets = DensityStack.of([a.references for a in self.answers])
        # Above 1 by rounding only, which a diagram refuses.
        self.c1: Floats = np.clip(rows.dev.alignment[:, 0], 0.0, 1.0)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The n prompts of a split as a map serves them. lambda_max, entropy (nats), risks (nats): (n,)."""

    spectra: Sequence[ServedSpectrum]
    lambda_max: Floats
    entropy: Floats
    risks: Floats


def served(maps: Iterable[CalibrationMap], prompts: Sequence[Spectrum], risks: Floats) -> Served:
    """Return what the maps serve of n prompts, one each, and what that costs on the references (n,)."""
    pairs = zip(maps, prompts, strict=True)
    spectra = [map_.serve(one.eigenvalues, one.dimension) for map_, one in pairs]
    # Above 1 by rounding only, which a diagram refuses.
    largest = np.clip([one.lambda_max for one in spectra], 0.0, 1.0)
    return Served(spectra, largest, np.array([one.entropy for one in spectra]), risks)


class EvaluationContext:
    """Maps fitted on `dev` and judged on `test`; each derived figure is computed once, when asked for."""

    def __init__(
        self,
        dev: Split,
        test: Split,
        *,
        seed: int = 0,
        resamples: Resamples = DEFAULT,
    ) -> None:
        self.dev, self.test, self.seed, self.resamples = dev, test, seed, resamples

    def rng(self, stream: Stream) -> np.random.Generator:
        """Return the random numbers of one experiment, the same whichever others run."""
        return fitting.rng(self.seed, stream)

    @property
    def groups(self) -> NDArray[np.int_] | None:
        """The groups of the test prompts, as `Material.full_groups`."""
        return self.test.rows.groups

    @cached_property
    def fitted(self) -> FittedMaps:
        """The maps, fitted on dev; that of evidence where every prompt of both has log-probabilities."""
        missing = None if self.test.rows.missing_mass is None else self.dev.rows.missing_mass
        again, m = self.resamples.bootstrap, self.dev.material.num_samples
        return fit_maps(self.dev.rows.dev, missing, m, seed=self.seed, resamples=again)

    @cached_property
    def maps(self) -> Mapping[str, CalibrationMap]:
        """Every map of all test prompts at once, by name, raw first; that of evidence has a g for each."""
        maps: dict[str, CalibrationMap] = {"raw": Identity()}
        for name, one in self.fitted.fits.items():
            if isinstance(one.map, EvidenceMap):
                assert self.test.rows.missing_mass is not None, "fitted only where all prompts have it"
                maps[name] = one.map.over(self.test.rows.missing_mass)
            else:
                maps[name] = one.map
        return maps

    def maps_of(self, name: str) -> Sequence[CalibrationMap]:
        """Return the map that serves each of the n test prompts, one for each."""
        fit, masses = self.fitted.fits.get(name), self.test.rows.missing_mass
        if fit is not None and isinstance(fit.map, EvidenceMap) and masses is not None:
            return [fit.map.at(u) for u in masses]
        return [self.maps[name]] * len(self.test)

    @cached_property
    def served(self) -> Mapping[str, Served]:
        """What each map serves on test, by name, raw first."""
        spectra, dev = self.test.spectra, self.test.rows.dev
        return {
            name: served(self.maps_of(name), spectra, risks(map_, dev)) for name, map_ in self.maps.items()
        }

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what is fitted on dev with the first answers of each prompt, as judged on test."""
        tokens = mean_tokens(self.test.material, num_samples)
        dev, test = (one.rows.at(num_samples, one_text=True) for one in (self.dev, self.test))
        return judge(dev, test, num_samples, tokens, partial(self.rng, Stream.ANSWERS))

    def no_answers(self) -> AtSize | None:
        """Return the same for no answer drawn; None unless every judged text has a log-probability."""
        dev, test = (one.rows.alone() for one in (self.dev, self.test))
        if dev is None or test is None or not (dev.known.all() and test.known.all()):
            return None
        return judge_alone(test, partial(self.rng, Stream.ANSWERS), dev=dev)

    def algorithm1(self, served: Served, num_clusters: int = CLUSTERS) -> tuple[Clustering, Nulls]:
        """Return the clusters of Algorithm 1, so many a bin, and both of its nulls."""
        test = self.test
        # Of claims no two are alike: their vectors do not compare.
        number = num_clusters if self.groups is None else len(test)
        clusters = cluster_prompts(test.stack, served.lambda_max, num_bins=BINS, num_clusters=number)
        random, again = self.rng(Stream.ALGORITHM1), self.resamples.nulls
        worlds = test.stack, test.spectra, served.spectra, test.targets
        return clusters, nulls(clusters, *worlds, random, num_draws=again)

    def difference(self, second: Floats, first: Floats) -> Difference:
        """Return the mean of second - first (n,), paired by prompt; all differences by the same resamples."""
        random, again = self.rng(Stream.DIFFERENCES), self.resamples.difference
        return mean_difference(second, first, random, resamples=again, groups=self.groups)

    def squared_gaps(self, name: str) -> Floats:
        """Return (lambda_max - u_1^T Y u_1)^2 (n,) of a map on test: their mean is its projection Brier."""
        return np.square(self.served[name].lambda_max - self.test.c1)

    def auroc(self, scores: Floats) -> Auroc:
        """Return the AUROC of scores (n,), higher = more certain; the same resamples for every score."""
        right, random, again = self.test.rows.right, self.rng(Stream.AUROC), self.resamples.auroc
        return bootstrap_auroc(scores, right, random, num_resamples=again, groups=self.groups)


class CrossValidated(EvaluationContext):
    """One file alone: each of its prompts is judged as served by the map of the fold that held it out.

    fitted: on the full rows of the file. Its maps are those of `FittedMaps.risks`.
    """

    def __init__(
        self,
        fitted: Fitted,
        *,
        seed: int = 0,
        resamples: Resamples = DEFAULT,
    ) -> None:
        rows = Split(fitted.rows)
        super().__init__(rows, rows, seed=seed, resamples=resamples)
        self._drawn_to = fitted.priors, fitted.model_priors
        self._first_answers: dict[int, AtSize] = {}
        self.fitted = fitted.maps  # not fitted anew

    @cached_property
    def served(self) -> Mapping[str, Served]:
        """What serves each prompt: the map fitted without its fold; "active" last."""
        spectra, fitted = self.test.spectra, self.fitted
        return {name: served(fitted.maps_of(name), spectra, risks) for name, risks in fitted.risks.items()}

    def first_answers(self, num_samples: int) -> AtSize:
        """Return what the first answers of each prompt are worth, each judged by fits without its fold."""
        if num_samples not in self._first_answers:
            tokens, fold = mean_tokens(self.test.material, num_samples), self.fitted.fold
            rows = self.test.rows.at(num_samples, one_text=True)
            rng = partial(self.rng, Stream.ANSWERS)
            self._first_answers[num_samples] = judge_held_out(
                rows, fold, num_samples, tokens, rng, *self._drawn_to
            )
        return self._first_answers[num_samples]

    def no_answers(self) -> AtSize | None:
        """Return the same for no answer drawn; None unless every judged text has a log-probability."""
        rows = self.test.rows.alone()
        if rows is None or not rows.known.all():
            return None
        return judge_alone(rows, partial(self.rng, Stream.ANSWERS), model_priors=self._drawn_to[1])

    def correct_by(self, calibration: Calibration) -> Floats | None:
        """Return P(correct) (n,) by the model of a calibration fitted elsewhere, of the texts judged here.

        By as many of the first answers as it serves. None where it has no model of them, or one that takes
        log-probabilities which these rows lack.
        """
        size = min(self.test.material.num_samples, calibration.num_samples)
        selector, rows = calibration.selectors.get(size), self.test.rows.at(size, one_text=True)
        if selector is None or selector.map is None:
            return None
        if isinstance(selector.map, EvidenceMap) and rows.missing_mass is None:
            return None
        columns = rows.columns(selector.map)
        return selector.model.predict(columns) if columns.keys() >= set(selector.model.features) else None
