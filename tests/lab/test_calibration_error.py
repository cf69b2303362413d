import numpy as np
import pytest

from lab.density import DensityStack, calibration_error
from lab.vectors import eigenvectors, spectrum
from service.spectral.spectrum import DepolarizedMap, TemperatureMap


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
        basis = eigenvectors(spectra[i], vectors[i])
        null = np.eye(basis.shape[1]) - basis.T @ basis
        predicted.append((basis.T * served[i].eigenvalues) @ basis + served[i].null_value * null)
    c, p = np.mean(targets, axis=0), np.mean(predicted, axis=0)
    values = np.linalg.eigvalsh(c)
    values = values[values > 1e-12]
    return values @ np.log(values) - np.trace(c @ log_of(p))


@pytest.mark.parametrize("dimension", [8, 60, 400])  # the span fills the space, or nearly, or by far not
@pytest.mark.parametrize("map_", [DepolarizedMap(0.9, 0.5), TemperatureMap(2.0), TemperatureMap(1.0, 1e-6)])
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


def test_sample_spectrum_and_unequal_sizes_are_refused():
    vectors, references, spectra = problem(3, 5, 20)
    stack, targets = DensityStack.of(vectors), DensityStack.of(references)
    served = [TemperatureMap(1.0).serve(s.eigenvalues, 20) for s in spectra]
    with pytest.raises(ValueError, match="full-space"):
        calibration_error(np.ones(5, int), stack, spectra, served, targets)
    with pytest.raises(ValueError, match="one entry per prompt"):
        calibration_error(np.ones(4, int), stack, spectra, served, targets)
