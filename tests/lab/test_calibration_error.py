import numpy as np
import pytest

from lab.density import DensityStack, calibration_error, cluster_error
from service.spectral.spectrum import DepolarizedMap, Identity, TemperatureMap, spectrum
from tests.lab.worlds import draw_references
from tests.support.alignment import reference_alignment


def problem(seed, size, dimension):
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal((int(rng.integers(1, 5)), dimension)) for _ in range(size)]
    references = [rng.standard_normal((int(rng.integers(1, 3)), dimension)) for _ in range(size)]
    return vectors, references, [spectrum(v) for v in vectors]


def log_of(matrix):
    values, columns = np.linalg.eigh(matrix)
    return (columns * np.log(np.maximum(values, 1e-300))) @ columns.T


def straight_error(vectors, references, spectra, served, members):
    """Return tr[C log C] - tr[C log P] on d x d matrices."""
    targets, predicted = [], []
    for i in members:
        unit = references[i] / np.linalg.norm(references[i], axis=1, keepdims=True)
        targets.append(unit.T @ unit / len(unit))
        basis = spectra[i].eigenvectors(vectors[i])
        null = np.eye(basis.shape[1]) - basis.T @ basis
        predicted.append((basis.T * served[i].eigenvalues) @ basis + served[i].null_value * null)
    c, p = np.mean(targets, axis=0), np.mean(predicted, axis=0)
    values = np.linalg.eigvalsh(c)
    values = values[values > 1e-12]
    return values @ np.log(values) - np.trace(c @ log_of(p))


@pytest.mark.parametrize("dimension", [8, 60, 400])  # the span fills the space, or nearly, or by far not
@pytest.mark.parametrize("map_", [DepolarizedMap(0.9, 0.5), TemperatureMap(2.0), Identity(1e-6)])
def test_result_equals_the_definition_on_dense_matrices(map_, dimension):
    vectors, references, spectra = problem(0, 40, dimension)
    served = [map_.fitted(s.eigenvalues, dimension) for s in spectra]
    labels = np.arange(40) % 3
    stack, targets = DensityStack.of(vectors), DensityStack.of(references)
    error = calibration_error(labels, stack, spectra, served, targets)
    groups = [np.flatnonzero(labels == k) for k in range(3)]
    expected = np.mean([straight_error(vectors, references, spectra, served, g) for g in groups])
    assert error == pytest.approx(expected, abs=1e-6)
    assert error > 0


def test_error_of_one_prompt_is_its_risk_minus_the_gain_of_mixing():
    vectors, references, spectra = problem(1, 1, 30)
    served = [DepolarizedMap(1, 0.5).fitted(spectra[0].eigenvalues, 30)]
    c, outside = reference_alignment(spectra[0], vectors[0], references[0][:1])
    risk = -c @ np.log(served[0].eigenvalues) - outside * np.log(served[0].null_value)
    members = np.array([0])
    args = DensityStack.of(vectors), spectra, served, DensityStack.of([references[0][:1]])
    assert cluster_error(*args, members) == pytest.approx(risk, abs=1e-9)


def test_a_target_equal_to_the_prediction_has_no_error():
    vectors = [np.eye(4)] * 6
    stack = DensityStack.of(vectors, [[4, 3, 2, 1]] * 6)
    spectra = [spectrum(v, [4, 3, 2, 1]) for v in vectors]
    served = [Identity().fitted(s.eigenvalues, 4) for s in spectra]
    assert calibration_error(np.ones(6, int), stack, spectra, served, stack) == pytest.approx(0, abs=1e-12)


def test_calibrated_world_has_a_lower_error_than_a_miscalibrated_one():
    vectors, _, spectra = problem(2, 300, 20)
    stack = DensityStack.of(vectors)
    true = [DepolarizedMap(1, 0.5).fitted(s.eigenvalues, 20) for s in spectra]
    wrong = [DepolarizedMap(0.5, 0.05).fitted(s.eigenvalues, 20) for s in spectra]
    targets = draw_references(stack, spectra, true, np.random.default_rng(0))
    # One prompt in many clusters: the mean over a cluster would hide miscalibration.
    labels = np.arange(300)
    own = calibration_error(labels, stack, spectra, true, targets)
    assert own < calibration_error(labels, stack, spectra, wrong, targets)


def test_sample_spectrum_and_unequal_sizes_are_refused():
    vectors, references, spectra = problem(3, 5, 20)
    stack, targets = DensityStack.of(vectors), DensityStack.of(references)
    served = [Identity().serve(s.eigenvalues, 20) for s in spectra]
    with pytest.raises(ValueError, match="full-space"):
        calibration_error(np.ones(5, int), stack, spectra, served, targets)
    with pytest.raises(ValueError, match="one entry per prompt"):
        calibration_error(np.ones(4, int), stack, spectra, served, targets)
