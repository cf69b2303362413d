"""Final answers, values in one form, and long texts of strangers."""

import pytest

from service.claims.values import compared_form, final_answer, in_one_form, quantities
from service.claims.verdicts import verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### 42\n", "42"),
        (r"So $\boxed{\frac{\sqrt{3}}{2}}$.", r"\frac{\sqrt{3}}{2}"),
        (r"First \boxed{1}, then \boxed{\text{Lyon}}.", "Lyon"),
        (r"\boxed{unfinished", r"\boxed{unfinished"),
        ("Answer: **Lyon**.", "Lyon."),
        ("### Answer\n\nLyon", "Lyon"),
        ("It is far. So the final answer is Lyon.", "Lyon."),
        ("La respuesta es Lyon.", "Lyon."),
        ("Wait. Answer: Paris\nNo.\nAnswer: Lyon", "Lyon"),
        # No marks of a final answer, or nothing after them.
        (r"Paris \boxed{ }", r"Paris \boxed{ }"),
        (r"\boxed{\text{}}", r"\boxed{\text{}}"),
        ("It is Paris. The answer is straightforward.", "It is Paris. The answer is straightforward."),
        ("1. Answer: 5\n2. Answer: 6", "1. Answer: 5\n2. Answer: 6"),
        ("I know no answer:", "I know no answer:"),
        # A text model that goes on.
        ("Paris\n\nQuestion: And of Spain?\nAnswer: Madrid", "Paris"),
        # Signs that are no emphasis.
        ("2*3*4 and 2**3, not 2**4", "2*3*4 and 2**3, not 2**4"),
        ("__init__, $5 and $6", "__init__, $5 and $6"),
    ],
)
def test_the_final_answer(text: str, expected: str) -> None:
    assert final_answer(text) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("10 000 people", "10,000 people"),
        ("Apollo XI", "Apollo 11"),
        ("the twenty-first century", "the 21st century"),
        ("Sept. 11, 2001", "September 11, 2001"),
        ("12. Mai 2024", "2024-05-12"),
        ("$5M", "$5 million"),
        ("3 - 2", "3-2"),
        ("x>5", "x > 5"),
        ("1½ cups", "1.5 cups"),
        ("½", "1/2"),
        ("About 2.50", "about 2.50"),
        ("Python 3.10", "python 3.10"),
    ],
)
def test_one_form_of_a_value(first: str, second: str) -> None:
    assert compared_form(first) == compared_form(second)
    assert list(quantities(first)) == list(quantities(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Type 2 may cause it", "5 Type 2"),
        ("Python 3.10", "Python 3.1"),
        ("10⁶", "106"),
        ("x ≠ 5", "x = 5"),
        ("===", "=="),
        ("O(1)", "O(2)"),
        ("5 millionaires", "5 million"),
        ("Henry VIII", "Henry VII"),
    ],
)
def test_values_that_differ(first: str, second: str) -> None:
    assert in_one_form(first) != in_one_form(second)


PIECES = [
    *[
        "1.",
        "1,",
        "1",
        "0.12,",
        "1 000 ",
        "A#",
        "hundred ",
        "one hundred and ",
        "≤= 5 ",
        "9½ ",
        "X",
        "XVI ",
        "5m ",
        "$5k ",
    ],
    *[
        "v1.",
        "a - b ",
        "3-2 ",
        "< a",
        "12 may 2024 ",
        "python 1.0 ",
        "twenty-first ",
        "no more than 5 ",
        "not ",
    ],
    *[
        "\\boxed{",
        "\\boxed{{} ",
        "*a*",
        " *a",
        "`a ",
        "$1$ ",
        " $a",
        "\n\n",
        "Answer: a\n",
        "Question: a\n",
        "#### a\n",
    ],
    *["(a) ", "((", "[ "],
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """A test hangs where time grows with the square of the length."""
    text = piece * (50_000 // len(piece))
    assert isinstance(compared_form(final_answer(text)), str)
    assert all(quantity.number for quantity in quantities(text))
    assert verdict(text, ["Rome"]) == verdict("Rome", [text]) == "none"
