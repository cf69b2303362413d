"""Live scoring goes first: when a calibration may take its next turn at the LLM or the embedder."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.domain.serving import LiveLoad

_POLL_S = 0.02


class LiveFirst:
    """Turns for work that may wait.

    While nothing live is under way, every turn begins at once. While something is, one turn at a time, each
    after a wait for a quiet moment. Where none comes, that wait lasts so long that turns take `share` of the
    time, and `max_wait_s` at most: a calibration is slowed, but gets on however busy the service is.
    `live` counts the live scores under way; without it there are none.
    """

    def __init__(self, live: LiveLoad | None = None, *, share: float = 0.5, max_wait_s: float = 3.0) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of the time must be above 0 and at most 1")
        self._live = live or LiveLoad()
        self._pause = (1 - share) / share  # after a turn, in units of its length
        self._max_wait_s = max_wait_s
        self._next = 0.0  # the earliest that a turn may begin beside live work
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn; waits for it to begin."""
        if not self._live.under_way:
            yield
            return
        async with self._one:
            quiet = await self._quiet()
            if not quiet:
                async with self._beside():
                    yield
        if quiet:
            yield

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._next = now + min(self._pause * (now - began), self._max_wait_s)

    async def _quiet(self) -> bool:
        """Wait for a moment without live work; False when none came in time."""
        while self._live.under_way:
            left = self._next - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(_POLL_S, left))
        return True
