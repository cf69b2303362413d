"""Connections to an LLM server: one for each call, no common pool.

A pool that many calls share cannot be trusted once calls are cancelled: one that is cancelled while it waits
for a connection, or in the moment in which one has been made, leaves a connection behind that counts as taken
for ever (httpcore #1093). Here a call has a client of its own; if it does not end well, all that its client
holds is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx


class Connections:
    """Lends clients made by `make`; after a whole answer a client is kept for another call for `kept_s`."""

    def __init__(self, make: Callable[[], httpx.AsyncClient], *, kept_s: float) -> None:
        self._make = make
        self._kept_s = kept_s
        self._idle: dict[httpx.AsyncClient, asyncio.TimerHandle] = {}
        self._lent: set[httpx.AsyncClient] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def num_lent(self) -> int:
        """Return how many are lent."""
        return len(self._lent)

    @property
    def num_idle(self) -> int:
        """Return how many are kept idle."""
        return len(self._idle)

    def take(self, *, fresh: bool = False) -> httpx.AsyncClient:
        """Return a client for one call, to be given back. `fresh`: one that has made no connection yet."""
        if fresh or not self._idle:
            client = self._make()
        else:
            client, timer = self._idle.popitem()  # the last one used: the others may expire
            timer.cancel()
        self._lent.add(client)
        return client

    async def give_back(self, client: httpx.AsyncClient, *, reusable: bool) -> None:
        """Keep the client for another call, or close it: half an answer in a connection serves no other."""
        self._lent.discard(client)
        if reusable:
            loop = asyncio.get_running_loop()
            self._idle[client] = loop.call_later(self._kept_s, self._expire, client)
        else:
            # A caller that is cancelled a second time must not break off the closing.
            await asyncio.shield(self._close(client))

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client for one call; it is closed if the block raises or is cancelled."""
        client, reusable = self.take(), False
        try:
            yield client
            reusable = True
        finally:
            await self.give_back(client, reusable=reusable)

    async def close(self) -> None:
        """Close all; calls under way fail."""
        for timer in self._idle.values():
            timer.cancel()
        clients = [*self._idle, *self._lent]
        self._idle.clear()
        await asyncio.gather(*self._closing, *(client.aclose() for client in clients))

    def _expire(self, client: httpx.AsyncClient) -> None:
        del self._idle[client]
        self._close(client)

    def _close(self, client: httpx.AsyncClient) -> asyncio.Task[None]:
        closing = asyncio.create_task(client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


def api_base(url: str) -> str:
    """Return the URL without trailing slash, with /v1 when it names a bare host; raises ValueError."""
    try:
        parsed, url = httpx.URL(url), url.rstrip("/")
    except httpx.InvalidURL as error:
        raise ValueError(f"The LLM server's URL cannot be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The LLM server's URL must start with http:// or https://.")
    return url if parsed.path.strip("/") else f"{url}/v1"
