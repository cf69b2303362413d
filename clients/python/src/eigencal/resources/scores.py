"""Scoring one prompt, or any number of prompts in requests of at most 256."""

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sized,
)
from contextlib import aclosing, closing
from types import NoneType
from typing import Any, Unpack

import stamina
from pydantic import ValidationError

from eigencal._base_client import AsyncAPIClient, Call, SyncAPIClient, awaited, format_path, without_none
from eigencal._exceptions import APIConnectionError, InvalidSetupError, UnexpectedResponseError
from eigencal._progress import Progress, as_callback
from eigencal._requests import ScoreOptions
from eigencal._results import BatchItem
from eigencal.types import KeptScore, Score

# Limit of the service for items in one request; its limit for text is twice this one.
MAX_ITEMS, MAX_PART_CHARS = 256, 4 << 20
# Common options are not added to an item with one of these fields: the service refuses the combination.
_EXCLUDED_BY = {
    "num_samples": {"samples"},
    "sampling": {"samples"},
    "model": {"samples"},
    "deadline_ms": {"samples"},
}


def _score_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a score request. `return` is a keyword in Python, so the option is `return_`."""
    body = without_none(fields)
    if "return_" in body:
        body["return"] = body.pop("return_")
    return body


def item_body(item: object, options: Mapping[str, Any]) -> Any:
    """Return the body of an item of a batch: its own fields, and `options` for the others."""
    if isinstance(item, str):
        item = {"prompt": item}
    if not isinstance(item, Mapping):
        return item  # the service reports the error in the item's line
    common = {n: value for n, value in options.items() if not _EXCLUDED_BY.get(n, set()) & item.keys()}
    return _score_body({**common, **item})


class _Part:
    """The items of one request by their index among all items. Items with a response line are removed."""

    def __init__(self, items: dict[int, object]) -> None:
        self._waiting = items
        self._sent: list[int] = []

    def call(self) -> Call[None]:
        """Return the call for the items without a response line."""
        self._sent = list(self._waiting)
        return Call("POST", "/score/batch", NoneType, {"items": list(self._waiting.values())})

    def parse(self, line: bytes) -> BatchItem:
        """Return the item of a line, with its index among all items. Raises UnexpectedResponseError."""
        try:
            item = BatchItem.model_validate_json(line)
            # The service counts within the request. A second line for the same item violates the contract.
            index = self._sent[item.index]
            del self._waiting[index]
        except (ValidationError, LookupError):
            raise UnexpectedResponseError(
                "A line of POST /score/batch is not as the contract has it."
            ) from None
        return item.model_copy(update={"index": index})

    def end(self) -> None:
        """Raise APIConnectionError if items have no line."""
        if self._waiting:
            raise APIConnectionError("The answer ended before its last line.")


class _Cutter:
    """Groups items into requests within the limits of the service."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._index = self._num_chars = 0
        self._items: dict[int, object] = {}

    def add(self, item: object) -> Iterator[_Part]:
        """Add the next item; yield the part if it is full."""
        body = item_body(item, self._options)
        self._items[self._index] = body
        self._index += 1
        self._num_chars += len(json.dumps(body, default=repr))
        if len(self._items) == MAX_ITEMS or self._num_chars >= MAX_PART_CHARS:
            yield from self.rest()

    def rest(self) -> Iterator[_Part]:
        """Yield the remaining items."""
        if self._items:
            yield _Part(self._items)
            self._items, self._num_chars = {}, 0


def _parts(items: Iterable[object], options: Mapping[str, Any]) -> Iterator[_Part]:
    cutter = _Cutter(options)
    for item in items:
        yield from cutter.add(item)
    yield from cutter.rest()


async def _parts_of_stream(
    items: AsyncIterable[object], options: Mapping[str, Any]
) -> AsyncGenerator[_Part, None]:
    """Group the items of an asynchronous iterable."""
    cutter = _Cutter(options)
    async for item in items:
        for part in cutter.add(item):
            yield part
    for part in cutter.rest():
        yield part


async def _each(items: Iterable[object]) -> AsyncIterator[object]:
    for item in items:
        yield item


def _num_items(items: object) -> int | None:
    """Return the number of items, or None if unknown. Raises InvalidSetupError for a single text."""
    if isinstance(items, str | bytes):
        raise InvalidSetupError("`items` must be several prompts or requests, not one text.")
    return len(items) if isinstance(items, Sized) else None


class Scores(SyncAPIClient):
    """Calls that score."""

    def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Score how uncertain the LLM is about a prompt.

        The service samples several answers, or takes your `samples`, and returns the largest eigenvalue
        (`lambda_max`, 0..1, higher = more certain) and the entropy (nats, higher = less certain) of their
        density matrix. The eigenvalue measures how far the answers agree in meaning. With a suitable
        calibration, `probability_correct` is the probability that the answer is right.

        Args:
            prompt: A question. Alternatively give `messages` or `samples`.
            timeout_s: See `Client`.
            **options: The other fields of the request, see `ScoreOptions`.

        Raises:
            UnprocessableEntityError: The request is invalid; `errors` lists the reasons.
            ServerError: The service or its LLM still failed after all retries. `code` gives the cause, such
                as `deadline_exceeded` after `deadline_ms`.
            APIConnectionError: The service is unreachable, the connection broke, or `timeout_s` passed.
        """
        body = _score_body({"prompt": prompt, **options})
        if not body.keys() & {"prompt", "messages", "samples"}:
            raise InvalidSetupError("There is nothing to score: give a prompt, `messages` or `samples`.")
        return self._send(Call("POST", "/score", Score, body), timeout_s)

    def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Iterator[BatchItem]:
        """Score any number of prompts; results are yielded in the order in which they finish.

        An invalid item does not affect the others: its outcome has an `error` instead of a `result`. If the
        connection breaks, only the items without an outcome are sent again. Items are consumed lazily, so an
        infinite generator works, and memory does not grow with the number of items.

        Args:
            items: Prompts, or mappings with the fields of POST /score.
            progress: True: show progress on stderr; or a callback (done, total, what).
            timeout_s: Maximum time without a result in seconds; None: the client's.
            **options: Defaults for all items, see `ScoreOptions`.

        Yields:
            The outcome of each item; `index` is its position among all items.
        """
        total, report, done = _num_items(items), as_callback(progress), 0
        silence_s = self._limit_s(timeout_s)
        for part in _parts(items, options):
            with closing(self._read(part, silence_s)) as lines:
                for item in lines:
                    done += 1
                    report(done, total, "scored")
                    yield item
        if total is None:  # the total is known only now
            report(done, done, "scored")

    def _read(self, part: _Part, silence_s: float) -> Generator[BatchItem, None, None]:
        """Yield the outcomes of a part; after a broken connection, send the remaining items again."""
        for attempt in stamina.retry_context(**self._retry_policy(part.call())):
            with attempt:
                with closing(self._lines(part.call(), silence_s)) as lines:
                    yield from map(part.parse, filter(None, lines))  # empty lines are keep-alives
                part.end()

    def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Return a score by its id, for example of a chat with the mode `async`.

        Raises NotFoundError if the id is unknown, or the score has expired or belongs to another key.
        """
        return self._send(Call("GET", format_path("/scores/{}", score_id), KeptScore), timeout_s)


class AsyncScores(AsyncAPIClient):
    """The asynchronous version of `Scores`."""

    score = awaited(Scores.score)
    get_score = awaited(Scores.get_score)

    async def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]] | AsyncIterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> AsyncIterator[BatchItem]:
        """Score any number of prompts. See `Client.score_batch`; `items` may also be an async iterable."""
        total, report, done = _num_items(items), as_callback(progress), 0
        silence_s = self._limit_s(timeout_s)
        stream = items if isinstance(items, AsyncIterable) else _each(items)
        async with aclosing(_parts_of_stream(stream, options)) as parts:
            async for part in parts:
                async with aclosing(self._read(part, silence_s)) as lines:
                    async for item in lines:
                        done += 1
                        report(done, total, "scored")
                        yield item
        if total is None:
            report(done, done, "scored")

    async def _read(self, part: _Part, silence_s: float) -> AsyncGenerator[BatchItem, None]:
        async for attempt in stamina.retry_context(**self._retry_policy(part.call())):
            with attempt:
                async with aclosing(self._lines(part.call(), silence_s)) as lines:
                    async for line in lines:
                        if line:
                            yield part.parse(line)
                part.end()
