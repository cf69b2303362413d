"""Disagreements of answers in numbers, names or negations."""

from collections import Counter

import pytest

from service.claims.disagreements import find_disagreements
from service.claims.kernel import compared_texts, read_texts
from service.embedding.port import FACTS


def disagreements_of(
    drawn: list[str], question: str = "", ignored: frozenset[str] = frozenset()
) -> dict[str, dict[str, float]]:
    """Return the values and shares by kind. If a kind has several numbers, its name ends with the place."""
    counts = Counter(drawn)
    texts = list(counts)
    reading = read_texts(texts, compared_texts(texts, question, FACTS), question)
    disagreements = find_disagreements(reading, [0 if text in ignored else counts[text] for text in texts])
    return {
        f"{disagreement.kind}{i or ''}": dict(disagreement.values)
        for i, disagreement in enumerate(disagreements)
    }


def test_numbers_with_the_same_unit_are_compared_as_written() -> None:
    drawn = ["You have 30 days."] * 2 + ["Returns are taken for 90 days."]
    assert disagreements_of(drawn) == {
        "number": {"30 days": pytest.approx(2 / 3), "90 days": pytest.approx(1 / 3)}
    }
    assert disagreements_of(["30 days", "thirty days", "30 Tage"]) == {}
    people = ["It has 5 million people.", "It has 5 billion people."]
    assert disagreements_of(people) == {"number": {"5 million": 0.5, "5 billion": 0.5}}
    assert disagreements_of(["It costs ($5).", "It costs ($6)."]) == {"number": {"$5": 0.5, "$6": 0.5}}


def test_common_numbers_and_other_units_are_left_out() -> None:
    assert disagreements_of(["5 euros for 30 days", "5 euros for 90 days"]) == {
        "number": {"30 days": 0.5, "90 days": 0.5}
    }
    assert disagreements_of(["30 days", "30 days, 5 euros"]) == {}
    two = disagreements_of(["It was 3 kg in 1901.", "It was 4 kg in 1902."])
    assert sorted(map(sorted, (map(str, item) for item in two.values()))) == [
        ["1901", "1902"],
        ["3 kg", "4 kg"],
    ]


def test_names_disagree_where_answers_have_none_in_common() -> None:
    drawn = ["Paris", "It is Paris.", "Lyon"]
    question = "What is the capital of France?"
    assert disagreements_of(drawn, question) == {
        "name": {"Paris": pytest.approx(2 / 3), "Lyon": pytest.approx(1 / 3)}
    }
    # German nouns are capitalised; both answers say Rom.
    assert (
        disagreements_of(
            ["Rom ist die Stadt.", "Es ist die Metropole Rom."], "Was ist die Hauptstadt Italiens?"
        )
        == {}
    )
    assert disagreements_of(["Marie Curie", "Curie"]) == {}


def test_exchanged_roles_are_reported_as_the_answers() -> None:
    drawn = ["Spain beat Italy.", "Spain beat Italy.", "Italy beat Spain.", "It was Spain."]
    assert disagreements_of(drawn)["roles"] == {"Spain beat Italy.": 0.5, "Italy beat Spain.": 0.25}


def test_negation_is_reported_unless_the_question_is_negated() -> None:
    drawn = ["It is safe."] * 3 + ["It is not safe."]
    assert disagreements_of(drawn, "Is it safe?") == {"negation": {"not negated": 0.75, "negated": 0.25}}
    assert disagreements_of(drawn, "Why is it not safe?") == {}
