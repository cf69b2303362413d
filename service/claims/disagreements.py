"""Where drawn answers say different things: numbers, names, roles and negation (**ours**).

Two answers disagree where each holds what the other does not. What all of them hold is left out: "5 euros for
30 days" and "5 euros for 90 days" disagree about days.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from service.claims.kernel import Quantity, Reading

MAX_VALUES = 10  # of a disagreement: those with the largest shares
Kind = Literal["number", "name", "roles", "negation"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Conflicting values and the share of answers with each, largest first."""

    kind: Kind
    values: Sequence[tuple[str, float]]


def find_disagreements(reading: Reading, counts: Sequence[int]) -> list[Disagreement]:
    """Return the disagreements of distinct answers (k,): numbers by unit, names, roles, negation.

    counts: (k,), how often each answer was drawn; 0 excludes an answer. Shares are of all counted answers.
    Names disagree only if two answers have no name in common, because German capitalises nouns.
    """
    used = [i for i, count in enumerate(counts) if count]
    total = sum(counts)
    disagreements = list[Disagreement]()

    def add(kind: Kind, held: Mapping[int, Mapping[str, str]], *, apart: bool = False) -> None:
        drawn, written = defaultdict[frozenset[str], int](int), dict[frozenset[str], str]()
        for i, facts, value in _values(held, apart=apart):
            drawn[facts] += counts[i]
            written.setdefault(facts, value)
        largest = sorted(drawn, key=lambda facts: -drawn[facts])[:MAX_VALUES]
        if largest:
            values = [(written[facts], drawn[facts] / total) for facts in largest]
            disagreements.append(Disagreement(kind, values))

    units = dict.fromkeys(quantity.unit for i in used for quantity in reading.quantities[i])
    for unit in units:
        add("number", {i: _of_unit(reading.quantities[i], unit) for i in used})
    add("name", {i: reading.names[i] for i in used}, apart=True)
    for words in dict.fromkeys(reading.roles[i].words for i in used if reading.roles[i].place):
        of_words = [(i, reading.roles[i]) for i in used if reading.roles[i].words == words]
        add("roles", {i: {str(role.place): role.text} for i, role in of_words})
    negated = {i: "negated" if reading.negated[i] else "not negated" for i in used}
    add("negation", {i: {value: value} for i, value in negated.items()})
    return disagreements


def _of_unit(quantities: Sequence[Quantity], unit: str) -> dict[str, str]:
    """Return the numbers with this unit, and their spelling."""
    return {quantity.number: quantity.written for quantity in quantities if quantity.unit == unit}


def _values(
    held: Mapping[int, Mapping[str, str]], *, apart: bool
) -> Iterator[tuple[int, frozenset[str], str]]:
    """Yield the facts of each answer that not all share, with their spelling, if two answers disagree.

    held: the facts of each answer, with their spelling. apart: answers with a common fact do not disagree.
    """
    spoken = {i: facts for i, facts in held.items() if facts}
    sets = {frozenset(facts) for facts in spoken.values()}
    pairs = combinations(sets, 2)
    if not any(a.isdisjoint(b) if apart else a - b and b - a for a, b in pairs):
        return
    common = frozenset.intersection(*sets)
    between = " " if apart else ", "
    for i, facts in spoken.items():
        own = frozenset(facts) - common
        if own:
            yield i, own, between.join(facts[fact] for fact in facts if fact in own)
