"""Where drawn answers say different things about the same thing: numbers, names and negation (**ours**).

Two answers disagree where each holds what the other does not. What all of them hold is left out: "5 euros for
30 days" and "5 euros for 90 days" disagree about days.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from service.claims.kernel import Quantity, Reading

MAX_VALUES = 10  # of one disagreement, those of the largest share
Kind = Literal["number", "name", "negation"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What answers say instead of one another: values and the share of answers of each, largest first."""

    kind: Kind
    values: Sequence[tuple[str, float]]


def find_disagreements(reading: Reading, counts: Sequence[int]) -> list[Disagreement]:
    """Return the disagreements of distinct answers (k,): numbers by unit, then names, then negation.

    counts: (k,), how many of the drawn answers each is; 0 for an answer that does not count. Shares are of
    all drawn answers that count. Names disagree only between answers without a common one: nouns have
    capitals in some languages.
    """
    used = [i for i, count in enumerate(counts) if count]
    total = sum(counts)
    found = list[Disagreement]()

    def add(kind: Kind, held: Mapping[int, Mapping[str, str]], *, apart: bool = False) -> None:
        values = defaultdict[str, int](int)
        for i, value in _values(held, apart=apart):
            values[value] += counts[i]
        largest = sorted(values.items(), key=lambda one: -one[1])[:MAX_VALUES]
        if largest:
            found.append(Disagreement(kind, [(value, count / total) for value, count in largest]))

    units = dict.fromkeys(one.unit for i in used for one in reading.quantities[i])
    for unit in units:
        add("number", {i: _of_unit(reading.quantities[i], unit) for i in used})
    add("name", {i: reading.names[i] for i in used}, apart=True)
    negated = {i: "negated" if reading.negated[i] else "not negated" for i in used}
    add("negation", {i: {value: value} for i, value in negated.items()})
    return found


def _of_unit(quantities: Sequence[Quantity], unit: str) -> dict[str, str]:
    """Return the numbers of one unit, as they are written."""
    return {one.number: one.written for one in quantities if one.unit == unit}


def _values(held: Mapping[int, Mapping[str, str]], *, apart: bool) -> Iterator[tuple[int, str]]:
    """Yield what each answer holds as one value, if two of them disagree; held: written facts by fact.

    apart: two disagree only if they have nothing in common. Equal facts have one value, as the first answer
    writes them.
    """
    spoken = {i: facts for i, facts in held.items() if facts}
    sets = {frozenset(facts) for facts in spoken.values()}
    pairs = combinations(sets, 2)
    if not any(one.isdisjoint(two) if apart else one - two and two - one for one, two in pairs):
        return
    common, written = frozenset.intersection(*sets), dict[frozenset[str], str]()
    between = " " if apart else ", "
    for i, facts in spoken.items():
        own = frozenset(facts) - common
        if own:
            yield i, written.setdefault(own, between.join(facts[fact] for fact in facts if fact in own))
