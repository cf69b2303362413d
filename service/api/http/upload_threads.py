"""Threads in which uploads are read: their own, so that nothing else waits for them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from service.domain.errors import Overloaded

T = TypeVar("T")


class UploadThreads:
    """A few threads, and places for the uploads that they read or that wait for them.

    All or nothing: an upload that has a place is read to its end.
    """

    def __init__(self, *, threads: int = 2, places: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="upload")
        self._free = places

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place; raises Overloaded when none is free."""
        if not self._free:
            raise Overloaded("Too many uploads are being read.")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; for who holds a place. Work goes on when its caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
