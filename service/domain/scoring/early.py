"""Embedding answers while others are still drawn, so that after the last one little is left to embed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from service.domain.errors import EigencalError
from service.domain.outcomes import texts_to_embed
from service.domain.ports import Embedder
from service.domain.scoring.model import ScoreCommand


@asynccontextmanager
async def embedding_early(embedder: Embedder, command: ScoreCommand) -> AsyncIterator[ScoreCommand]:
    """Yield the command such that its answers are embedded as the LLM tells them, until the block ends.

    The vectors go to where the embedder keeps them. Which texts count, and that their vectors are of one
    embedder, is decided as ever by the call for all of them after the last answer.
    """
    if command.generation is None:
        yield command
        return
    early = _Early(embedder)
    try:
        yield replace(command, generation=replace(command.generation, on_answer=early.hear))
    finally:
        await early.stop()


class _Early:
    """The answers heard and not yet handed to the embedder, and the task that does it, one call at a time."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._heard: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def hear(self, answer: str) -> None:
        """Take an answer that has just been finished."""
        if self._failed:
            return
        self._heard += texts_to_embed([answer], embeds_empty=self._embedder.embeds_empty)
        if self._heard and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._embed())

    async def stop(self) -> None:
        """End what is under way; nothing runs on after it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _embed(self) -> None:
        try:
            while self._heard:
                texts, self._heard = self._heard, []
                await self._embedder.embed_ahead(texts)
        except EigencalError:
            # Told to nobody: the call for all answers meets it again, unless it has passed by then.
            self._failed = True
