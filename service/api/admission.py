"""Bounds on the requests in flight."""

from collections import Counter as Numbers
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from service.errors import Overloaded
from service.sharing import FairSemaphore, Places

Kind = Literal["score", "chat", "gateway", "batch"]


class Admission:
    """Limits the requests and batches in flight on this replica to `max_in_flight` and `max_batches`.

    Keys share the places. Batch items in flight are at most half of `max_in_flight`, and keys take turns.
    """

    def __init__(
        self, max_in_flight: int, max_batches: int, registry: CollectorRegistry | None = None
    ) -> None:
        requests = Places(max_in_flight)
        self._places = dict.fromkeys(get_args(Kind), requests) | {"batch": Places(max_batches)}
        self.items = FairSemaphore(max(1, max_in_flight // 2))
        self._numbers: Numbers[Kind] = Numbers()
        to = registry or CollectorRegistry()
        in_flight = Gauge("eigencal_requests_in_flight", "Requests in flight.", ["kind"], registry=to)
        for kind in get_args(Kind):
            in_flight.labels(kind).set_function(partial(self._numbers.__getitem__, kind))
        self._refused = Counter(
            "eigencal_requests_refused",
            "Requests refused because too many were in flight.",
            ["kind"],
            registry=to,
        )

    def refuse_if_full(self, kind: Kind) -> None:
        """Raise Overloaded if there is no room for another request. Call this before reading its body."""
        if not self._places[kind].has_room():
            self._refused.labels(kind).inc()
            raise Overloaded("Too many requests are in flight.")

    @contextmanager
    def one(self, kind: Kind) -> Iterator[None]:
        """Hold a place for a request, after its body was read, until it ends. Raises Overloaded."""
        self.refuse_if_full(kind)
        self._numbers[kind] += 1
        try:
            with self._places[kind].held():
                yield
        finally:
            self._numbers[kind] -= 1
