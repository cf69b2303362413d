"""Live scoring goes first: when a calibration may take its next turn at the LLM or the embedder."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_POLL_S = 0.02


class LiveFirst:
    """Turns for work that may wait.

    While nothing live is under way, every turn begins at once. While something is, one turn at a time, each
    after a wait for a quiet moment that lasts `max_wait_s` at most, so that a calibration is slowed but never
    starved. `live_load` returns how many live scores are under way.
    """

    def __init__(self, live_load: Callable[[], int] = lambda: 0, *, max_wait_s: float = 3.0) -> None:
        self._live_load = live_load
        self._max_wait_s = max_wait_s
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn; waits for it to begin."""
        if not self._live_load():
            yield
            return
        async with self._one:
            quiet = await self._quiet()
            if not quiet:
                yield
        if quiet:
            yield

    async def _quiet(self) -> bool:
        """Wait for a moment without live work; False when none came in time."""
        end = time.monotonic() + self._max_wait_s
        while self._live_load():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True
