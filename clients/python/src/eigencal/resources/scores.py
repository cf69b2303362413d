"""Scoring: a prompt, or any number of them in requests of at most 256."""

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

# The service takes no more in one request, nor twice as much text.
MAX_ITEMS, MAX_PART_CHARS = 256, 4 << 20
# An option for all items is none for an item with one of these: the service would refuse the two together.
_EXCLUDED_BY = {
    "num_samples": {"samples", "effort"},
    "effort": {"samples", "num_samples"},
    "sampling": {"samples"},
    "model": {"samples"},
    "deadline_ms": {"samples"},
}


def _score_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score request as it is sent: `return_`, which Python needs, is `return` there."""
    body = without_none(fields)
    if "return_" in body:
        body["return"] = body.pop("return_")
    return body


def item_body(item: object, options: Mapping[str, Any]) -> Any:
    """Return an item of a batch as it is sent: with the options that it leaves open."""
    if isinstance(item, str):
        item = {"prompt": item}
    if not isinstance(item, Mapping):
        return item  # the service says in its line what is wrong with it
    common = {n: value for n, value in options.items() if not _EXCLUDED_BY.get(n, set()) & item.keys()}
    return _score_body({**common, **item})


class _Part:
    """The items of one request, by their index over all items; those that have a line are dropped."""

    def __init__(self, items: dict[int, object]) -> None:
        self._waiting = items
        self._sent: list[int] = []

    def call(self) -> Call[None]:
        """Return the call for the items that have no line yet: none is sent again that has one."""
        self._sent = list(self._waiting)
        return Call("POST", "/score/batch", NoneType, {"items": list(self._waiting.values())})

    def parse(self, line: bytes) -> BatchItem:
        """Return what a line says, its index counted over all. Raises UnexpectedResponseError."""
        try:
            item = BatchItem.model_validate_json(line)
            # The service counts within its request; a second line for one item is none of this contract.
            index = self._sent[item.index]
            del self._waiting[index]
        except (ValidationError, LookupError):
            raise UnexpectedResponseError(
                "A line of POST /score/batch is not as the contract has it."
            ) from None
        return item.model_copy(update={"index": index})

    def end(self) -> None:
        """Raise APIConnectionError where items have no line."""
        if self._waiting:
            raise APIConnectionError("The answer ended before its last line.")


class _Cutter:
    """Cuts items into parts that the service takes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._index = self._num_chars = 0
        self._some: dict[int, object] = {}

    def add(self, item: object) -> Iterator[_Part]:
        """Take the next item; yield the part that is full with it, if one is."""
        body = item_body(item, self._options)
        self._some[self._index] = body
        self._index += 1
        self._num_chars += len(json.dumps(body, default=repr))
        if len(self._some) == MAX_ITEMS or self._num_chars >= MAX_PART_CHARS:
            yield from self.rest()

    def rest(self) -> Iterator[_Part]:
        """Yield what is left."""
        if self._some:
            yield _Part(self._some)
            self._some, self._num_chars = {}, 0


def _parts(items: Iterable[object], options: Mapping[str, Any]) -> Iterator[_Part]:
    cutter = _Cutter(options)
    for item in items:
        yield from cutter.add(item)
    yield from cutter.rest()


async def _parts_of_stream(
    items: AsyncIterable[object], options: Mapping[str, Any]
) -> AsyncGenerator[_Part, None]:
    """Cut items that come with waits between them."""
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
    """Return how many items there are, where they can tell. Raises InvalidSetupError for one text."""
    if isinstance(items, str | bytes):
        raise InvalidSetupError("`items` must be several prompts or requests, not one text.")
    return len(items) if isinstance(items, Sized) else None


class Scores(SyncAPIClient):
    """Calls that score."""

    def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Score how uncertain the LLM is about a prompt.

        The service draws several answers, or takes your `samples`, and returns the largest eigenvalue
        (`lambda_max`, 0..1, higher = more certain) and the entropy (nats, higher = less certain) of their
        density matrix. The eigenvalue is how much of their meaning the answers share; the probability that
        the answer is right is `probability_correct`, where a calibration tells it.

        Args:
            prompt: A question; or leave it out and give `messages` or `samples`.
            timeout_s: See `Client`.
            **options: Every other field of the request, see `ScoreOptions`.

        Raises:
            UnprocessableEntityError: The request does not fit; `errors` lists what is wrong.
            ServerError: The service or its LLM has trouble, after all repeats; `code` says which, such as
                `deadline_exceeded` where `deadline_ms` struck before there was enough to score.
            APIConnectionError: The service is not there, broke off, or took longer than `timeout_s`.
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
        """Score any number of prompts; lines come in the order in which they are done.

        A bad item fails no other: its line has an `error` in place of a `result`. Where the connection
        breaks off, the items without a line are sent again, and no other. Items are taken as they are
        needed, so an endless generator is fine, and memory does not grow with their number.

        Args:
            items: Prompts, or requests as mappings of the fields of POST /score.
            progress: True: shown on stderr; or a callback (done, total, what).
            timeout_s: Seconds without a line after which to give up; None: those of the client.
            **options: For every item that leaves them open, see `ScoreOptions`.

        Yields:
            A line for each item; `index` says which, counted over all.
        """
        total, report, done = _num_items(items), as_callback(progress), 0
        silence_s = self._limit_s(timeout_s)
        for part in _parts(items, options):
            with closing(self._read(part, silence_s)) as lines:
                for item in lines:
                    done += 1
                    report(done, total, "scored")
                    yield item
        if total is None:  # now it is known
            report(done, done, "scored")

    def _read(self, part: _Part, silence_s: float) -> Generator[BatchItem, None, None]:
        """Yield the lines of a part; after a break, of the items that have none yet."""
        for attempt in stamina.retry_context(**self._retry_policy(part.call())):
            with attempt:
                with closing(self._lines(part.call(), silence_s)) as lines:
                    yield from map(part.parse, filter(None, lines))  # an empty one is a sign of life
                part.end()

    def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Return a score by its id, as for an answer of the drop-in whose score came later.

        Raises NotFoundError where none has this id, it is no longer kept, or was made under another key.
        """
        return self._send(Call("GET", format_path("/scores/{}", score_id), KeptScore), timeout_s)


class AsyncScores(AsyncAPIClient):
    """The same, awaited."""

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
        """Do as `Client.score_batch` does; `items` may also be iterated with `async for`."""
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
