"""A bounded map that forgets what was used longest ago."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """At most `max_entries` entries; reading one makes it the youngest. One thread puts, any may get."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value, or None when it is not (or no longer) there."""
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:  # also where another thread has put one more between the two
            return None

    def put(self, key: K, value: V) -> None:
        """Keep the value; the oldest entry goes when there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
