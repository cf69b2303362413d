"""Waiting for a database for a bounded time, whatever it does."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from service.domain.errors import StoreUnavailable

T = TypeVar("T")


class Bounded:
    """Calls that are waited for `answer_s` at most. Those of the same key share one.

    A call that is given up is not cancelled but left to end by itself: a driver that is cancelled asks the
    server to stop, and waits for one that is frozen.
    """

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self._calls: dict[Hashable, asyncio.Task[Any]] = {}

    async def call(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what the call returns. Raises what it raises, StoreUnavailable when it takes too long."""
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._ended(key, done))
        # Not wait_for, which cancels what it gives up.
        done, _ = await asyncio.wait({task}, timeout=self._answer_s)
        if not done:
            raise StoreUnavailable("The database does not answer.", retry_after_s=5.0)
        result: T = task.result()
        return result

    async def stop(self) -> None:
        """Let calls that were given up end, if they do soon: their connections can then be closed."""
        others = set(self._calls.values()) - {asyncio.current_task()}  # a call may be what stops
        if others:
            await asyncio.wait(others, timeout=self._answer_s)

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._calls[key]
        if not task.cancelled():
            task.exception()  # nobody may be left to ask for it
