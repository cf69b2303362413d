"""Claims compared with the sentences of samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from service.claims.facts import beyond
from service.claims.kernel import kernel_vectors, read_texts
from service.claims.matching import AGREES, SPEAKS, MatchedClaim, Support, match_claims
from service.spectral.spectrum import Identity, born_probability, spectrum_from_gram
from tests.unit.spectral.worlds import seeds, unit

DIMENSION = 12
Vectors = dict[str, NDArray[np.float32]]


def alike(*texts: str, question: str = "") -> Vectors:
    """Return the same vector for all texts, so that only facts distinguish them."""
    return dict.fromkeys([*texts, *beyond(texts, question)], np.ones(2, np.float32))


def match(claim: str, *sentences: str, question: str = "") -> MatchedClaim:
    """Return a claim matched with answers of one sentence each, which have the same vector."""
    vectors = alike(claim, *sentences, question=question)
    [match_claim] = match_claims([claim], [[sentence] for sentence in sentences], vectors, question=question)
    return match_claim


def raw(claim: MatchedClaim) -> tuple[float, float]:
    """Return lambda_max and p(y) of a claim, uncalibrated."""
    counts = np.bincount(claim.index)
    spectrum = spectrum_from_gram(claim.outcomes @ claim.outcomes.T, counts, DIMENSION)
    served = Identity().serve(spectrum.eigenvalues, spectrum.dimension)
    return served.lambda_max, born_probability(spectrum, served, claim.outcomes @ claim.claim).probability


class Drawn:
    """Claims, and answers of up to three sentences. Texts have no facts; vectors are near each other."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        rows = unit(rng, int(rng.integers(2, 7)), DIMENSION)
        self.sentences = [f"sentence {'abcdefg'[i]}" for i in range(len(rows))]
        self.claims = ["claim a", "claim b"]
        near = rows[rng.integers(0, len(rows), 2)]
        near = near + 0.1 * rng.standard_normal(near.shape)
        self.vectors: Vectors = dict(zip([*self.sentences, *self.claims], [*rows, *near], strict=True))
        size = len(rows)
        self.answers = [
            [self.sentences[i] for i in rng.permutation(size)[: rng.integers(0, min(size, 3) + 1)]]
            for _ in range(5)
        ]

    def matches(self) -> list[MatchedClaim]:
        return [*match_claims(self.claims, self.answers, self.vectors, question="")]


def test_small_example_by_hand() -> None:
    """Two claims and four answers: one has both claims, one the first, one neither, one something else."""
    vectors = dict(zip("abc", np.eye(4, dtype=np.float32), strict=False))
    first, second = match_claims("ab", ["ab", "a", "", "c"], vectors, question="")
    assert first.index.tolist() == [0, 0, 1, 2]
    assert second.index.tolist() == [0, 1, 2, 3]
    assert first.cosines.tolist() == [1, 1, -np.inf, 0]
    assert (raw(first), raw(second)) == (pytest.approx((0.5, 0.5)), pytest.approx((0.25, 0.25)))
    assert (first.support, second.support) == (Support(2, 0, 2), Support(1, 0, 3))
    assert first.example is None


def test_sentences_are_matched_whole_and_compared_beyond_the_question() -> None:
    question = "what is the colour of the sky there"
    claim, nearest, other = "the colour of the sky is blue", "the colour of the sky is red", "it is blue"
    left = beyond([claim, nearest, other], question)
    rows = np.eye(4, dtype=np.float32)
    vectors = dict(zip([claim, nearest, other], [rows[0], rows[0] + 0.1 * rows[1], rows[1]], strict=True))
    vectors |= {left[0]: rows[2], left[1]: rows[3], left[2]: rows[2]}
    [match_claim] = match_claims([claim], [[other, nearest]], vectors, question=question)
    assert match_claim.cosines[0] > 0.9
    assert raw(match_claim) == pytest.approx((1.0, 0.0))


def test_sentence_on_the_same_question_is_preferred_to_a_nearer_one() -> None:
    question = "What is the capital of France? What is the capital of Italy?"
    claim, france, italy = "For France: Rome.", "For France: Paris.", "For Italy: Rome."
    rows = np.eye(2, dtype=np.float32)
    whole = dict(zip([claim, italy, france], [rows[0], rows[0], rows[0] + rows[1]], strict=True))
    vectors = alike(claim, france, italy, question=question) | whole
    answers = [[italy, france], [italy]]
    [match_claim] = match_claims([claim], answers, vectors, question=question)
    assert match_claim.cosines.tolist() == pytest.approx([0.5**0.5, 1.0])
    far = vectors | {france: rows[1]}  # on its own question, but not near
    [match_claim] = match_claims([claim], answers, far, question=question)
    assert match_claim.cosines.tolist() == pytest.approx([1.0, 1.0])


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
    vectors = {"a": np.array([1, 0]), "b": np.array([cosine, np.sqrt(1 - cosine**2)])}
    [match_claim] = match_claims("a", ["b"], vectors, question="")
    assert match_claim.support == expected


@pytest.mark.parametrize(
    ("claim", "sentence", "agrees"),
    [
        ("The tower was built in 1889.", "They built it in 1889.", True),
        ("The tower was built in 1889.", "They built it in 1887.", False),
        ("The tower was built in 1889.", "The tower was not built in 1889.", False),
        ("The tower was built in 1889.", "They built it.", False),
        ("They built it.", "They built it in 1889.", False),
        ("He died in Warsaw in 1934.", "He died in 1934.", True),
        ("He died in Warsaw in 1934.", "He died in Warsaw.", False),
        ("He died in Warsaw in 1934.", "He died in Paris in 1934.", False),
        ("He died in 1934.", "On 4 July he died, in 1934.", True),
        ("He died on 4 July in 1934.", "He died on 5 July in 1934.", False),
        ("It was Marie Curie in 1903.", "It was Curie in 1903.", True),
        ("It was Marie Curie.", "It was a person.", False),
        ("It was a person.", "It was Marie Curie.", False),
        ("It was Sydney.", "It was Sydney, with 5 million people.", True),
        ("It takes 30 days.", "It takes 30 months.", False),
        ("It takes 30 days.", "It takes 30.", True),
    ],
)
def test_a_sentence_with_another_number_name_or_negation_does_not_agree(
    claim: str, sentence: str, agrees: bool
) -> None:
    match_ = match(claim, sentence)
    assert match_.support == Support(int(agrees), int(not agrees), 0)
    assert match_.example == (None if agrees else sentence)


@pytest.mark.parametrize(
    ("question", "claim", "sentence", "agrees"),
    [
        ("Which is larger, 9.9 or 9.11?", "9.9 is larger.", "9.11 is larger.", False),
        ("Which is larger, 9.9 or 9.11?", "9.9 is larger than 9.11.", "9.9 is larger.", True),
        ("How many sides has a 20 pence coin?", "A 20 pence coin has 7.", "A 20 pence coin has 12.", False),
        ("How many sides has a 20 pence coin?", "A 20 pence coin has 7.", "It has 7.", True),
        ("How many sides has a 20 pence coin?", "A 20 pence coin has 7.", "A 20 pence coin.", False),
        ("Who was Sir Galahad's father?", "Sir Galahad's was Lancelot.", "Galahad's was Arthur.", False),
    ],
)
def test_content_of_the_question_is_not_agreement(
    question: str, claim: str, sentence: str, agrees: bool
) -> None:
    assert match(claim, sentence, question=question).support.agree == agrees


def test_different_fact_separates_parallel_sentences() -> None:
    same, other = (
        raw(match("It was in 1889.", "Then, in 1889.")),
        raw(match("It was in 1889.", "Or in 1887.")),
    )
    assert same == pytest.approx((1.0, 1.0))
    assert other[1] < 0.1


def test_claim_made_only_by_the_judged_answer_is_unsupported() -> None:
    rows = 0.2 * np.eye(DIMENSION)[0] + np.eye(DIMENSION)[1:6]
    vectors = dict(zip("abcdef", [*rows, np.eye(DIMENSION)[0]], strict=True))
    [match_claim] = match_claims("f", ["ab", "cd", "e"], vectors, question="")
    assert raw(match_claim) == pytest.approx((1 / 3, 0.0))
    assert match_claim.support == Support(0, 0, 3)


def test_nearest_relevant_reference_is_used() -> None:
    vectors = {"a": np.array([1.0, 0, 0]), "b": np.array([0.9, 0.4, 0]), "c": np.array([0, 0, 1.0])}

    def reference(*texts: str) -> float | None:
        [match_claim] = match_claims("a", ["a"], vectors, question="", references=texts)
        assert match_claim.claim[-1] == 0
        return None if match_claim.reference is None else float(match_claim.reference @ match_claim.claim)

    assert reference("c", "b") == pytest.approx(0.9 / np.hypot(0.9, 0.4))
    assert reference("c") is None
    assert reference() is None


def test_answers_without_sentences_are_silent() -> None:
    [match_claim] = match_claims("a", ["", ""], {"a": np.ones(3)}, question="")
    assert match_claim.support == Support(0, 0, 2)
    assert raw(match_claim) == pytest.approx((0.5, 0.0))


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one drawn answer"):
        next(match_claims("a", [], {"a": np.ones(2)}, question=""))
    with pytest.raises(ValueError, match="no direction"):
        next(match_claims("a", ["b"], {"a": np.zeros(2), "b": np.ones(2)}, question=""))


@settings(deadline=None)
@given(seeds)
def test_rotations_and_the_order_of_anything_change_nothing(seed: int) -> None:
    drawn = Drawn(seed)
    expected = drawn.matches()
    turn = np.linalg.qr(drawn.rng.standard_normal((DIMENSION, DIMENSION)))[0]
    drawn.vectors = {text: 3 * vector @ turn for text, vector in drawn.vectors.items()}
    drawn.answers = [drawn.answers[j] for j in drawn.rng.permutation(len(drawn.answers))]
    for again, before in zip(drawn.matches(), expected, strict=True):
        assert raw(again) == pytest.approx(raw(before), abs=1e-6)
        assert again.support == before.support


@settings(deadline=None)
@given(seeds)
def test_spectra_have_trace_one_and_bound_the_probability(seed: int) -> None:
    for match_ in Drawn(seed).matches():
        assert np.linalg.norm(match_.outcomes, axis=1) == pytest.approx(1.0)
        assert np.unique(match_.index).tolist() == [*range(len(match_.outcomes))]
        lambda_max, p = raw(match_)
        assert 1 / 5 - 1e-9 <= lambda_max <= 1 + 1e-9
        assert 0 <= p <= lambda_max + 1e-9
        support = match_.support
        assert support.agree + support.differ + support.silent == 5


@settings(deadline=None)
@given(seeds)
def test_silent_answer_lowers_lambda_max_and_probability(seed: int) -> None:
    drawn = Drawn(seed)
    before = drawn.matches()
    drawn.answers[int(drawn.rng.integers(5))] = []
    for match_, fuller in zip(drawn.matches(), before, strict=True):
        assert all(np.array(raw(match_)) <= np.array(raw(fuller)) + 1e-9)


@settings(deadline=None)
@given(seeds)
def test_claims_do_not_depend_on_one_another(seed: int) -> None:
    drawn = Drawn(seed)
    for claim, expected in zip(drawn.claims, drawn.matches(), strict=True):
        [alone] = match_claims([claim], drawn.answers, drawn.vectors, question="")
        assert raw(alone) == pytest.approx(raw(expected))


def test_one_sentence_per_answer_equals_short_answers() -> None:
    """Sentences are compared by the same kernel as short answers."""
    texts = ["In 1889.", "In 1889 and not Paris.", "Paris.", "Lyon, 3 kg."]
    vectors = alike(*texts)
    [match_claim] = match_claims(texts[:1], [[text] for text in texts], vectors, question="")
    answers = kernel_vectors(read_texts(texts, beyond(texts, ""), ""), np.ones((4, 2)))
    assert match_claim.outcomes @ match_claim.outcomes.T == pytest.approx(answers @ answers.T)
    assert match_claim.outcomes @ match_claim.claim == pytest.approx(answers @ answers[0])
