"""How many connections there are at once, and which gives up its place when there are too many."""

from typing import Protocol

LEAVING = 50  # open files beside the bound: enough for a burst, few beside the usual 1024


class Holder(Protocol):
    """A connection, as far as its place is concerned."""

    def may_give_way(self) -> bool:
        """Tell whether closing it now cuts no answer that its caller takes."""

    def give_way(self) -> None:
        """Go, with a word where that would be understood."""

    def drop(self) -> None:
        """Go at once."""


class Places:
    """The connections of a server in the order in which they are to go.

    `owing`: those that owe us a request, or the taking of what they were sent, the longest first.
    `leaving`: those that were refused, and are listened to a little longer. They do not count.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._owing: dict[Holder, None] = {}  # a dict keeps its order: whoever came first stays first
        self._leaving: dict[Holder, None] = {}

    def admit(self, newcomer: Holder, present: int) -> None:
        """Let someone go if there are too many: who has owed longest, or else the newcomer."""
        if present - len(self._leaving) > self._number:
            next((one for one in self._owing if one.may_give_way()), newcomer).give_way()

    def note(self, holder: Holder, *, owes: bool) -> None:
        """Remember whether a connection owes something."""
        if owes:
            self._owing.setdefault(holder)
        else:
            self._owing.pop(holder, None)

    def got_on(self, holder: Holder) -> None:
        """Put one that owes behind all others."""
        if holder in self._owing:
            del self._owing[holder]
            self._owing[holder] = None

    def leave(self, holder: Holder) -> None:
        """Count it no longer. Past `LEAVING` the first that left is dropped."""
        self._owing.pop(holder, None)
        self._leaving[holder] = None
        if len(self._leaving) > LEAVING:
            next(iter(self._leaving)).drop()

    def forget(self, holder: Holder) -> None:
        """Take note that it has gone."""
        self._owing.pop(holder, None)
        self._leaving.pop(holder, None)
