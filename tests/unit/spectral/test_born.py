import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.vectors import eigenvectors, spectrum
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import CalibrationMap, DepolarizedMap, TemperatureMap, born_probability
from tests.unit.spectral.worlds import seeds, unit

MAPS: list[CalibrationMap] = [
    TemperatureMap(1.0),
    TemperatureMap(2.5),
    TemperatureMap(0.05),
    DepolarizedMap(0.9, 0.5),
    EvidenceMap(0.7, -0.3, 0.4).at(1.0),
]
maps = st.sampled_from(MAPS)


def test_inside_and_outside_of_the_span_by_hand() -> None:
    """Answers e1, e1, e1, e2 in four dimensions, g = 0.4: served 0.55, 0.25 and 0.1 twice."""
    vectors = np.eye(4)[:2]
    spectrum_ = spectrum(vectors, [3, 1])
    served = DepolarizedMap(1.0, 0.4).serve(spectrum_.eigenvalues, 4)
    assert [*served.eigenvalues, served.null_value] == pytest.approx([0.55, 0.25, 0.1])
    for text, probability, mode, outside in (
        ([1, 0, 0, 0], 0.55, 0, 0.0),
        ([0, -2, 0, 0], 0.25, 1, 0.0),
        ([0, 0, 1, 0], 0.10, None, 1.0),
        ([1, 1, 0, 0], 0.40, 0, 0.0),  # half of each
        ([0.6, 0, 0.8, 0], 0.36 * 0.55 + 0.64 * 0.1, None, 0.64),
        ([0.8, 0, 0, 0.6], 0.64 * 0.55 + 0.36 * 0.1, 0, 0.36),
    ):
        born = born_probability(spectrum_, served, vectors @ text / np.linalg.norm(text))
        assert born.probability == pytest.approx(probability, abs=1e-12)
        assert born.outside == pytest.approx(outside, abs=1e-12)
        assert born.mode == mode


@settings(deadline=None)
@given(seeds, maps)
def test_probability_is_the_quadratic_form_of_the_served_matrix(seed: int, map_: CalibrationMap) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng, 5, 12)
    spectrum_ = spectrum(vectors, rng.integers(1, 5, 5))
    served = map_.serve(spectrum_.eigenvalues, 12)
    u = eigenvectors(spectrum_, vectors)
    matrix = u.T @ np.diag(served.eigenvalues) @ u + served.null_value * (np.eye(12) - u.T @ u)
    y = unit(rng, 1, 12)[0]
    got = born_probability(spectrum_, served, vectors @ y)
    assert got.probability == pytest.approx(y @ matrix @ y, abs=1e-10)
    assert 0 <= got.probability <= served.lambda_max
    assert got.inside.sum() + got.outside == pytest.approx(1.0, abs=1e-12)


def test_unusable_texts_are_refused() -> None:
    spectrum_ = spectrum(np.eye(3)[:2])
    served = TemperatureMap(1.0).serve(spectrum_.eigenvalues, 3)
    for cosines in ([0.5], [0.5, np.nan], [[0.5, 0.5]]):
        with pytest.raises(ValueError, match="cosine"):
            born_probability(spectrum_, served, cosines)
