"""Admission of requests to score or to chat: so many in flight, refusal past that, before a body is read."""

import asyncio
from collections import Counter as Numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from service.errors import Overloaded

Kind = Literal["score", "chat", "gateway", "batch"]


class Admission:
    """Bounds what is in flight on this replica: `max_in_flight` requests, and `max_batches` batches.

    The items of all batches take a turn each of `items`: half as many as requests. `retry_after_s`: tells
    when to come back.
    """

    def __init__(
        self,
        max_in_flight: int,
        max_batches: int,
        retry_after_s: Callable[[], float],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._max_in_flight, self._max_batches = max_in_flight, max_batches
        self._retry_after_s = retry_after_s
        self.items = asyncio.Semaphore(max(1, max_in_flight // 2))
        self._numbers: Numbers[Kind] = Numbers()
        to = registry or CollectorRegistry()
        in_flight = Gauge("eigencal_requests_in_flight", "Requests in flight.", ["kind"], registry=to)
        for kind in get_args(Kind):
            in_flight.labels(kind).set_function(partial(self._numbers.__getitem__, kind))
        self._refused = Counter(
            "eigencal_requests_refused", "Requests refused for want of room.", ["kind"], registry=to
        )

    def refuse_if_full(self, kind: Kind) -> None:
        """Raise Overloaded where there is no room for one more: to be asked before its body is read."""
        if self._has_room(kind):
            return
        self._refused.labels(kind).inc()
        raise Overloaded("Too many requests are in flight.", retry_after_s=self._retry_after_s())

    @contextmanager
    def one(self, kind: Kind) -> Iterator[None]:
        """Count a request whose body has come, for as long as it takes. Raises Overloaded."""
        self.refuse_if_full(kind)
        self._numbers[kind] += 1
        try:
            yield
        finally:
            self._numbers[kind] -= 1

    def _has_room(self, kind: Kind) -> bool:
        if kind == "batch":
            return self._numbers["batch"] < self._max_batches
        return self._numbers.total() - self._numbers["batch"] < self._max_in_flight
