"""The numbers and names of sentences."""

import numpy as np
import pytest

from service.claims.facts import MAX_ASKED, NAME_COUNTS, NUMBER_COUNTS, beyond, facts, sentence_vectors
from service.spectral.claims import MatchedUnits, Support

WINNER = "Who won the final, Germany or Brazil?"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("She was born in Warsaw in 1867.", {"warsaw", "1867"}),
        ("About 83,000,000 people, or 83.5 in millions.", {"83000000", "83.5"}),
        ("Its capital is Brasília, not São Paulo.", {"brasilia", "sao", "paulo"}),
        ("Brasília ist die Hauptstadt.", {"hauptstadt"}),
        ("She died in 1914\u20131918 at Jean-Paul's.", {"1914", "1918", "jean", "paul"}),
        ("居里夫人生于1867年。", {"1867"}),
        ("its symbol is Au and no number is known", {"au"}),
        ("nothing of the kind", set()),
        ("At -5 or \u22125 degrees, not 5.", {"-5", "5"}),
        ("1 234 567, 1\u202f234,5 and 2020 300", {"1234567", "1234.5", "2020", "300"}),
        ("5 million of 5 billion, or 5,000,000.", {"5000000", "5000000000"}),
        ("83,5 Millionen", {"83500000", "millionen"}),
        ("10.50 on 12.05.1867", {"10.5", "12.05.1867"}),
    ],
)
def test_numbers_and_words_with_a_capital_within_a_sentence(sentence: str, expected: set[str]) -> None:
    assert facts([sentence])[0].keys() == expected


def test_a_name_at_the_beginning_is_one_where_it_is_one_within_another_sentence() -> None:
    found = facts(["Paris is the capital.", "The capital is Paris.", "The city lies at the Seine."])
    assert [set(one) for one in found] == [{"paris"}, {"paris"}, {"seine"}]


def test_a_name_at_the_beginning_is_one_where_it_is_one_within_the_question() -> None:
    [found] = facts(["Brazil won."], question="Who won, Germany or Brazil?")
    assert found == {"brazil": NAME_COUNTS}


def test_a_name_at_the_beginning_is_one_where_the_rest_is_the_question() -> None:
    told = ["Lyon is the capital of France.", "The capital of France is not known.", "Rivers flow."]
    found = facts(told, question="What is the capital of France?")
    assert [set(one) for one in found] == [{"lyon", "france"}, {"france"}, set()]


def test_numbers_count_more_than_names() -> None:
    [found] = facts(["It has 2 moons, Phobos and Deimos."])
    assert found == {"2": NUMBER_COUNTS, "phobos": NAME_COUNTS, "deimos": NAME_COUNTS}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Marie Curie was born in Warsaw.", "in Warsaw."),
        (
            "Marie was a physicist of 1,234 kinds, in France.",
            "Marie was a physicist of 1,234 kinds, in France.",
        ),
        ("When was Marie Curie born?", "When was Marie Curie born?"),
        ("MARIE CURIE: 1867.", "1867."),
        ("...", "..."),
    ],
)
def test_what_a_sentence_says_beyond_the_question_it_restates(sentence: str, expected: str) -> None:
    assert beyond([sentence], "When was Marie Curie born?") == [expected]


def test_a_long_prompt_is_material_not_a_question() -> None:
    sentence, material = "The treaty was signed in 1648.", "The treaty was signed by all, not in 1684. "
    assert beyond([sentence], material) == ["1648."]
    assert beyond([sentence], material * MAX_ASKED) == [sentence]


def test_what_sentences_hold_of_the_question() -> None:
    texts = ["Germany won the match.", "A country won it."]
    vectors = dict.fromkeys([*texts, *beyond(texts, WINNER)], np.ones(2, dtype=np.float32))
    read = sentence_vectors(texts, vectors, question=WINNER)
    assert [set(one) for one in read.asked] == [{"germany", "won", "the"}, {"won"}]


def test_of_several_questions_a_sentence_is_read_by_its_own() -> None:
    question = "Who won the final? Where was the party?"
    texts = ["Brazil won the final.", "The party was there.", "Brazil."]
    vectors = dict.fromkeys([*texts, *beyond(texts, question)], np.ones(2, dtype=np.float32))
    read = sentence_vectors(texts, vectors, question=question)
    assert [set(one) for one in read.asked] == [{"won", "the", "final"}, {"the", "party", "was"}, set()]
    assert read.questions == [{0, 1}, {0, 1}, {0, 1}]  # no name or number tells


def test_names_and_numbers_tell_which_question_a_sentence_may_answer() -> None:
    question = "Where was Ada Lovelace born? When was she born, and was it before 1820?"
    texts = ["Ada Lovelace was born in London.", "She was born in London.", "Before 1820, yes."]
    vectors = dict.fromkeys([*texts, *beyond(texts, question)], np.ones(2, dtype=np.float32))
    assert sentence_vectors(texts, vectors, question=question).questions == [{0}, {0, 1}, {1}]


@pytest.mark.parametrize(
    ("sentence", "names", "brief"),
    [
        ("The capital of France is Paris.", {"paris", "france"}, True),
        ("The capital of France was Paris in 1789.", {"paris", "france"}, True),
        ("Paris is the capital, as many people know.", {"paris"}, False),
        ("Paris.", set(), False),  # it restates nothing
    ],
)
def test_a_sentence_that_says_hardly_more_than_names_beyond_the_question(
    sentence: str, names: set[str], brief: bool
) -> None:
    question = "What is the capital of France?"
    vectors = dict.fromkeys([sentence, *beyond([sentence], question)], np.ones(2, dtype=np.float32))
    read = sentence_vectors([sentence], vectors, question=question)
    assert (read.names, read.brief) == ([names], [brief])


def test_of_more_questions_than_anyone_asks_none_is_told_from_the_others() -> None:
    texts = ["b is it", "a is it"]
    read = sentence_vectors(texts, dict.fromkeys(texts, np.ones(2, np.float32)), question="a?" * 1000 + "b?")
    assert read.asked == [{"b"}, {"a"}]


def test_long_numbers_are_compared_to_the_last_digit() -> None:
    first, second = facts(["It is 123456789012345678901234567890.", "It is 123456789012345678901234567899."])
    assert first.keys() != second.keys()


@pytest.mark.parametrize(
    ("claim", "sentence", "agrees"),
    [
        ("The tower was built in 1889.", "They built it in 1889.", True),
        ("The tower was built in 1889.", "The tower was not built in 1889.", False),
        ("He died in Warsaw in 1934.", "He died in 1934.", True),
        ("He died in Warsaw in 1934.", "He died in Paris in 1934.", False),
        ("It was Marie Curie in 1903.", "It was Curie in 1903.", True),
    ],
)
def test_a_sentence_with_another_name_or_negation_does_not_agree(
    claim: str, sentence: str, agrees: bool
) -> None:
    """The numbers are the same, and so are the vectors."""
    texts = [claim, sentence]
    said = sentence_vectors(texts, dict.fromkeys([*texts, *beyond(texts, "")], np.ones(3)), question="")
    units = MatchedUnits.of(said.take([0]), said.take([1]), [[0]])
    assert units.support() == [Support(int(agrees), int(not agrees), 0)]
