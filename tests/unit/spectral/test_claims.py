"""Claims of long answers: matched units, their spectra, and rows that go together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.spectral.born import born_probability
from service.spectral.claims import AGREES, SPEAKS, MatchedUnits, Support
from service.spectral.dev_set import dev_set, solve, weighted
from service.spectral.maps import DepolarizedMap, Identity
from service.spectral.spectrum import Spectrum
from tests.unit.spectral.worlds import answers as short_answers
from tests.unit.spectral.worlds import seeds, unit

DIMENSION = 12
copies = st.sampled_from([1, 2, 5, 16])


def raw(units: MatchedUnits) -> list[tuple[float, float]]:
    """lambda_max and p(y) of each claim, uncalibrated."""
    found = []
    for spectrum, cosines in units.spectra():
        served = Identity().serve(spectrum.eigenvalues, spectrum.dimension)
        found.append((served.lambda_max, born_probability(spectrum, served, cosines).probability))
    return found


class Drawn:
    """Claims, sentences in which a few directions repeat, and answers of none to three of them."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.sentences = unit(rng, int(rng.integers(2, 7)), DIMENSION)
        near = self.sentences[rng.integers(0, len(self.sentences), 2)]
        self.claims = near + 0.1 * rng.standard_normal(near.shape)
        size = len(self.sentences)
        self.answers = [rng.permutation(size)[: rng.integers(0, min(size, 3) + 1)] for _ in range(5)]

    def units(self) -> MatchedUnits:
        return MatchedUnits.of(self.claims, self.sentences, self.answers)


def test_by_hand() -> None:
    """Two claims and four answers: both, the first alone, nothing, and something else."""
    table = np.eye(4)[:3]
    units = MatchedUnits.of(table[:2], table, [[0, 1], [0], [], [2]])
    assert units.nearest.tolist() == [[0, 0, -1, 2], [1, 0, -1, 2]]
    assert units.cosines.tolist() == [[1, 1, -np.inf, 0], [1, 0, -np.inf, 0]]
    first, second = (spectrum for spectrum, _ in units.spectra())
    assert first.eigenvalues == pytest.approx([1 / 2, 1 / 4, 1 / 4])
    assert second.eigenvalues == pytest.approx([1 / 4] * 4)
    assert raw(units) == [pytest.approx((0.5, 0.5)), pytest.approx((0.25, 0.25))]
    assert units.support() == [Support(2, 0, 2), Support(1, 0, 3)]


@pytest.mark.parametrize("number", [1, 2, 16])
def test_two_sentences_of_one_cosine_split_by_its_power(number: int) -> None:
    table = np.array([[1.0, 0.0], [0.9, np.sqrt(1 - 0.81)]])
    units = MatchedUnits.of(table[:1], table, [[0], [1]])
    [rows] = units.overlaps(copies=number)
    values = solve([weighted(rows)], 2).eigenvalues[0]
    assert values == pytest.approx([(1 + 0.9**number) / 2, (1 - 0.9**number) / 2])


@pytest.mark.parametrize(
    ("cosine", "expected"),
    [
        (AGREES + 0.01, Support(1, 0, 0)),
        (AGREES - 0.01, Support(0, 1, 0)),
        (SPEAKS + 0.01, Support(0, 1, 0)),
        (SPEAKS - 0.01, Support(0, 0, 1)),
    ],
)
def test_an_answer_agrees_differs_or_is_silent_by_its_nearest_sentence(
    cosine: float, expected: Support
) -> None:
    sentence = [cosine, np.sqrt(1 - cosine**2)]
    assert MatchedUnits.of([[1.0, 0.0]], [sentence], [[0]]).support() == [expected]


def test_a_claim_that_only_the_judged_answer_makes_is_unsupported() -> None:
    rng = np.random.default_rng(0)
    spoken = 0.2 * np.eye(DIMENSION)[0] + np.eye(DIMENSION)[1:6] + 0.01 * rng.standard_normal((5, DIMENSION))
    units = MatchedUnits.of(np.eye(DIMENSION)[:1], spoken, [[0, 1], [2, 3], [4]])
    [(spectrum, cosines)] = units.spectra()
    served = DepolarizedMap(1.0, 0.3).serve(spectrum.eigenvalues, spectrum.dimension)
    found = born_probability(spectrum, served, cosines)
    assert found.mode is None
    assert found.probability == pytest.approx(0.3 / DIMENSION)  # the noise alone
    assert units.support() == [Support(0, 0, 3)]


def test_a_fact_that_differs_parts_sentences_that_lie_together() -> None:
    """Three sentences in one direction: the claim's year, another, and a year with a name besides."""
    together = np.tile(np.eye(3)[:1], (3, 1))
    known = [{"1867": 4.0}, {"1876": 4.0}, {"1867": 4.0, "warsaw": 1.0}]
    units = MatchedUnits.of(together[:1], together, [[0], [1], [2]], (known[:1], known))
    apart = 0.3 / 4.3
    nearly = 4.3 / np.sqrt(4.3 * 5.3)
    [(spectrum, cosines)] = units.spectra()
    assert cosines == pytest.approx([1.0, apart, nearly])
    assert spectrum.eigenvalues.sum() == pytest.approx(1.0)
    assert raw(units)[0][1] == pytest.approx((1 + apart**2 + nearly**2) / 3)
    assert units.support() == [Support(2, 1, 0)]


@settings(deadline=None)
@given(seeds)
def test_facts_make_no_matrix_that_is_none(seed: int) -> None:
    """Gram matrices stay positive semidefinite, whatever the facts."""
    drawn = Drawn(seed)
    words = [
        {str(fact): 4.0 if fact < 3 else 1.0 for fact in np.flatnonzero(row)}
        for row in drawn.rng.integers(0, 2, (len(drawn.sentences), 6))
    ]
    units = MatchedUnits.of(drawn.claims, drawn.sentences, drawn.answers, (words[:2], words))
    for rows in units.overlaps(bound=-1.0):
        assert np.linalg.eigvalsh(rows.cosines).min() > -1e-12
        assert np.diag(rows.cosines) == pytest.approx(1.0)
        assert (np.abs(rows.targets) <= 1 + 1e-12).all()
    assert [sum((one.agree, one.differ, one.silent)) for one in units.support()] == [5, 5]


def test_answers_without_any_sentence_are_all_silent() -> None:
    units = MatchedUnits.of(np.eye(3)[:1], np.empty((0, 3)), [[], []])
    assert units.support() == [Support(0, 0, 2)]
    assert raw(units) == [pytest.approx((0.5, 0.0))]


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        MatchedUnits.of(np.eye(2), np.eye(2), [])
    with pytest.raises(ValueError, match="no direction"):
        MatchedUnits.of(np.zeros((1, 2)), np.eye(2), [[0]])


@settings(deadline=None)
@given(seeds)
def test_rotations_and_the_order_of_anything_change_nothing(seed: int) -> None:
    drawn = Drawn(seed)
    expected, support = raw(drawn.units()), drawn.units().support()
    turn = np.linalg.qr(drawn.rng.standard_normal((DIMENSION, DIMENSION)))[0]
    order = drawn.rng.permutation(len(drawn.sentences))
    place = np.argsort(order)
    moved = [place[drawn.rng.permutation(one)] for one in drawn.answers]
    mixed = [moved[j] for j in drawn.rng.permutation(len(moved))]
    again = MatchedUnits.of(drawn.claims @ turn, 3 * drawn.sentences[order] @ turn, mixed)
    assert np.array(raw(again)) == pytest.approx(np.array(expected), abs=1e-9)
    assert again.support() == support


@settings(deadline=None)
@given(seeds)
def test_spectra_have_trace_one_and_bound_what_they_say_of_the_claim(seed: int) -> None:
    units = Drawn(seed).units()
    for (spectrum, _), (lambda_max, p), support in zip(
        units.spectra(), raw(units), units.support(), strict=True
    ):
        assert spectrum.eigenvalues.sum() == pytest.approx(1.0)
        assert 1 / 5 - 1e-12 <= lambda_max <= 1 + 1e-12
        assert 0 <= p <= lambda_max
        assert support.agree + support.differ + support.silent == 5


@settings(deadline=None)
@given(seeds)
def test_an_answer_that_falls_silent_lowers_lambda_max_and_the_probability(seed: int) -> None:
    drawn = Drawn(seed)
    before = raw(drawn.units())
    drawn.answers[int(drawn.rng.integers(5))] = np.array([], dtype=int)
    for (top, p), (lower_top, lower_p) in zip(before, raw(drawn.units()), strict=True):
        assert lower_top <= top + 1e-12
        assert lower_p <= p + 1e-12


@settings(deadline=None)
@given(seeds, st.sampled_from([1, 2, 3]))
def test_copies_are_the_tensor_power_of_each_sentence(seed: int, number: int) -> None:
    drawn = Drawn(seed)
    sentences, claim = drawn.sentences[:, :4], drawn.claims[:1, :4]
    units = MatchedUnits.of(
        claim, sentences, [[int(one)] for one in drawn.rng.integers(0, len(sentences), 4)]
    )

    def power(vector: np.ndarray) -> np.ndarray:
        found = np.ones(1)
        for _ in range(number):
            found = np.kron(found, vector / np.linalg.norm(vector))
        return found

    spoken = [power(units.sentences[i]) for i in units.nearest[0]]
    matrix = sum(np.outer(one, one) for one in spoken) / len(spoken)
    [rows] = units.overlaps(bound=-1.0, copies=number)
    problem = weighted(rows)
    dev = solve([problem], 4)
    assert dev.eigenvalues[0] == pytest.approx(np.linalg.eigvalsh(matrix)[::-1][: dev.rank[0]], abs=1e-9)
    y = power(claim[0])
    assert float(dev.alignment[0] @ dev.eigenvalues[0]) == pytest.approx(y @ matrix @ y, abs=1e-9)


@settings(deadline=None)
@given(seeds)
def test_one_sentence_an_answer_and_one_copy_is_a_short_answer(seed: int) -> None:
    one = short_answers(np.random.default_rng(seed), 6, references=2)
    units = MatchedUnits.of(one.vectors[:1], one.vectors, one.index[:, None])
    rows = units.overlaps([(one.references, [{}] * len(one.references))], bound=-1.0, copies=1)
    ours, plain = solve([weighted(rows[0])], 16), dev_set([one], 16)
    assert ours.eigenvalues == pytest.approx(plain.eigenvalues, abs=1e-12)
    assert ours.alignment == pytest.approx(plain.alignment, abs=1e-9)
    assert ours.outside == pytest.approx(plain.outside, abs=1e-9)


@settings(deadline=None)
@given(seeds, copies)
def test_some_of_the_answers_say_what_they_would_alone(seed: int, number: int) -> None:
    drawn = Drawn(seed)
    few = np.sort(drawn.rng.permutation(5)[:3])
    alone = MatchedUnits.of(drawn.claims, drawn.sentences, [drawn.answers[j] for j in few])
    whole = solve([weighted(one, few) for one in drawn.units().overlaps(copies=number)], DIMENSION)
    part = solve([weighted(one) for one in alone.overlaps(copies=number)], DIMENSION)
    assert part.eigenvalues == pytest.approx(whole.eigenvalues, abs=1e-12)
    assert part.outside == pytest.approx(whole.outside, abs=1e-9)


def test_null_directions_are_those_of_one_copy() -> None:
    spectra: list[Spectrum] = [spectrum for spectrum, _ in Drawn(0).units().spectra()]
    assert {spectrum.dimension for spectrum in spectra} == {DIMENSION}
