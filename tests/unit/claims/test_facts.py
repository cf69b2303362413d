"""The numbers and names of sentences."""

import pytest

from service.claims.facts import NAME_COUNTS, NUMBER_COUNTS, facts


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
    ],
)
def test_numbers_and_words_with_a_capital_within_a_sentence(sentence: str, expected: set[str]) -> None:
    assert facts([sentence])[0].keys() == expected


def test_a_name_at_the_beginning_is_one_where_it_is_one_within_another_sentence() -> None:
    found = facts(["Paris is the capital.", "The capital is Paris.", "The city lies at the Seine."])
    assert [set(one) for one in found] == [{"paris"}, {"paris"}, {"seine"}]


def test_what_the_question_names_is_no_fact_of_the_answer() -> None:
    [found] = facts(["Marie Curie was born in 1867."], question="When was Marie Curie born?")
    assert found == {"1867": NUMBER_COUNTS}


def test_numbers_count_more_than_names() -> None:
    [found] = facts(["It has 2 moons, Phobos and Deimos."])
    assert found == {"2": NUMBER_COUNTS, "phobos": NAME_COUNTS, "deimos": NAME_COUNTS}
