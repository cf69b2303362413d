"""Scoring."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Unpack

from eigencal._async.batches import AsyncMerged
from eigencal._async.sending import AsyncSender, lines_of
from eigencal._calls import scoring as calls
from eigencal._errors import EigencalError
from eigencal._models.batch import BatchItem
from eigencal._models.kept import KeptScore
from eigencal._models.requests import ScoreOptions
from eigencal._models.score import Score
from eigencal._progress import Progress, told
from eigencal._sending.batches import MOST_ITEMS, Part, length_of, parts_awaited


class AsyncScoring(AsyncSender):
    """Calls that score."""

    async def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Do as `Client.score` does, awaited."""
        return await self._send(calls.score(prompt, options), timeout_s)

    async def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]] | AsyncIterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        requests: int = 2,
        items_per_request: int = MOST_ITEMS,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> AsyncIterator[BatchItem]:
        """Do as `Client.score_batch` does, awaited.

        `items` may also be iterated with `async for`: a slow source then holds up nothing.
        """
        tell, total = told(progress), length_of(items)
        silence_s = self._setup.limit_s(timeout_s)

        def reads(part: Part) -> AsyncGenerator[BatchItem, None]:
            return self._part(part, silence_s)

        merged = AsyncMerged(parts_awaited(items, options, items_per_request), reads, max(1, requests))
        done = 0
        async with aclosing(merged.lines()) as lines:
            async for item in lines:
                done += 1
                tell(done, total, "scored")
                yield item
        if total is None:
            tell(done, done, "scored")  # now it is known

    async def _part(self, part: Part, silence_s: float) -> AsyncGenerator[BatchItem, None]:
        """Yield the lines of a part; after a break, of the items that have none yet."""
        attempts = self._setup.patient(part.call())
        while not part.done:
            try:
                async with self._stream(part.call(), silence_s) as response:
                    async for line in lines_of(response, silence_s):
                        if line:  # else a sign of life
                            item = part.item(line)
                            attempts.went_on()
                            yield item
                part.check_done()
            except EigencalError as error:
                await asyncio.sleep(attempts.wait_after(error))

    async def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Do as `Client.get_score` does, awaited."""
        return await self._send(calls.get_score(score_id), timeout_s)
