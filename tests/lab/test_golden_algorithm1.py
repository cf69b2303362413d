"""Algorithm 1 and Cal_S of the recorded data match independently computed figures."""

from functools import cached_property, reduce
from operator import getitem

import numpy as np
import pytest

from lab.algorithm1 import algorithm1, cluster_labels, cluster_prompts, nulls
from lab.baselines import likelihoods
from lab.density import DensityStack, calibration_error, frobenius_cosines
from lab.experiments import Evaluation
from service.spectral.spectrum import TemperatureMap
from tests.golden.test_golden_diagnostics import Recorded, largest
from tests.golden.test_golden_evaluation import SERVED, split, vectors
from tests.lab.worlds import null_band
from tests.support.reports import FEW

pytestmark = pytest.mark.shared


class Matrices(Recorded):
    """The recorded rows as density matrices."""

    @cached_property
    def stack(self):
        return DensityStack.of(self.vectors, self.counts)

    @cached_property
    def targets(self):
        return DensityStack.of(list(self.references.astype(np.float64)))


@pytest.fixture(scope="module")
def matrices(shared_data, golden):
    return Matrices(shared_data, golden)


@pytest.fixture(params=["raw", "temperature", "depolarized"])
def case(request, matrices):
    map_, golden = matrices.map_and_golden(request.param)
    return [map_.serve(s.eigenvalues, 768) for s in matrices.spectra], golden


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize(("clusters", "name"), [(5, "algorithm1_ece_B8_C5"), (1, "naive_ece_B8")])
def test_algorithm1_figures(matrices, case, clusters, name, precision):
    served, golden = case
    stack = DensityStack.of([v.astype(precision) for v in matrices.vectors], matrices.counts)
    clustering = cluster_prompts(stack, largest(served), num_clusters=clusters)
    assert algorithm1(clustering, matrices.targets).ece == pytest.approx(golden[name], abs=1e-6)


@pytest.mark.parametrize(("name", "blamed"), [("raw", True), ("temperature", True), ("depolarized", False)])
def test_both_nulls_of_algorithm1(matrices, name, blamed):
    """All are outside the first null; our map is inside the null for maps of eigenvalues."""
    map_, golden = matrices.map_and_golden(name)
    served = [map_.serve(s.eigenvalues, 768) for s in matrices.spectra]
    clustering = cluster_prompts(matrices.stack, largest(served))
    [both] = nulls(
        [clustering],
        matrices.stack,
        matrices.spectra,
        served,
        matrices.targets,
        np.random.default_rng(0),
    )
    ece = golden["algorithm1_ece_B8_C5"]
    assert ece > both.drawn.band.ece_high
    assert (ece > both.rescaled.band.ece_high) is blamed


def test_algorithm1_is_far_from_zero_in_a_calibrated_world(matrices):
    """The method warns of 0.14 to 0.20 if the reference is one of the prompt's own samples."""
    clustering = cluster_prompts(matrices.stack, [s.eigenvalues[0] for s in matrices.spectra])
    served = [TemperatureMap(1.0).serve(s.eigenvalues, 768) for s in matrices.spectra]
    rng = np.random.default_rng(0)
    band = null_band(clustering, matrices.stack, matrices.spectra, served, rng)
    assert 0.10 < band.ece_low < band.ece_mean < band.ece_high < 0.25


def test_cal_s_falls_from_raw_to_the_paper_to_ours(matrices):
    labels = cluster_labels(frobenius_cosines(matrices.stack), 30)
    errors = []
    for name in ("raw", "temperature", "depolarized"):
        map_, _ = matrices.map_and_golden(name)
        fitted = [map_.fitted(s.eigenvalues, 768) for s in matrices.spectra]
        errors.append(calibration_error(labels, matrices.stack, matrices.spectra, fitted, matrices.targets))
    assert errors[0] > errors[1] > errors[2] > 0


def test_evaluation_has_these_figures(recorded, golden):
    """Its maps are fitted, not recorded."""
    dev, test = split(recorded, slice(0, 150)), split(recorded, slice(150, 400))
    bench = Evaluation(dev, test, vectors(recorded), resamples=FEW)
    for name, path in SERVED.items():
        figures = reduce(getitem, path, golden)
        for clusters, ece in ((5, "algorithm1_ece_B8_C5"), (1, "naive_ece_B8")):
            assert bench.algorithm1(name, clusters)["ece"] == pytest.approx(figures[ece], abs=5e-3)


def test_log_probabilities_are_of_whole_answers(recorded):
    """Longer answers are less likely as a whole: recorded values are not means."""
    likelihoods_ = likelihoods(split(recorded, slice(150, 400), tells=True))
    assert likelihoods_ is not None
    assert likelihoods_.totals is not None
    totals, per_word = np.concatenate(likelihoods_.totals), np.concatenate(likelihoods_.normalized)
    words = totals / per_word
    assert np.corrcoef(words, totals)[0, 1] < -0.4
    assert abs(np.corrcoef(words, per_word)[0, 1]) < 0.4
