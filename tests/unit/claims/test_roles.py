"""Roles: texts of the same words, in which two parts have changed places."""

from itertools import permutations

import pytest

from service.claims.facts import read_words
from service.claims.roles import Role, roles_of


def roles(texts: list[str], num_drawn: int | None = None) -> list[Role]:
    return roles_of([read_words(text) for text in texts], texts, num_drawn or len(texts))


def are_exchanged(first: str, second: str) -> bool:
    """Return whether the second text has the same words in another place than the first, drawn one."""
    one, other = roles([first, second], 1)
    assert one.words == other.words != ()
    return one.place != other.place


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Google bought YouTube.", "YouTube bought Google."),
        ("In 2011, Apple sued Samsung in Seoul.", "In 2011 Samsung sued Apple in Seoul."),
        ("The seller owes the buyer money.", "The buyer owes the seller money."),
        ("Anna is taller than Ben.", "Ben is taller than Anna."),
        ("Anna told Ben and Clara.", "Clara told Ben and Anna."),
        ("The dog is big and the cat is small.", "The cat is big and the dog is small."),
        (
            "The red plan costs 5 euros, the blue plan 9 euros.",
            "The blue plan costs 5 euros, the red plan 9 euros.",
        ),
        ("The train goes from Lyon to Geneva.", "The train goes from Geneva to Lyon."),
        ("Plan A beats plan B.", "Plan B beats plan A."),
        ("Two juniors review each senior.", "Each senior reviews two juniors."),
        ("First add the eggs, then the flour.", "First add the flour, then the eggs."),
        ("Der Arzt hat die Patientin angerufen.", "Die Patientin hat den Arzt angerufen."),
        ("La France a battu l'Italie.", "L'Italie a battu la France."),
    ],
)
def test_exchanged(first: str, second: str) -> None:
    assert are_exchanged(first, second)
    assert are_exchanged(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Jupiter is the largest planet.", "The largest planet is Jupiter."),
        ("The winner will be Spain.", "Spain will be the winner."),
        ("Anna and Ben are siblings.", "Ben and Anna are siblings."),
        ("North Korea and South Korea", "South Korea and North Korea"),
        ("It borders the Red Sea and the Dead Sea.", "It borders the Dead Sea and the Red Sea."),
        ("Lake Erie, Lake Huron and Lake Ontario", "Lake Huron, Lake Erie and Lake Ontario"),
        ("The colours are red, white and green.", "The colours are green, white and red."),
        ("Anna is 30 years old and Ben is 25 years old.", "Ben is 25 years old and Anna is 30 years old."),
        ("- Red\n- White\n- Green", "- Green\n- White\n- Red"),
        ("name: Anna\nage: 5\ncity: Rome", "city: Rome\nage: 5\nname: Anna"),
        ("Cats purr. Dogs bark. Cows moo.", "Cows moo. Dogs bark. Cats purr."),
        ("In summer it is hot, in winter it is cold.", "In winter it is cold, in summer it is hot."),
        ("He won in 1990.", "In 1990 he won."),
        ("It takes 3 to 5 days.", "It takes 5 to 3 days."),
        ("Sie wohnt seit 2010 in Berlin.", "Seit 2010 wohnt sie in Berlin."),
        ("Im Sommer hat das Museum offen.", "Das Museum hat im Sommer offen."),
        ("Morgen kommt Peter nach Hause.", "Peter kommt morgen nach Hause."),
    ],
)
def test_not_exchanged(first: str, second: str) -> None:
    assert not are_exchanged(first, second)


@pytest.mark.parametrize("text", ["", "Rome", "Anna beat Ben " + "again " * 60])
def test_texts_of_few_or_many_words_have_no_roles(text: str) -> None:
    assert roles([text, text]) == [Role((), 0, text)] * 2


def test_places_do_not_depend_on_the_rest_or_the_order() -> None:
    first, again = "In 2011 Apple sued Samsung.", "Apple sued Samsung in 2011."
    other = "Samsung sued Apple in 2011."
    for texts in permutations((first, again, other)):
        place = {role.text: role.place for role in roles(list(texts))}
        assert place[first] == place[again] != place[other]
    assert [role.place for role in roles([again, other, first, other], 1)] == [0, 1, 0, 1]
