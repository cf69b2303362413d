"""Several requests of a batch under way at a time, each in a task; another takes the items."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from eigencal._models.batch import BatchItem
from eigencal._sending.batches import Part

LINES_AHEAD = 64  # that wait for a caller who is slower than the service


class AsyncMerged:
    """The lines of all parts as they come, of at most so many requests at a time."""

    def __init__(
        self,
        parts: AsyncGenerator[Part, None],
        reads: Callable[[Part], AsyncGenerator[BatchItem, None]],
        requests: int,
    ) -> None:
        self._parts, self._reads = parts, reads
        # Bounded: a caller who is slow holds up the reading, and so the service, instead of filling memory.
        self._came: asyncio.Queue[BatchItem | BaseException | None] = asyncio.Queue(LINES_AHEAD)
        self._room = asyncio.Semaphore(requests)

    async def lines(self) -> AsyncGenerator[BatchItem, None]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        sending = asyncio.create_task(self._send_all())
        try:
            while (came := await self._came.get()) is not None:
                if isinstance(came, BaseException):
                    raise came
                yield came
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self) -> None:
        """Send each part as soon as there is room; the end of all of them is None."""
        async with aclosing(self._parts), asyncio.TaskGroup() as under_way:
            while (part := await self._next_part()) is not None:
                under_way.create_task(self._run(part))
        await self._came.put(None)

    async def _next_part(self) -> Part | None:
        """Return the next part as soon as there is room, None after the last; errors go to the caller."""
        await self._room.acquire()
        await asyncio.sleep(0)  # what has come goes out before a source that may be slow is asked for more
        try:
            return await anext(self._parts, None)
        except Exception as error:
            await self._came.put(error)
            return None

    async def _run(self, part: Part) -> None:
        try:
            async with aclosing(self._reads(part)) as items:
                async for item in items:
                    await self._came.put(item)
        except Exception as error:
            await self._came.put(error)
        else:
            self._room.release()  # after an error nothing more is sent
