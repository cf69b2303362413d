import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.dev_set import Answers, born_probabilities, dev_set, supported
from service.spectral.evidence import EvidenceMap
from service.spectral.spectrum import (
    CalibrationMap,
    DepolarizedMap,
    Identity,
    TemperatureMap,
    born_probability,
    born_probability_of,
    spectrum,
)
from tests.unit.spectral.worlds import answers, seeds, unit

MAPS: list[CalibrationMap] = [
    Identity(),
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
        born = born_probability_of(spectrum_, served, vectors, np.array(text, dtype=float))
        assert born.probability == pytest.approx(probability, abs=1e-12)
        assert born.outside == pytest.approx(outside, abs=1e-12)
        assert born.mode == mode


def test_unsupported_text_has_zero_probability_in_a_raw_spectrum() -> None:
    vectors = np.eye(3)[:2]
    spectrum_ = spectrum(vectors, [1, 1])
    served = Identity().serve(spectrum_.eigenvalues, 3)
    assert born_probability_of(spectrum_, served, vectors, [0.0, 0.0, 1.0]).probability == 0.0


@settings(deadline=None)
@given(seeds, maps)
def test_probability_is_the_quadratic_form_of_the_served_matrix(seed: int, map_: CalibrationMap) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng, 5, 12)
    spectrum_ = spectrum(vectors, rng.integers(1, 5, 5))
    served = map_.serve(spectrum_.eigenvalues, 12)
    u = spectrum_.eigenvectors(vectors)
    matrix = u.T @ np.diag(served.eigenvalues) @ u + served.null_value * (np.eye(12) - u.T @ u)
    y = unit(rng, 1, 12)[0]
    got = born_probability_of(spectrum_, served, vectors, y)
    assert got.probability == pytest.approx(y @ matrix @ y, abs=1e-10)
    assert 0 <= got.probability <= served.lambda_max
    assert got.inside.sum() + got.outside == pytest.approx(1.0, abs=1e-12)


@settings(deadline=None)
@given(seeds, maps)
def test_probabilities_sum_to_one_over_an_orthonormal_basis(seed: int, map_: CalibrationMap) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng, int(rng.integers(1, 6)), 12)
    spectrum_ = spectrum(vectors)
    served = map_.serve(spectrum_.eigenvalues, 12)
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    total = sum(born_probability_of(spectrum_, served, vectors, y).probability for y in basis)
    assert total == pytest.approx(1.0, abs=1e-9)


@settings(deadline=None)
@given(seeds, maps)
def test_eigenvector_has_its_eigenvalue_and_none_exceeds_the_largest(seed: int, map_: CalibrationMap) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng, 4, 12)
    spectrum_ = spectrum(vectors, [4, 3, 2, 1])
    served = map_.serve(spectrum_.eigenvalues, 12)
    for i, u in enumerate(spectrum_.eigenvectors(vectors)):
        born = born_probability_of(spectrum_, served, vectors, u)
        assert born.probability == pytest.approx(served.eigenvalues[i], abs=1e-9)
        assert born.mode == i
    for y in [*vectors, *unit(rng, 20, 12)]:
        assert 0 <= born_probability_of(spectrum_, served, vectors, y).probability <= served.lambda_max


@settings(deadline=None)
@given(seeds, maps)
def test_batch_equals_single_prompts(seed: int, map_: CalibrationMap) -> None:
    rng = np.random.default_rng(seed)
    made = [answers(rng, 6) for _ in range(5)]
    whole = born_probabilities(map_, dev_set(made, 16))
    for answers_, value in zip(made, whole, strict=True):
        spectrum_ = spectrum(answers_.vectors, np.bincount(answers_.index))
        served = map_.serve(spectrum_.eigenvalues, 16)
        alone = born_probability_of(spectrum_, served, answers_.vectors, answers_.references[0])
        assert value == pytest.approx(alone.probability, abs=1e-9)
    mean = [
        Answers(item.vectors, item.index, np.stack([item.references[0], item.vectors[0]])) for item in made
    ]
    alone = [Answers(item.vectors, item.index, item.vectors[:1]) for item in made]
    expected = (whole + born_probabilities(map_, dev_set(alone, 16))) / 2
    assert born_probabilities(map_, dev_set(mean, 16)) == pytest.approx(expected, abs=1e-9)


def test_probability_never_exceeds_lambda_max() -> None:
    """Equal eigenvalues: each text in the span has exactly their value, up to rounding."""
    rng = np.random.default_rng(0)
    for size in (3, 5, 6, 7):
        vectors = np.eye(size)
        spectrum_ = spectrum(vectors)
        served = Identity().serve(spectrum_.eigenvalues, size)
        for y in unit(rng, 50, size):
            probability = born_probability_of(spectrum_, served, vectors, y).probability
            assert served.lambda_max - 1e-12 < probability <= served.lambda_max


def test_unusable_texts_are_refused() -> None:
    vectors = np.eye(3)[:2]
    spectrum_ = spectrum(vectors)
    served = Identity().serve(spectrum_.eigenvalues, 3)
    for cosines in ([0.5], [0.5, np.nan], [[0.5, 0.5]]):
        with pytest.raises(ValueError, match="cosine"):
            born_probability(spectrum_, served, cosines)
    with pytest.raises(ValueError, match="zero row"):
        born_probability_of(spectrum_, served, vectors, np.zeros(3))


@settings(deadline=None)
@given(st.lists(seeds, min_size=1, max_size=5), maps)
def test_support_in_a_batch_equals_single_prompts(of: list[int], map_: CalibrationMap) -> None:
    """Texts between an answer and the orthogonal complement, also exactly half and half."""
    stack, alone = [], []
    for seed in of:
        rng = np.random.default_rng(seed)
        vectors, [away] = unit(rng, 4, 12), unit(rng, 1, 12)
        share = rng.choice([0.0, 0.5, 1.0, rng.random()])
        text = share * vectors[0] + (1 - share) * away
        index = rng.integers(0, 4, 6)
        present, places = np.unique(index, return_inverse=True)
        stack.append(Answers(vectors[present], places, text[None]))
        spectrum_ = spectrum(vectors[present], np.bincount(places))
        served = map_.serve(spectrum_.eigenvalues, 12)
        alone.append(born_probability_of(spectrum_, served, vectors[present], text).mode is not None)
    assert supported(dev_set(stack, 12)).tolist() == alone


def test_text_half_inside_the_span_is_supported() -> None:
    """By hand and with another order of the answers: rounding does not decide."""
    for vectors in (np.eye(4)[:2], np.eye(4)[:2][::-1]):
        half = Answers(vectors, np.array([0, 0, 1]), np.array([[1.0, 0.0, 1.0, 0.0]]))
        assert supported(dev_set([half], 4)).tolist() == [True]
        spectrum_ = spectrum(vectors, [2, 1])
        served = Identity().serve(spectrum_.eigenvalues, 4)
        assert born_probability_of(spectrum_, served, vectors, [1.0, 0.0, 1.0, 0.0]).mode is not None
