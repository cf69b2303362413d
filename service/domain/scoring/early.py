"""Embedding the question and answers while others are drawn: after the last one little is left to embed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from service.domain.errors import EigencalError
from service.domain.outcomes import texts_to_embed
from service.domain.ports import Embedder
from service.domain.scoring.model import ScoreCommand

# What makes a call of the embedder worth it. A text alone costs a model two to three times as much processor
# time as one of many; five short ones, or a long one, cost a quarter more than they would among twenty.
ENOUGH_TEXTS = 5
ENOUGH_CHARACTERS = 400


@asynccontextmanager
async def embedding_early(
    embedder: Embedder, command: ScoreCommand, question: str | None = None
) -> AsyncIterator[ScoreCommand]:
    """Yield the command such that its answers are embedded as the LLM tells them, until the block ends.

    A question is embedded before any answer. The vectors go to where the embedder keeps them. Which texts
    count, and that their vectors are of one embedder, is decided as ever by the call for all of them after
    the last answer.
    """
    if command.generation is None:
        yield command
        return
    early = _Early(embedder)
    if question is not None:
        early.begin_with(question)
    try:
        yield replace(command, generation=replace(command.generation, on_answer=early.hear))
    finally:
        await early.stop()


class _Early:
    """The distinct answers heard, those not yet handed to the embedder, and the task that hands them on."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._heard: set[str] = set()
        self._left: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def begin_with(self, question: str) -> None:
        """Have the question embedded, however short it is: the LLM takes longer."""
        self._heard.add(question)
        self._left.append(question)
        self._task = asyncio.create_task(self._embed())

    def hear(self, answer: str) -> None:
        """Take an answer that has just been finished."""
        if self._failed or answer in self._heard:
            return
        self._heard.add(answer)
        self._left += texts_to_embed([answer], self._embedder.empty_answers)
        if self._is_enough() and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._embed())

    async def stop(self) -> None:
        """End what is under way; nothing runs on after it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _is_enough(self) -> bool:
        return len(self._left) >= ENOUGH_TEXTS or sum(map(len, self._left)) >= ENOUGH_CHARACTERS

    async def _embed(self) -> None:
        try:
            more = True
            while more:
                texts, self._left = self._left, []
                await self._embedder.embed_ahead(texts)
                more = self._is_enough()
        except EigencalError:
            # Told to nobody: the call for all answers meets it again, unless it has passed by then.
            self._failed = True
