"""Verdicts on answers, by words and a reference."""

import json
import tomllib
from pathlib import Path

import pytest

from service.claims.verdicts import correct, is_too_long, verdict

PAIRS = tomllib.loads(Path(__file__).with_name("pairs.toml").read_text("utf-8"))
# Pairs that the rule gets wrong, and why.
NOT_YET = {
    ("Martin Luther", "Martin Luther King"): "nothing tells whether a name goes on",
    ("Purple Rain", "Rain"): "half of a name is right if the question lacks it",
    ("United States", "USA"): "of America is not said",
    ("colour", "color"): "short words have no typos",
}
WRONG = [
    ("The Beatles", "THE UNDERTONES"),
    ("King Edward VII", "Edward III"),
    ("New Zealand", "NEW JERSEY"),
    ("Carolina", "Raleigh, North Carolina"),
    ("", "Winston Churchill"),
    ("Winston Churchill", ""),
    ("symmetric", "asymmetric"),
    ("Room 1234567", "Room 1234568"),  # a number has no spelling variants
    ("Vitamin C", "Vitamin D"),
    ("King George VI", "King George V"),
    ("1", "One hundred"),
    ("Five", "Twenty-five"),
    ("Hundert", "Zwei hundert"),
    ("B52", "52"),
    ("195", "1953"),
    ("not Berlin", "Berlin"),
    ("Ce ne sera plus Berlin.", "Berlin"),
    ("The drink that people like is without any sugar.", "sugar"),
    ("Er trinkt seinen Kaffee am liebsten ohne Milch.", "Milch"),
    ("Berlin or Bonn", "Berlin"),
    ("Berlin/Bonn", "Berlin"),
    ("Berlin, Paris, Rome", "Berlin"),
    ("It took 5 of the teams 3 days to get there", "5"),
    ("As far as anybody knows it is one of them", "1"),
    ("The capital of Germany is certainly not Berlin.", "Berlin"),
    ("I would say that Berlin isn't the capital of Germany.", "Berlin"),
    ("It was never moved to Berlin as far as I know.", "Berlin"),
    ("Das ist nicht Berlin, soviel ich davon weiss.", "Berlin"),
    ("Ce n'est pas Berlin, mais une autre ville du pays.", "Berlin"),
    ("Nunca jamás fue Berlin, que yo sepa.", "Berlin"),
    ("Não é Berlin, pelo que eu sei disso.", "Berlin"),
    ("I think that it is either Berlin or Bonn, one of them.", "Berlin"),
    ("It might be Berlin, Paris or even the city of Rome.", "Berlin"),
    ("Berlin, Paris, Rome, Vienna, Madrid, Lisbon", "Berlin"),
    ("Is it Berlin, the largest city? I really have no idea at all.", "Berlin"),
    ("It used to be Berlin, in the times of the old empire.", "Berlin"),
    ("Столица этой страны не Берлин, а другой город.", "Берлин"),
    ("Candidates are Berlin/Bonn, as far as I am aware.", "Berlin"),
    ("New York City, San Francisco Bay, Los Angeles Area", "New York City"),
    ("The capital of that country lies in East Berliner land.", "Berlin"),
    ("The right choice is, as far as I can tell, b here.", "B"),
    ("Yes, of course it is, as everybody knows by now.", "yes"),
    ("It is a novel by Stephen King about a clown in Maine.", "It"),
    ("Stratford lies upon the river Avon in the county.", "upon Avon"),
]


@pytest.mark.parametrize(("answer", "reference"), WRONG)
def test_a_wrong_answer(answer: str, reference: str) -> None:
    assert verdict(answer, [reference]) == "none"
    assert not correct(answer, [reference])


@pytest.mark.parametrize(
    "number", ["15,500", "12,15", "3.15", "15.5", "-15", "minus 15", "12:15", "15th", "15'000"]
)
def test_part_of_a_number_does_not_match(number: str) -> None:
    assert verdict(f"The total of all of them is {number} as of now", ["15"]) == (
        "contains" if number == "15th" else "none"
    )


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("5", "5 cents"), ("Five", "5 cents"), ("5", "5 euros")],
)
def test_a_number_without_its_unit_is_half_of_the_reference(answer: str, reference: str) -> None:
    assert verdict(answer, [reference]) == "contained"


@pytest.mark.parametrize("reference", ["two million", "Zwei Millionen", "two hundred", "twenty two"])
def test_part_of_a_number_in_words_is_wrong(reference: str) -> None:
    assert verdict("2", [reference]) == "none"


def test_answers_too_long_for_their_references() -> None:
    assert is_too_long("The capital of that large country is Berlin.", ["Berlin"])
    assert not is_too_long("It is Berlin.", ["Berlin"])
    assert [is_too_long("word " * value, ["Berlin city"]) for value in (6, 7)] == [False, True]


def test_the_surest_rule_is_named_whatever_the_order_of_the_references() -> None:
    references = ["Isaac Newton", "Newtown", "Sir Newton of Woolsthorpe", "Newton"]
    for turned in (references, references[::-1]):
        assert verdict("Newton", turned) == "equal"
        assert verdict("It was Newton", turned) == "contains"


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("triviaqa_dev_smollm2_m40", 23),
        ("triviaqa_test_smollm2_m20", 37),
        ("triviaqa_test_qwen1.5b_m10", 59),
        ("everyday_qwen1.5b_m10", 134),
    ],
)
def test_recorded_answers(shared_data: Path, name: str, right: int) -> None:
    rows = [json.loads(line) for line in (shared_data / f"{name}.jsonl").read_text("utf-8").splitlines()]
    references = [
        row["reference"] if isinstance(row["reference"], list) else [row["reference"]] for row in rows
    ]
    assert (
        sum(correct(row["answer"], of, row["prompt"]) for row, of in zip(rows, references, strict=True))
        == right
    )


def pairs(kind: str) -> list[object]:
    """Return the pairs of a kind as parameters of a test."""
    return [
        pytest.param(
            *pair,
            marks=[pytest.mark.xfail(reason=NOT_YET[tuple(pair)], strict=True)]
            if tuple(pair) in NOT_YET
            else [],
        )
        for pair in PAIRS[kind]
    ]


@pytest.mark.parametrize(("reference", "answer"), pairs("different"))
def test_another_value_is_wrong(reference: str, answer: str) -> None:
    assert verdict(answer, [reference]) == "none"


@pytest.mark.parametrize(("reference", "answer"), pairs("same"))
def test_the_same_value_in_another_form_is_right(reference: str, answer: str) -> None:
    assert correct(answer, [reference])


@pytest.mark.parametrize(
    ("question", "answer", "reference", "rule"),
    [
        ("What type of rain did Prince sing about?", "Rain", "Purple Rain", "none"),
        ("Who was Margaret Thatcher's mother?", "Margaret Thatcher", "Margaret", "none"),
        ("What is ice made of?", "Ice", "Ice", "equal"),
        ("Which is the seat?\nA) Paris\nB) Lyon", "B) Lyon", "Lyon", "contains"),
        ("Which is the seat?\nA) Paris\nB) Lyon", "B", "B) Lyon", "contained"),
        ("The tower is in Paris, France. Where is the tower?", "In Paris", "Paris", "contains"),
        ("Is it hot or cold?", "Cold", "Very cold", "contained"),
        ("What colour is the white house?", "The white house is white.", "White", "contains"),
    ],
)
def test_a_short_answer_says_more_than_the_question(
    question: str, answer: str, reference: str, rule: str
) -> None:
    assert verdict(answer, [reference], question) == rule


def test_a_list_that_goes_on_is_another_list() -> None:
    planets = "Mercury, Venus, Earth, Mars"
    assert verdict(f"{planets}, Jupiter, Saturn", [planets]) == "none"
    assert verdict(f"{planets}.", [planets]) == "equal"


def test_a_long_answer_that_repeats_itself_is_judged() -> None:
    assert not correct("it is not Berlin " * 10_000, ["Berlin"])
    assert correct("it is not Berlin " * 10_000 + ". It is Berlin, as all know.", ["Berlin"])
