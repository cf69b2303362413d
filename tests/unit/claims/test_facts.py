"""Numbers and names in sentences."""

import pytest

from service.claims.facts import (
    MAX_ASKED,
    asked_part,
    beyond,
    facts,
    possible_questions,
)


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


def test_a_number_of_any_length_is_read() -> None:
    assert facts(["1" * 1_000_001]) == [{"1" * 1_000_001}]


def test_names_and_numbers_select_the_question_of_a_sentence() -> None:
    question = "Where was Ada Lovelace born? When was she born, and was it before 1820?"
    texts = ["Ada Lovelace was born in London.", "She was born in London.", "Before 1820, yes."]
    assert possible_questions(texts, question) == [{0}, {0, 1}, {1}]
    assert possible_questions(texts, "Where was Ada Lovelace born?") == [{0}] * 3
    listed = "1. Where was Bob born? 2. When did Ann die?"
    assert possible_questions(["He has 2 children.", "In 1990, Ann."], listed) == [{0, 1}, {1}]
