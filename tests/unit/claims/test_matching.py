"""Claims compared with the sentences of samples."""

import numpy as np
import pytest
from numpy.typing import NDArray

from service.claims.kernel import compared_texts
from service.claims.matching import AGREES, SPEAKS, MatchedClaim, Matcher, Support
from service.spectral.spectrum import born_probability, serve, spectrum_from_gram

DIMENSION = 12
Vectors = dict[str, NDArray[np.float32]]


def alike(*texts: str, question: str = "") -> Vectors:
    """Return the same vector for all texts, so that only facts distinguish them."""
    return dict.fromkeys([*texts, *compared_texts(texts, question)], np.ones(2, np.float32))


def match(claim: str, *sentences: str, question: str = "") -> MatchedClaim:
    """Return a claim matched with answers of one sentence each, which have the same vector."""
    vectors = alike(claim, *sentences, question=question)
    [match_claim] = Matcher(
        [claim], [[sentence] for sentence in sentences], vectors, question=question
    ).matches()
    return match_claim


def raw(claim: MatchedClaim) -> tuple[float, float]:
    """Return lambda_max and p(y) of a claim, uncalibrated."""
    k = claim.num_outcomes
    spectrum = spectrum_from_gram(claim.kernel[:k, :k], np.bincount(claim.index), DIMENSION)
    served = serve(spectrum)
    return served.lambda_max, born_probability(spectrum, served, claim.kernel[k, :k]).probability


def test_small_example_by_hand() -> None:
    """Two claims and four answers: one has both claims, one the first, one neither, one something else."""
    vectors = dict(zip("abc", np.eye(4, dtype=np.float32), strict=False))
    first, second = Matcher("ab", ["ab", "a", "", "c"], vectors, question="").matches()
    assert first.index.tolist() == [0, 0, 1, 2]
    assert second.index.tolist() == [0, 1, 2, 3]
    assert first.cosines.tolist() == [1, 1, -np.inf, 0]
    assert (raw(first), raw(second)) == (pytest.approx((0.5, 0.5)), pytest.approx((0.25, 0.25)))
    assert (first.support, second.support) == (Support(2, 0, 2), Support(1, 0, 3))
    assert first.example is None


def test_sentences_are_matched_whole_and_compared_beyond_the_question() -> None:
    question = "what is the colour of the sky there"
    claim, nearest, other = "the colour of the sky is blue", "the colour of the sky is red", "it is blue"
    left = compared_texts([claim, nearest, other], question)
    rows = np.eye(4, dtype=np.float32)
    vectors = dict(zip([claim, nearest, other], [rows[0], rows[0] + 0.1 * rows[1], rows[1]], strict=True))
    vectors |= {left[0]: rows[2], left[1]: rows[3], left[2]: rows[2]}
    [match_claim] = Matcher([claim], [[other, nearest]], vectors, question=question).matches()
    assert match_claim.cosines[0] > 0.9
    assert raw(match_claim) == pytest.approx((1.0, 0.0))


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
    [match_claim] = Matcher("a", ["b"], vectors, question="").matches()
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
        ("Spain beat Italy.", "Spain, it was, beat Italy.", True),
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


def test_answers_without_sentences_are_silent() -> None:
    [match_claim] = Matcher("a", ["", ""], {"a": np.ones(3)}, question="").matches()
    assert match_claim.support == Support(0, 0, 2)
    assert raw(match_claim) == pytest.approx((0.5, 0.0))


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one drawn answer"):
        Matcher("a", [], {"a": np.ones(2)}, question="")
    with pytest.raises(ValueError, match="no direction"):
        Matcher("a", ["b"], {"a": np.zeros(2), "b": np.ones(2)}, question="")
