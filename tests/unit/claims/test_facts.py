"""Numbers and names in sentences."""

import pytest

from service.claims.facts import (
    MAX_ASKED,
    asked_part,
    beyond,
    facts,
    possible_questions,
    words,
    words_of_question,
)

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
def test_numbers_and_capitalised_words_are_facts(sentence: str, expected: set[str]) -> None:
    assert facts([sentence]) == [expected]


def test_first_word_is_a_name_if_capitalised_within_another_sentence() -> None:
    facts_ = facts(["Paris is the capital.", "The capital is Paris.", "The city lies at the Seine."])
    assert [set(item) for item in facts_] == [{"paris"}, {"paris"}, {"seine"}]


def test_first_word_is_a_name_if_capitalised_within_the_question() -> None:
    [fact] = facts(["Brazil won."], question="Who won, Germany or Brazil?")
    assert fact == {"brazil"}


def test_first_word_is_a_name_if_the_rest_restates_the_question() -> None:
    reports = ["Lyon is the capital of France.", "The capital of France is not known.", "Rivers flow."]
    facts_ = facts(reports, question="What is the capital of France?")
    assert [set(item) for item in facts_] == [{"lyon", "france"}, {"france"}, set()]


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
def test_part_of_a_sentence_beyond_the_question(sentence: str, expected: str) -> None:
    assert beyond([sentence], "When was Marie Curie born?") == [expected]


def test_long_prompt_is_not_a_question() -> None:
    sentence, material = "The treaty was signed in 1648.", "The treaty was signed by all, not in 1684. "
    assert beyond([sentence], material) == ["1648."]
    assert beyond([sentence], material * MAX_ASKED) == [sentence]


@pytest.mark.parametrize(
    ("end", "question"),
    [
        ("Question: How long is the trial?", "How long is the trial?"),
        ("How long is the trial?\nAnswer:", "How long is the trial?"),
        ("Is it 3.5 days? Or 4.5 days? Tell me.", "Or 4.5 days?"),
        ("\u8bd5\u7528\u671f\u591a\u957f\uff1f", "\u8bd5\u7528\u671f\u591a\u957f\uff1f"),
        ("What is the price? See http://a.b/?id=5", "What is the price?"),
        (
            "\u0645\u0627 \u0627\u0644\u0633\u0639\u0631\u061f",
            "\u0645\u0627 \u0627\u0644\u0633\u0639\u0631\u061f",
        ),
        ("Summarise it.", ""),
    ],
)
def test_last_question_of_a_long_prompt_counts(end: str, question: str) -> None:
    text = "The plan is not free.\n" * MAX_ASKED
    assert asked_part(f"{text}{end}") == question
    assert asked_part(end) == end


def test_question_words_match_with_and_without_suffixes() -> None:
    assert {"galahad", "galahad's", "jean", "jean-paul"} <= words_of_question(
        'Is Galahad\'s "Jean-Paul" known?'
    )
    assert not {"germany", "brazil"} & words_of_question(WINNER)


@pytest.mark.parametrize(
    "question", ["What opens at 9 o'clock?", "Who is Conan O'Brien?", "O\u00f9 est n\u00e9 Einstein ?"]
)
def test_lookalikes_of_or_offer_no_alternatives(question: str) -> None:
    assert words_of_question(question)


def test_a_number_of_any_length_is_read() -> None:
    assert facts(["1" * 1_000_001]) == [{"1" * 1_000_001}]


def test_names_and_numbers_select_the_question_of_a_sentence() -> None:
    question = "Where was Ada Lovelace born? When was she born, and was it before 1820?"
    texts = ["Ada Lovelace was born in London.", "She was born in London.", "Before 1820, yes."]
    assert possible_questions(texts, question) == [{0}, {0, 1}, {1}]
    assert possible_questions(texts, "Where was Ada Lovelace born?") == [{0}] * 3
    listed = "1. Where was Bob born? 2. When did Ann die?"
    assert possible_questions(["He has 2 children.", "In 1990, Ann."], listed) == [{0, 1}, {1}]


def test_too_many_questions_are_not_separated() -> None:
    assert possible_questions(["B is it", "A is it"], "Is A it? " * 30 + "Is B it?") == [{0}, {0}]


def test_long_numbers_are_compared_to_the_last_digit() -> None:
    first, second = facts(["It is 123456789012345678901234567890.", "It is 123456789012345678901234567899."])
    assert first != second


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("STRASSE", "straße"),
        ("Café", "cafe\u0301"),
        ("Ελλάδα!", "ελλάδα"),
        ("Париж", "париж."),
        ("ﬁne", "fine"),
        ("１９４５", "1945"),
        ("東京", "「東京」"),
    ],
)
def test_words_of_any_script_and_form(a, b):
    assert words(a) == words(b)
