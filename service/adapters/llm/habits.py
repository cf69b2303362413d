"""What an LLM server was seen to do with requests for a model, believed only after a second look."""

import time
from collections.abc import Callable, Collection

from service.adapters.lru import LRU

KEPT_S = 600.0  # then the full form is tried again: servers are updated, and errors pass
MAX_KEPT = 1024  # habits; callers name models, and there may be any number of them
CHOICES = "n"


class Habits:
    """How many choices a call brings, and which parameters are refused, for each model.

    One short or refused call may be a hiccup. So something is believed once two calls showed it, the second
    begun after the first had ended, with none in between that showed the opposite; and for `kept_s` only.
    """

    def __init__(self, *, kept_s: float = KEPT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_s = kept_s
        self.clock = clock
        self._seen: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_KEPT)
        self._believed: LRU[tuple[str, str], tuple[float, int]] = LRU(MAX_KEPT)

    def choices(self, model: str) -> int | None:
        """Return how many choices a call brings at most; None: as many as are asked for, as far as known."""
        return self._known(model, CHOICES)

    def omitted(self, model: str, names: Collection[str]) -> frozenset[str]:
        """Return those of the parameters that the server is known to refuse."""
        return frozenset(name for name in names if self._known(model, name) is not None)

    def saw_choices(self, model: str, *, asked: int, brought: int, began: float) -> None:
        """Take note of a whole reply with no choice given up. `began`: when it was asked for, by `clock`."""
        if brought < asked:
            self._saw(model, CHOICES, brought, began)
        elif (seen := self._seen.get((model, CHOICES))) and brought > seen[1]:
            self._seen.pop((model, CHOICES))

    def saw_parameters(
        self, model: str, *, refused: Collection[str], taken: Collection[str], began: float
    ) -> None:
        """Take note of a call that succeeded: without those refused, and with those taken."""
        for name in refused:
            self._saw(model, name, 0, began)
        for name in taken:
            self._seen.pop((model, name))

    def _saw(self, model: str, name: str, value: int, began: float) -> None:
        now, first = self.clock(), self._seen.get((model, name))
        if first is None or now - first[0] > self._kept_s:
            self._seen.put((model, name), (now, value))
        elif began >= first[0]:
            self._believed.put((model, name), (now, max(value, first[1])))
            self._seen.pop((model, name))

    def _known(self, model: str, name: str) -> int | None:
        believed = self._believed.get((model, name))
        if believed is None or self.clock() - believed[0] > self._kept_s:
            return None
        return believed[1]
