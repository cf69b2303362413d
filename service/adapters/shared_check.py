"""A check that anybody may ask for, without a key: one at a time, and what it found holds for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy

from service.domain.errors import EigencalError

KEPT_S = 1.0


class SharedCheck:
    """Runs `ask` at most once at a time and once in `kept_s`; everybody gets what it found.

    A caller that leaves neither cancels the check for the others nor leads to a second one beside it. `ask`
    returns when all is well and raises the EigencalError that says what is not; when it has not ended after
    `longest_s`, it is broken off and the finding is `too_late`.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        *,
        longest_s: float,
        too_late: EigencalError,
        kept_s: float = KEPT_S,
    ) -> None:
        self._ask = ask
        self._longest_s = longest_s
        self._too_late = too_late
        self._kept_s = kept_s
        self._latest: asyncio.Task[EigencalError | None] | None = None
        self._ended_at = float("-inf")

    async def __call__(self) -> None:
        """Return when all is well; raises what `ask` raised."""
        failure = await asyncio.shield(self._current())
        if failure is not None:
            raise copy(failure)  # many may raise it: each with a traceback of its own

    async def stop(self) -> None:
        """Break off the check under way; idempotent."""
        latest, self._latest = self._latest, None
        if latest is not None and not latest.done():
            latest.cancel()
            await asyncio.wait({latest})

    def _current(self) -> asyncio.Task[EigencalError | None]:
        """Return the check under way, or the last one while it holds, or a new one."""
        age_s = asyncio.get_running_loop().time() - self._ended_at
        if self._latest is None or (self._latest.done() and age_s > self._kept_s):
            self._latest = asyncio.create_task(self._found())
        return self._latest

    async def _found(self) -> EigencalError | None:
        try:
            async with asyncio.timeout(self._longest_s):
                await self._ask()
        except EigencalError as failure:
            return failure
        except TimeoutError:
            return self._too_late
        finally:
            self._ended_at = asyncio.get_running_loop().time()
        return None
