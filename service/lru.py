"""A bounded map that drops the least recently used entry."""

import math
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A map of at most `max_entries` entries, each for `kept_s` seconds. One thread may put; any may get."""

    def __init__(self, max_entries: int, *, kept_s: float = math.inf) -> None:
        self._max_entries = max_entries
        self.kept_s = kept_s
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value and mark it as the most recently used; None if it is missing or too old."""
        try:
            self._entries.move_to_end(key)
            value, since = self._entries[key]
        except KeyError:  # also if another thread drops the entry between the two lines
            return None
        return value if time.monotonic() - since <= self.kept_s else None

    def put(self, key: K, value: V) -> None:
        """Store the value and drop the least recently used entry if there are too many."""
        self._entries[key] = value, time.monotonic()
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
