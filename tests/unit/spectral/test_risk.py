import numpy as np
import pytest
from hypothesis import given, settings

from service.spectral.dev_set import DevSpectra, mean_entropy, risk, risks, served_lambda_max
from service.spectral.spectrum import DepolarizedMap, Identity, TemperatureMap, spectrum
from tests.support.alignment import reference_alignment
from tests.unit.spectral.worlds import depolarizations, pack, random_dev_set, seeds, temperatures, unit


def dense_risk(operator: np.ndarray, references: np.ndarray) -> float:
    """Return -tr(Y log P) of full d x d matrices."""
    values, columns = np.linalg.eigh(operator)
    return float(-(np.square(references @ columns).mean(axis=0) @ np.log(values)))


@pytest.mark.parametrize("map_", [TemperatureMap(2.0, 1e-5), DepolarizedMap(0.8, 0.4), Identity(1e-5)])
def test_risk_and_entropy_equal_the_full_matrices(map_: TemperatureMap | DepolarizedMap) -> None:
    rng = np.random.default_rng(0)
    vectors, references = unit(rng, 4, 9), unit(rng, 3, 9)
    spectrum_ = spectrum(vectors, [3, 1, 1, 2])
    dev = pack([spectrum_], [reference_alignment(spectrum_, vectors, references)], 9)
    served = map_.fitted(spectrum_.eigenvalues, 9)
    u = spectrum_.eigenvectors(vectors)
    operator = served.null_value * (np.eye(9) - u.T @ u) + (u.T * served.eigenvalues) @ u
    assert risk(map_, dev) == pytest.approx(dense_risk(operator, references), abs=1e-9)
    values = np.linalg.eigvalsh(operator)
    assert mean_entropy(map_, dev) == pytest.approx(-(values @ np.log(values)), abs=1e-9)
    assert mean_entropy(map_, dev) == pytest.approx(served.entropy, abs=1e-9)


@settings(deadline=None)
@given(seeds, temperatures, depolarizations)
def test_batched_maps_agree_with_single_ones(seed: int, t: float, g: float) -> None:
    dev = random_dev_set(seed, prompts=5)
    for map_ in (TemperatureMap(t), DepolarizedMap(t, g), Identity()):
        rows = [row[row > 0] for row in dev.eigenvalues]
        single = [map_.serve(row, dev.dimension).lambda_max for row in rows]
        assert served_lambda_max(map_, dev) == pytest.approx(single, rel=1e-12)
        entropy = np.mean([map_.fitted(row, dev.dimension).entropy for row in rows])
        assert mean_entropy(map_, dev) == pytest.approx(entropy, abs=1e-9)


def test_packing_pads_with_zeros_and_taking_keeps_rows() -> None:
    rng = np.random.default_rng(1)
    vectors = [unit(rng, k, 9) for k in (1, 4, 2)]
    spectra = [spectrum(v) for v in vectors]
    dev = pack(spectra, [reference_alignment(s, v, v[:1]) for s, v in zip(spectra, vectors, strict=True)], 9)
    assert len(dev) == 3
    assert dev.rank.tolist() == [1, 4, 2]
    assert dev.eigenvalues[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert dev.outside == pytest.approx(np.zeros(3), abs=1e-12)
    taken = dev.take(np.array([2, 0]))
    assert taken.rank.tolist() == [2, 1]
    assert risks(Identity(), taken) == pytest.approx(risks(Identity(), dev)[[2, 0]])


def test_reference_outside_the_span_has_infinite_risk_without_null_mass() -> None:
    values = np.array([[1.0], [1.0]])
    dev = DevSpectra(values, np.array([[1.0], [0.4]]), np.array([1e-16, 0.6]), np.array([1, 1]), 5)
    assert risks(DepolarizedMap(1.0, 0.0), dev).tolist() == [0.0, np.inf]
    assert np.isfinite(risks(DepolarizedMap(1.0, 1e-6), dev)).all()
    assert np.isfinite(risks(Identity(), dev)).all()
