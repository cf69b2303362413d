"""How many live scores are under way: scoring counts them, jobs give way to them."""

from collections.abc import Iterator
from contextlib import contextmanager


class LiveLoad:
    """A counter of live scores, made before all that count or read it."""

    def __init__(self) -> None:
        self.under_way = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one score for as long as it takes."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
