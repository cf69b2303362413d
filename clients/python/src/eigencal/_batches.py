"""A batch in parts of at most 256 items, several of which are under way at a time."""

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sized
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from typing import Any

import httpx
from pydantic import ValidationError

from eigencal._base_client import Call, parse_nothing, without_none
from eigencal._exceptions import InvalidSetupError, UnexpectedResponseError
from eigencal._results import BatchItem

BATCH: Call[None] = Call("POST", "/score/batch", parse_nothing)
MAX_ITEMS = 256  # the service takes no more in one request
LINES_AHEAD = 64  # that wait for a caller who is slower than the service
STOP_POLL_S = 0.2
CLOSE_TIMEOUT_S = 5.0
# An option for all items is none for an item with one of these: the service would refuse the two together.
_EXCLUDED_BY = {
    "num_samples": {"samples", "effort"},
    "effort": {"samples", "num_samples"},
    "sampling": {"samples"},
    "model": {"samples"},
    "deadline_ms": {"samples"},
}


def score_body(fields: Mapping[str, Any]) -> dict[str, Any]:
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
    return score_body({**common, **item})


class Part:
    """The items of one request, by their index over all items; those that have a line are dropped."""

    def __init__(self, items: dict[int, object]) -> None:
        self._waiting = items
        self._sent: list[int] = []

    def __len__(self) -> int:
        """Return how many items have no line yet."""
        return len(self._waiting)

    def call(self) -> Call[None]:
        """Return the call for the items that have no line yet: none is sent again that has one."""
        self._sent = list(self._waiting)
        return replace(BATCH, body={"items": list(self._waiting.values())})

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


def parts(items: Iterable[object], options: Mapping[str, Any], size: int) -> Iterator[Part]:
    """Cut any number of items into parts; no more of them are taken than a part holds."""
    _check(items, size)
    if not isinstance(items, Iterable):
        raise InvalidSetupError(
            f"`items` cannot be iterated: {type(items).__name__}. AsyncClient takes async ones."
        )
    numbered = ((index, item_body(item, options)) for index, item in enumerate(items))
    while some := dict(islice(numbered, size)):
        yield Part(some)


async def async_parts(
    items: Iterable[object] | AsyncIterable[object], options: Mapping[str, Any], size: int
) -> AsyncGenerator[Part, None]:
    """Do as `parts` does, for items that may also come one by one with waits between them."""
    if not isinstance(items, AsyncIterable):
        for part in parts(items, options, size):
            yield part
        return
    _check(items, size)
    some: dict[int, object] = {}
    index = 0
    async for item in items:
        some[index] = item_body(item, options)
        index += 1
        if len(some) == size:
            yield Part(some)
            some = {}
    if some:
        yield Part(some)


def _check(items: object, size: int) -> None:
    if isinstance(items, str | bytes):
        raise InvalidSetupError("`items` must be several prompts or requests, not one text.")
    if not isinstance(size, int) or not 1 <= size <= MAX_ITEMS:
        raise InvalidSetupError(f"`items_per_request` must be a whole number from 1 to {MAX_ITEMS}.")


def length(items: object) -> int | None:
    """Return how many items there are, where that is known beforehand."""
    return len(items) if isinstance(items, Sized) else None


# Yields the lines of a part until the event is set; calls back with the response that it reads.
PartReader = Callable[[Part, threading.Event, Callable[[httpx.Response], None]], Iterator[BatchItem]]


class ThreadedBatch:
    """The lines of all parts as they come: each request in a thread, items taken in the caller's own."""

    def __init__(self, parts: Iterator[Part], read: PartReader, requests: int) -> None:
        self._parts, self._read, self._requests = parts, read, requests
        # Bounded: a caller who is slow holds up the reading, and so the service, instead of filling memory.
        self._queue: queue.Queue[BatchItem | BaseException | None] = queue.Queue(LINES_AHEAD)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._active = 0
        self._responses: dict[int, httpx.Response] = {}

    def lines(self) -> Iterator[BatchItem]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        try:
            while (started := self._start_one()) or self._active:
                # What has come goes out before a source that may be slow is asked for more.
                for _ in range(self._queue.qsize() if started else 1):
                    outcome = self._queue.get()
                    if isinstance(outcome, BatchItem):
                        yield outcome
                    elif outcome is None:
                        self._active -= 1
                    else:
                        raise outcome
        finally:
            self._break_off()

    def _start_one(self) -> bool:
        """Start the next part, if there is room and one is left; tell whether it was started."""
        if self._active >= self._requests or (part := next(self._parts, None)) is None:
            return False
        self._active += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # Daemons: one that waits for a service that has died does not keep the program from ending.
        thread = threading.Thread(target=self._run, args=(part,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return True

    def _run(self, part: Part) -> None:
        try:
            for item in self._read(part, self._stop, self._opened):
                self._put(item)
            self._put(None)
        except Exception as error:
            self._put(error)
        finally:
            self._responses.pop(threading.get_ident(), None)

    def _opened(self, response: httpx.Response) -> None:
        self._responses[threading.get_ident()] = response
        if self._stop.is_set():  # it came after the caller had gone
            _hang_up(response)

    def _put(self, outcome: BatchItem | BaseException | None) -> None:
        """Hand over to the caller, as soon as there is room; nothing any more once it has gone."""
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(outcome, timeout=STOP_POLL_S)
                return

    def _break_off(self) -> None:
        self._stop.set()
        responses = dict(self._responses)
        for response in responses.values():
            _hang_up(response)
        for thread in self._threads:
            # One that has no answer yet cannot be woken: it hangs up as soon as it gets one.
            if thread.ident in responses:
                thread.join(CLOSE_TIMEOUT_S)


def _hang_up(response: httpx.Response) -> None:
    """Wake a thread that waits for this response: closing a socket elsewhere would let it wait on."""
    stream = response.extensions.get("network_stream")
    connected = stream.get_extra_info("socket") if stream is not None else None
    if connected is not None and not response.is_closed:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


class AsyncBatch:
    """The lines of all parts as they come: each request in a task; another takes the items."""

    def __init__(
        self,
        parts: AsyncGenerator[Part, None],
        read: Callable[[Part], AsyncGenerator[BatchItem, None]],
        requests: int,
    ) -> None:
        self._parts, self._read = parts, read
        self._queue: asyncio.Queue[BatchItem | BaseException | None] = asyncio.Queue(LINES_AHEAD)
        self._permits = asyncio.Semaphore(requests)

    async def lines(self) -> AsyncGenerator[BatchItem, None]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        sending = asyncio.create_task(self._send_all())
        try:
            while (outcome := await self._queue.get()) is not None:
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self) -> None:
        """Send each part as soon as there is room; the end of all of them is None."""
        async with aclosing(self._parts), asyncio.TaskGroup() as requests:
            while (part := await self._next_part()) is not None:
                requests.create_task(self._run(part))
        await self._queue.put(None)

    async def _next_part(self) -> Part | None:
        """Return the next part as soon as there is room, None after the last; errors go to the caller."""
        await self._permits.acquire()
        await asyncio.sleep(0)  # what has come goes out before a source that may be slow is asked for more
        try:
            return await anext(self._parts, None)
        except Exception as error:
            await self._queue.put(error)
            return None

    async def _run(self, part: Part) -> None:
        try:
            async with aclosing(self._read(part)) as items:
                async for item in items:
                    await self._queue.put(item)
        except Exception as error:
            await self._queue.put(error)
        else:
            self._permits.release()  # after an error nothing more is sent
