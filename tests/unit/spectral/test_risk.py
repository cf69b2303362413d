import numpy as np
import pytest

from lab.vectors import eigenvectors, spectrum
from service.spectral.dev_set import mean_entropy, risk
from service.spectral.spectrum import DepolarizedMap, TemperatureMap
from tests.support.alignment import reference_alignment
from tests.unit.spectral.worlds import pack, unit


def dense_risk(operator: np.ndarray, references: np.ndarray) -> float:
    """Return -tr(Y log P) of full d x d matrices."""
    values, columns = np.linalg.eigh(operator)
    return float(-(np.square(references @ columns).mean(axis=0) @ np.log(values)))


@pytest.mark.parametrize(
    "map_", [TemperatureMap(2.0, 1e-5), TemperatureMap(1.0, 1e-5), DepolarizedMap(0.8, 0.4)]
)
def test_risk_and_entropy_equal_the_full_matrices(map_: TemperatureMap | DepolarizedMap) -> None:
    rng = np.random.default_rng(0)
    vectors, references = unit(rng, 4, 9), unit(rng, 3, 9)
    spectrum_ = spectrum(vectors, [3, 1, 1, 2])
    dev = pack([spectrum_], [reference_alignment(spectrum_, vectors, references)], 9)
    served = map_.fitted(spectrum_.eigenvalues, 9)
    u = eigenvectors(spectrum_, vectors)
    operator = served.null_value * (np.eye(9) - u.T @ u) + (u.T * served.eigenvalues) @ u
    assert risk(map_, dev) == pytest.approx(dense_risk(operator, references), abs=1e-9)
    values = np.linalg.eigvalsh(operator)
    assert mean_entropy(map_, dev) == pytest.approx(-(values @ np.log(values)), abs=1e-9)
    assert mean_entropy(map_, dev) == pytest.approx(served.entropy, abs=1e-9)
