"""Connections to an LLM server, one for each call under way, without a common pool.

A pool that many calls share cannot be trusted once calls are cancelled: one that is cancelled while it waits
for a connection, or in the moment in which one has been made, leaves a connection behind that counts as taken
for ever. Here a call has a client of its own; if it does not end well, all that its client holds is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
CLOSING_S = 5.0  # after this a call that was cancelled and still has not ended is cancelled again


class Connections:
    """Lends clients made by `make`; after a whole answer a client is kept for another call for `kept_s`."""

    def __init__(self, make: Callable[[], httpx.AsyncClient], *, kept_s: float) -> None:
        self._make = make
        self._kept_s = kept_s
        self._idle: dict[httpx.AsyncClient, asyncio.TimerHandle] = {}
        self._lent: set[httpx.AsyncClient] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def number(self) -> tuple[int, int]:
        """Return how many are lent, and how many are kept idle."""
        return len(self._lent), len(self._idle)

    @asynccontextmanager
    async def one(self, *, fresh: bool = False) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client for one call; it is closed if the block raises or is cancelled.

        `fresh`: one that has made no connection yet.
        """
        client = self._make() if fresh else self._take()
        self._lent.add(client)
        try:
            yield client
        except BaseException:
            await client.aclose()
            raise
        else:
            self._keep(client)
        finally:
            self._lent.discard(client)

    async def close(self) -> None:
        """Close all; calls under way fail."""
        for timer in self._idle.values():
            timer.cancel()
        clients = [*self._idle, *self._lent]
        self._idle.clear()
        await asyncio.gather(*self._closing, *(client.aclose() for client in clients))

    def _take(self) -> httpx.AsyncClient:
        if not self._idle:
            return self._make()
        client, timer = self._idle.popitem()  # the last one used: the others may expire
        timer.cancel()
        return client

    def _keep(self, client: httpx.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        self._idle[client] = loop.call_later(self._kept_s, self._expire, client)

    def _expire(self, client: httpx.AsyncClient) -> None:
        del self._idle[client]
        closing = asyncio.create_task(client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def until(
    end: float, work: Coroutine[Any, Any, T], ended: Callable[[bool], object] = lambda _: None
) -> T:
    """Return what `work` returns; TimeoutError at `end` (loop's clock), CancelledError when cancelled before.

    The work has a task of its own, and whoever stops waiting cancels it once, however often he is cancelled
    himself: a second cancellation would break off the closing of a connection. He does not wait for it:
    `ended` is called when it is really over, with whether it returned.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: ended(not done.cancelled() and done.exception() is None))
    try:
        async with asyncio.timeout_at(end):
            return await asyncio.shield(task)
    except (asyncio.CancelledError, TimeoutError):
        _cancel(task)
        raise


def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel, and again as long as it has not ended."""
    if not task.done():
        task.cancel()
        task.get_loop().call_later(CLOSING_S, _cancel, task)
