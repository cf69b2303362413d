"""Turns at what does one piece of work at a time: small calls get in between the pieces of large ones."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """What one caller has had so far: the virtual time at which its last piece of work ends."""

    ends: float = 0.0


class FairTurns:
    """One turn at a time, in the order in which the work would end if all callers were served side by side.

    Self-clocked fair queueing (Golestani, INFOCOM 1994): a caller with little work waits for the piece at
    work and for little else, however many have brought much; and none waits for ever.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._taken = False
        self._virtual = 0.0

    @asynccontextmanager
    async def turn(self, size: float, share: Share) -> AsyncIterator[None]:
        """Hold a turn for a piece of work of this size (any unit); waits for it to begin."""
        share.ends = max(share.ends, self._virtual) + size
        await self._begin(share.ends)
        try:
            yield
        finally:
            self._pass_on()

    async def _begin(self, ends: float) -> None:
        if not self._taken:
            self._taken, self._virtual = True, ends
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (ends, next(self._arrivals), given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():  # the turn came just as the caller left
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            ends, _, given = heapq.heappop(self._waiting)
            if not given.done():
                self._virtual = ends
                given.set_result(None)
                return
        self._taken = False
