"""Roles: texts of the same words, in which two parts have changed places."""

import pytest

from service.claims.facts import read_words
from service.claims.roles import roles_of


def roles(texts: list[str], num_drawn: int | None = None) -> list[bool]:
    """Return for each text whether it has roles that a drawn text exchanges."""
    read = [read_words(text) for text in texts]
    return [bool(of_text) for of_text in roles_of(read, texts, num_drawn or len(texts))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Google bought YouTube.", "YouTube bought Google."),
        ("In 2011 Apple sued Samsung in Seoul.", "In 2011 Samsung sued Apple in Seoul."),
        ("The seller owes the buyer money.", "The buyer owes the seller money."),
        ("Anna is taller than Ben.", "Ben is taller than Anna."),
        ("The dog is big and the cat is small.", "The cat is big and the dog is small."),
        ("The train goes from Lyon to Geneva.", "The train goes from Geneva to Lyon."),
        ("Two juniors review each senior.", "Each senior reviews two juniors."),
        ("Der Arzt hat die Patientin angerufen.", "Die Patientin hat den Arzt angerufen."),
        ("La France a battu l'Italie.", "L'Italie a battu la France."),
    ],
)
def test_exchanged(first: str, second: str) -> None:
    assert roles([first, second]) == [True, True]
    assert roles([first, second, f"{first} It is so."]) == [True, True, False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Google bought YouTube.", "YouTube was bought by Google."),
        ("Jupiter is the largest planet.", "The largest planet is Jupiter."),
        ("Anna and Ben are siblings.", "Ben and Anna are siblings."),
        ("The colours are red, white and green.", "The colours are green, white and red."),
        ("In summer it is hot, in winter it is cold.", "In winter it is cold, in summer it is hot."),
        ("He won in 1990.", "In 1990 he won."),
        ("It takes 3 to 5 days.", "It takes 5 to 3 days."),
        ("Sie wohnt seit 2010 in Berlin.", "Seit 2010 wohnt sie in Berlin."),
        ("Im Sommer hat das Museum offen.", "Das Museum hat im Sommer offen."),
        ("Morgen kommt Peter nach Hause.", "Peter kommt morgen nach Hause."),
        ("Rome", "Milan"),
        ("", "Yes"),
        (f"Anna beat Ben {'again ' * 60}", f"Ben beat Anna {'again ' * 60}"),  # too long
    ],
)
def test_not_exchanged(first: str, second: str) -> None:
    assert roles([first, second]) == [False, False]


def test_roles_of_drawn_texts_do_not_depend_on_the_rest() -> None:
    drawn, other = "Google bought YouTube.", "YouTube bought Google."
    assert roles([drawn, "It was Google.", other], 2) == [False, False, True]
    assert roles([drawn, "It was Google.", drawn], 2) == [False, False, False]
    read = [read_words(text) for text in (drawn, other, "google bought youtube")]
    first, second, again = roles_of(read, [drawn, other, ""], 2)
    assert first.keys() == again.keys() != second.keys()
