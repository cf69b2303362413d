"""Claims of long answers: matched units, their spectra, and rows that go together."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import ArrayLike

from service.spectral.claims import AGREES, SPEAKS, MatchedUnits, SentenceVectors, Support
from service.spectral.dev_set import dev_set, solve, weighted
from service.spectral.spectrum import DepolarizedMap, Identity, Spectrum, born_probability
from tests.unit.spectral.worlds import answers as short_answers
from tests.unit.spectral.worlds import seeds, unit

DIMENSION = 12


def matched(claims: ArrayLike, sentences: ArrayLike, answers: Sequence[ArrayLike]) -> MatchedUnits:
    return MatchedUnits.of(SentenceVectors.of(claims), SentenceVectors.of(sentences), answers)


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
        return matched(self.claims, self.sentences, self.answers)


def test_by_hand() -> None:
    """Two claims and four answers: both, the first alone, nothing, and something else."""
    table = np.eye(4)[:3]
    units = matched(table[:2], table, [[0, 1], [0], [], [2]])
    assert units.nearest.tolist() == [[0, 0, -1, 2], [1, 0, -1, 2]]
    assert units.cosines.tolist() == [[1, 1, -np.inf, 0], [1, 0, -np.inf, 0]]
    first, second = (spectrum for spectrum, _ in units.spectra())
    assert first.eigenvalues == pytest.approx([1 / 2, 1 / 4, 1 / 4])
    assert second.eigenvalues == pytest.approx([1 / 4] * 4)
    assert raw(units) == [pytest.approx((0.5, 0.5)), pytest.approx((0.25, 0.25))]
    assert units.support() == [Support(2, 0, 2), Support(1, 0, 3)]


def test_sentences_are_matched_whole_and_compared_by_what_they_say_beyond_the_question() -> None:
    """Of two answers with two sentences each, the ones nearest to the claim hold other values."""
    whole = np.eye(4)[[0, 0, 1, 1]]
    left = np.eye(4)[[2, 3, 2, 3]]
    table = SentenceVectors.of(whole, left)
    units = MatchedUnits.of(table.take([0]), table, [[2, 0], [3, 1]])
    assert units.nearest.tolist() == [[0, 1]]
    [rows] = units.overlaps()
    assert rows.cosines == pytest.approx(np.eye(2))
    assert rows.targets == pytest.approx(np.array([[1.0, 0.0]]))
    assert raw(units) == [pytest.approx((0.5, 0.5))]


@pytest.mark.parametrize(
    ("asked", "agree"),
    [
        ([{"9.9"}, {"9.11"}], False),  # two of the question's alternatives
        ([{"9.9"}, set()], True),  # "it", or the one
        ([{"9.9", "9.11"}, {"9.11"}], True),  # which of the two it is, all else tells
    ],
)
def test_what_the_question_names_counts_where_sentences_name_different_things_of_it(
    asked: list[set[str]], agree: bool
) -> None:
    facts = [dict.fromkeys(one, 4.0) for one in asked]
    beyond = np.eye(2)[[0, 0]]
    whole = np.array([[1.0, 0.0], [0.95, np.sqrt(1 - 0.95**2)]])
    said = SentenceVectors.of(whole, beyond, facts, [frozenset(one) for one in asked])
    units = MatchedUnits.of(said.take([0]), said.take([1]), [[0]])
    assert units.support() == [Support(int(agree), int(not agree), 0)]
    assert raw(units)[0][1] == pytest.approx(1.0 if agree else (0.95 * 0.3 / 4.3) ** 2)


def test_a_sentence_on_the_claims_own_question_goes_before_a_nearer_one() -> None:
    """'France: Rome', of answers that tell "France: Paris" and "Italy: Rome", or but one of them."""
    names = ("rome", "paris", "rome")
    whole, facts = np.eye(3)[[0, 1, 2]] + 1, [{name: 1.0} for name in names]
    whole[2] += 0.2 * whole[0]
    questions = [frozenset({0}), frozenset({0, 1}), frozenset({1})]
    said = SentenceVectors.of(whole, np.eye(2)[[0, 1, 0]], facts, questions=questions)
    units = MatchedUnits.of(said.take([0]), said.take([1, 2]), [[0, 1], [1], [0]])
    assert units.nearest.tolist() == [[0, 1, 0]]
    assert units.support() == [Support(1, 2, 0)]
    far = SentenceVectors.of(np.eye(3)[[0, 1, 0]], questions=questions)  # on its own question, but not near
    assert MatchedUnits.of(far.take([0]), far.take([1, 2]), [[0, 1]]).nearest.tolist() == [[1]]


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
    assert matched([[1.0, 0.0]], [sentence], [[0]]).support() == [expected]


def test_a_claim_that_only_the_judged_answer_makes_is_unsupported() -> None:
    rng = np.random.default_rng(0)
    spoken = 0.2 * np.eye(DIMENSION)[0] + np.eye(DIMENSION)[1:6] + 0.01 * rng.standard_normal((5, DIMENSION))
    units = matched(np.eye(DIMENSION)[:1], spoken, [[0, 1], [2, 3], [4]])
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
    said = SentenceVectors.of(together, facts=known)
    units = MatchedUnits.of(said.take([0]), said, [[0], [1], [2]])
    apart = 0.3 / 4.3
    nearly = 4.3 / np.sqrt(4.3 * 5.3)
    [(spectrum, cosines)] = units.spectra()
    assert cosines == pytest.approx([1.0, apart, nearly])
    assert spectrum.eigenvalues.sum() == pytest.approx(1.0)
    assert raw(units)[0][1] == pytest.approx((1 + apart**2 + nearly**2) / 3)
    assert units.support() == [Support(2, 1, 0)]


def test_names_alone_are_told_apart_by_their_embedding() -> None:
    """As long as no answer says more, however long a reference is. A number counts all the same."""
    cosine = 0.6
    rows = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    known = [{"paris": 1.0, "1789": 4.0}, {"lyon": 1.0, "1789": 4.0}]
    names = [frozenset({"paris"}), frozenset({"lyon"})]
    alone = SentenceVectors.of(rows, facts=known, names=names, brief=[True, True])
    units = MatchedUnits.of(alone.take([0]), alone, [[0], [1]])
    for brief in (True, False):
        reference = SentenceVectors.of(rows[:1], facts=known[:1], names=names[:1], brief=[brief])
        [made] = units.overlaps([reference])
        assert made.cosines[0, 1] == pytest.approx(cosine)
        assert made.targets == pytest.approx(np.array([[1.0, cosine]]))
    more = SentenceVectors.of(rows, facts=known, names=names, brief=[True, False])
    [made] = MatchedUnits.of(more.take([0]), more, [[0], [1]]).overlaps()
    assert made.cosines[0, 1] == pytest.approx(cosine * 4.3 / 5.3)


def test_names_count_where_whole_sentences_are_compared() -> None:
    """What is alike in them, the question's own words, would cover what differs."""
    rows = np.array([[1.0, 0.0], [0.9, np.sqrt(1 - 0.9**2)]])
    known = [{"madrid": 1.0}, {"rome": 1.0}]
    names = [frozenset(one) for one in known]
    asked = [frozenset({"spain"}), frozenset({"italy"})]
    said = SentenceVectors.of(rows, facts=known, asked=asked, names=names, brief=[True, True])
    [made] = MatchedUnits.of(said.take([0]), said, [[0], [1]]).overlaps()
    assert made.cosines[0, 1] == pytest.approx(0.9 * 0.3 / 1.3)


def test_a_reference_that_names_another_thing_of_the_question_lies_apart() -> None:
    whole, beyond = np.array([[1.0, 0.0], [0.6, 0.8]]), np.eye(2)[[0, 0]]
    asked = [frozenset({"spain"}), frozenset({"italy"})]
    said = SentenceVectors.of(whole, beyond, asked=asked)
    [made] = MatchedUnits.of(said.take([0]), said.take([0]), [[0]]).overlaps([said.take([1])])
    assert made.targets == pytest.approx(np.array([[0.6]]))


@pytest.mark.parametrize(
    ("claim", "sentence", "agrees"),
    [
        ({"sydney": 1.0}, {"sydney": 1.0, "5000000": 4.0}, True),  # it says more
        ({"1867": 4.0}, {"7": 4.0, "1867": 4.0, "november": 1.0}, True),
        ({"1921": 4.0, "nobel": 1.0, "prize": 1.0}, {"1911": 4.0, "nobel": 1.0, "prize": 1.0}, False),
        ({"1921": 4.0, "boston": 1.0}, {"boston": 1.0}, False),  # a fifth of the claim
        ({"paris": 1.0}, {}, False),
        ({}, {"paris": 1.0}, False),
        ({}, {}, True),
    ],
)
def test_a_sentence_agrees_that_shares_half_of_the_fewer_facts(
    claim: dict[str, float], sentence: dict[str, float], agrees: bool
) -> None:
    said = SentenceVectors.of(np.eye(2)[[0, 0]], facts=[claim, sentence])
    units = MatchedUnits.of(said.take([0]), said.take([1]), [[0]])
    assert units.support() == [Support(int(agrees), int(not agrees), 0)]


@settings(deadline=None)
@given(seeds)
def test_facts_make_no_matrix_that_is_none(seed: int) -> None:
    """Gram matrices stay positive semidefinite, whatever the facts."""
    drawn = Drawn(seed)
    words = [
        {str(fact): 4.0 if fact < 3 else 1.0 for fact in np.flatnonzero(row)}
        for row in drawn.rng.integers(0, 2, (len(drawn.sentences), 6))
    ]
    said = [SentenceVectors.of(rows, facts=words[: len(rows)]) for rows in (drawn.claims, drawn.sentences)]
    units = MatchedUnits.of(*said, drawn.answers)
    for rows in units.overlaps(bound=-1.0):
        assert np.linalg.eigvalsh(rows.cosines).min() > -1e-12
        assert np.diag(rows.cosines) == pytest.approx(1.0)
        assert (np.abs(rows.targets) <= 1 + 1e-12).all()
    assert [sum((one.agree, one.differ, one.silent)) for one in units.support()] == [5, 5]


def test_answers_without_any_sentence_are_all_silent() -> None:
    every = SentenceVectors.of(np.eye(3)[:1])
    units = MatchedUnits.of(every, every.take([]), [[], []])
    assert units.support() == [Support(0, 0, 2)]
    assert raw(units) == [pytest.approx((0.5, 0.0))]


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        matched(np.eye(2), np.eye(2), [])
    with pytest.raises(ValueError, match="no direction"):
        matched(np.zeros((1, 2)), np.eye(2), [[0]])


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
    again = matched(drawn.claims @ turn, 3 * drawn.sentences[order] @ turn, mixed)
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
@given(seeds)
def test_one_sentence_an_answer_without_facts_is_a_short_answer(seed: int) -> None:
    one = short_answers(np.random.default_rng(seed), 6, references=2)
    units = matched(one.vectors[:1], one.vectors, one.index[:, None])
    rows = units.overlaps([SentenceVectors.of(one.references)], bound=-1.0)
    ours, plain = solve([weighted(rows[0])], 16), dev_set([one], 16)
    assert ours.eigenvalues == pytest.approx(plain.eigenvalues, abs=1e-12)
    assert ours.alignment == pytest.approx(plain.alignment, abs=1e-9)
    assert ours.outside == pytest.approx(plain.outside, abs=1e-9)


@settings(deadline=None)
@given(seeds)
def test_some_of_the_answers_say_what_they_would_alone(seed: int) -> None:
    drawn = Drawn(seed)
    few = np.sort(drawn.rng.permutation(5)[:3])
    alone = matched(drawn.claims, drawn.sentences, [drawn.answers[j] for j in few])
    whole = solve([weighted(one, few) for one in drawn.units().overlaps()], DIMENSION)
    part = solve([weighted(one) for one in alone.overlaps()], DIMENSION)
    assert part.eigenvalues == pytest.approx(whole.eigenvalues, abs=1e-12)
    assert part.outside == pytest.approx(whole.outside, abs=1e-9)


def test_null_directions_are_those_of_embeddings() -> None:
    spectra: list[Spectrum] = [spectrum for spectrum, _ in Drawn(0).units().spectra()]
    assert {spectrum.dimension for spectrum in spectra} == {DIMENSION}
