"""Several requests of a batch under way at a time, each in a task."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from eigencal._models.batch import BatchItem
from eigencal._sending.batches import Part

LINES_AHEAD = 64  # that wait for a caller who is slower than the service


class AsyncMerged:
    """The lines of all parts as they come, of at most so many requests at a time."""

    def __init__(
        self, parts: Iterator[Part], reads: Callable[[Part], AsyncGenerator[BatchItem, None]], requests: int
    ) -> None:
        self._parts, self._reads, self._requests = parts, reads, requests
        # Bounded: a caller who is slow holds up the reading, and so the service, instead of filling memory.
        self._came: asyncio.Queue[BatchItem | BaseException | None] = asyncio.Queue(LINES_AHEAD)
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0

    async def lines(self) -> AsyncGenerator[BatchItem, None]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        try:
            while self._fill():
                came = await self._came.get()
                if isinstance(came, BatchItem):
                    yield came
                elif came is None:
                    self._under_way -= 1
                else:
                    raise came
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> bool:
        """Start as many parts as there is room for; tell whether any is under way."""
        while self._under_way < self._requests and (part := next(self._parts, None)) is not None:
            self._under_way += 1
            task = asyncio.create_task(self._run(part))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self._under_way > 0

    async def _run(self, part: Part) -> None:
        try:
            async with aclosing(self._reads(part)) as items:
                async for item in items:
                    await self._came.put(item)
            await self._came.put(None)
        except Exception as error:
            await self._came.put(error)
