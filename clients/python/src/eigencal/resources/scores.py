"""Scoring."""

import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, closing
from typing import Any, Unpack

import httpx
import stamina

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, format_path, json_parser
from eigencal._batches import (
    BATCH,
    MAX_ITEMS,
    AsyncBatch,
    Part,
    ThreadedBatch,
    async_parts,
    length,
    parts,
    score_body,
)
from eigencal._exceptions import APIConnectionError, EigencalError, InvalidSetupError
from eigencal._models import KeptScore, Score
from eigencal._progress import Progress, as_callback
from eigencal._requests import ScoreOptions
from eigencal._results import BatchItem

ENDED_EARLY = "The answer ended before its first line."

_parse_score = json_parser(Score)
_parse_kept = json_parser(KeptScore)


def _score_call(prompt: str | None, options: ScoreOptions) -> Call[Score]:
    body = score_body({"prompt": prompt, **options})
    if not body.keys() & {"prompt", "messages", "samples"}:
        raise InvalidSetupError("There is nothing to score: give a prompt, `messages` or `samples`.")
    return Call("POST", "/score", _parse_score, body)


def _get_score_call(score_id: str) -> Call[KeptScore]:
    return Call("GET", format_path("/scores/{id}", id=score_id), _parse_kept)


class Scores(SyncAPIClient):
    """Calls that score."""

    def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Score how uncertain the LLM is about a prompt.

        The service draws several answers, or takes your `samples`, and returns the largest eigenvalue
        (`lambda_max`, 0..1, higher = more certain) and the entropy (nats, higher = less certain) of their
        density matrix. The eigenvalue is how much of their meaning the answers share, not the probability
        that the answer is right: that is `probability_correct`, where a calibration tells it. With
        `effort="none"` nothing is drawn: a `candidate` is judged by its `candidate_logprob`, and the values
        of the spectrum are None.

        Args:
            prompt: A question; or leave it out and give `messages` or `samples`.
            timeout_s: See `Client`.
            **options: Every other field of the request, see `ScoreOptions`.

        Returns:
            The score.

        Raises:
            InvalidSetupError: There is nothing to score.
            UnprocessableEntityError: The request does not fit; `errors` lists what is wrong.
            AuthenticationError: The service wants a key, or another.
            ServerError: The service or its LLM has trouble, after all repeats; `code` says which, such as
                `deadline_exceeded` where `deadline_ms` struck before there was enough to score.
            APIConnectionError: The service is not there, broke off, or took longer than `timeout_s`.
        """
        return self._send(_score_call(prompt, options), timeout_s)

    def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        requests: int = 2,
        items_per_request: int = MAX_ITEMS,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Iterator[BatchItem]:
        """Score any number of prompts; lines come in the order in which they are done.

        A bad item fails no other: its line has an `error` in place of a `result`. Where the connection
        breaks off, the items without a line are sent again, and no other. Items are taken as they are
        needed, so an endless generator is fine, and memory does not grow with their number.

        Args:
            items: Prompts, or requests as mappings of the fields of POST /score.
            progress: True: shown on stderr; or a callback (done, total, what).
            requests: Requests under way at a time.
            items_per_request: Items of one request, 1..256. Fewer come sooner from a slow source, which is
                read in your own thread: lines that come while it makes the next item are yielded after that.
            timeout_s: Seconds without a line after which to give up; None: those of the client.
            **options: For every item that leaves them open, see `ScoreOptions`.

        Yields:
            A line for each item; `index` says which, counted over all.

        Raises:
            UnprocessableEntityError: A request as a whole was refused; else as for `score`.
        """
        report, total = as_callback(progress), length(items)
        silence_s = self._limit_s(timeout_s)

        def read(
            part: Part, stop: threading.Event, opened: Callable[[httpx.Response], None]
        ) -> Iterator[BatchItem]:
            return self._read_part(part, silence_s, stop, opened)

        batch = ThreadedBatch(parts(items, options, items_per_request), read, max(1, requests))
        done = 0
        for done, item in enumerate(batch.lines(), 1):
            report(done, total, "scored")
            yield item
        if total is None:
            report(done, done, "scored")  # now it is known

    def _read_part(
        self,
        part: Part,
        silence_s: float,
        stop: threading.Event,
        opened: Callable[[httpx.Response], None],
    ) -> Iterator[BatchItem]:
        """Yield the lines of a part; after a break, of the items that have none yet."""
        while part:
            num_left = len(part)
            for attempt in stamina.retry_context(**self._retry_policy(BATCH)):
                if stop.is_set():
                    return
                with attempt:
                    try:
                        with closing(self._lines(part.call(), silence_s, opened)) as lines:
                            yield from (part.parse(line) for line in lines if line)  # else a sign of life
                        if len(part) == num_left:
                            raise APIConnectionError(ENDED_EARLY)
                    except EigencalError as error:
                        # If something has come since it was begun, whatever was wrong then is over.
                        if len(part) == num_left or not BATCH.may_repeat(error):
                            raise
                    break

    def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Return a score by its id, as for an answer of the drop-in whose score came later.

        Args:
            score_id: Id of the score.
            timeout_s: See `Client`.

        Raises:
            NotFoundError: No score has this id, it is no longer kept, or it was made under another key.
        """
        return self._send(_get_score_call(score_id), timeout_s)


class AsyncScores(AsyncAPIClient):
    """Calls that score."""

    async def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Do as `Client.score` does, awaited."""
        return await self._send(_score_call(prompt, options), timeout_s)

    async def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]] | AsyncIterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        requests: int = 2,
        items_per_request: int = MAX_ITEMS,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> AsyncIterator[BatchItem]:
        """Do as `Client.score_batch` does, awaited.

        `items` may also be iterated with `async for`: a slow source then holds up nothing.
        """
        report, total = as_callback(progress), length(items)
        silence_s = self._limit_s(timeout_s)

        def read(part: Part) -> AsyncGenerator[BatchItem, None]:
            return self._read_part(part, silence_s)

        batch = AsyncBatch(async_parts(items, options, items_per_request), read, max(1, requests))
        done = 0
        async with aclosing(batch.lines()) as lines:
            async for item in lines:
                done += 1
                report(done, total, "scored")
                yield item
        if total is None:
            report(done, done, "scored")  # now it is known

    async def _read_part(self, part: Part, silence_s: float) -> AsyncGenerator[BatchItem, None]:
        """Yield the lines of a part; after a break, of the items that have none yet."""
        while part:
            num_left = len(part)
            async for attempt in stamina.retry_context(**self._retry_policy(BATCH)):
                with attempt:
                    try:
                        async with aclosing(self._lines(part.call(), silence_s)) as lines:
                            async for line in lines:
                                if line:  # else a sign of life
                                    yield part.parse(line)
                        if len(part) == num_left:
                            raise APIConnectionError(ENDED_EARLY)
                    except EigencalError as error:
                        # If something has come since it was begun, whatever was wrong then is over.
                        if len(part) == num_left or not BATCH.may_repeat(error):
                            raise
                    break

    async def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Do as `Client.get_score` does, awaited."""
        return await self._send(_get_score_call(score_id), timeout_s)
