"""Asks the questions that have no line yet, so many at a time."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import eigencal
from eigencal import AsyncClient, EigencalError
from eigencal.cli.bulk.patience import Attempts, Ends, Patience
from eigencal.cli.bulk.questions import Question
from eigencal.cli.bulk.results import Results
from eigencal.cli.output import plain


async def answer_all(
    client: AsyncClient,
    questions: Iterator[Question],
    results: Results,
    *,
    patience: Patience,
    concurrency: int,
    done: Callable[[], object],
) -> None:
    """Ask every question and write its line; lines come in the order in which they are done.

    Args:
        client: A client that repeats no call itself.
        questions: Those to ask; they are taken as there is room.
        results: Where the lines go.
        patience: How long the service may be away.
        concurrency: Questions under way at a time.
        done: Is told of each line.

    Raises:
        EigencalError: the run is over: the service was away for too long, or refuses the key.
    """

    async def work() -> None:
        # All workers take from one iterator: between taking and asking nothing is awaited.
        for question in questions:
            results.add(question, await _outcome(client, question, patience))
            done()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _outcome(client: AsyncClient, question: Question, patience: Patience) -> dict[str, Any]:
    """Return what became of a question: its `result` or `error`."""
    attempts = Attempts(patience)
    while True:
        try:
            score = await client.score(**question.request)
        except EigencalError as error:
            try:
                wait_s = attempts.wait_s(error)
            except Ends:
                return {"error": problem(error)}
            await asyncio.sleep(wait_s)
        else:
            patience.answered()
            return {"result": plain(score)}


def problem(error: EigencalError) -> dict[str, Any]:
    """Return an error as a line has it: as the service told it, or in its shape."""
    if isinstance(error, eigencal.ApiError) and error.problem:
        return error.problem
    told = {"code": error.code, "status": error.status, "detail": error.detail, "retryable": error.retryable}
    return {**told, "request_id": error.request_id}
