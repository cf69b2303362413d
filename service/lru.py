"""A bounded map that drops the least recently used entry."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A map of at most `max_entries` entries. One thread may put; any thread may get."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value and mark it as the most recently used; None if the key is missing."""
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:  # also if another thread drops the entry between the two lines
            return None

    def put(self, key: K, value: V) -> None:
        """Store the value and drop the least recently used entry if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
