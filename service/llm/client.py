"""Calls to an LLM server: connections, retries, bounds. One connection for each call, no common pool.

A pool that many calls share cannot be trusted once calls are cancelled: one that is cancelled while it waits
for a connection, or in the moment in which one has been made, leaves a connection behind that counts as taken
for ever. Here a call has a client of its own; if it does not end well, all that its client holds is closed.
"""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import httpx
import stamina

from service.errors import DeadlineExceeded, EigencalError, LLMBadResponse, LLMUnavailable
from service.llm.admission import AdmissionQueue, Permit, QueuedRequest
from service.llm.wire import (
    LIST_BYTES,
    REFUSAL_BYTES,
    Completion,
    StreamCollector,
    bad_json,
    error_in_stream,
    error_of,
    lines,
    max_bytes_of,
    parse_completion,
    read,
    read_beginning,
)
from service.remote import KEEPALIVE_S, TRY_AGAIN, retry_after_s, tls

T = TypeVar("T")
CLOSING_S = 5.0  # after this a call that was cancelled and still has not ended is cancelled again


class Connections:
    """Lends clients made by `make`; after a whole answer a client is kept for another call for `kept_s`."""

    def __init__(self, make: Callable[[], httpx.AsyncClient], *, kept_s: float) -> None:
        self._make = make
        self._kept_s = kept_s
        self._idle: dict[httpx.AsyncClient, asyncio.TimerHandle] = {}
        self._lent: set[httpx.AsyncClient] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def num_lent(self) -> int:
        """Return how many are lent."""
        return len(self._lent)

    @property
    def num_idle(self) -> int:
        """Return how many are kept idle."""
        return len(self._idle)

    def take(self, *, fresh: bool = False) -> httpx.AsyncClient:
        """Return a client for one call, to be given back. `fresh`: one that has made no connection yet."""
        if fresh or not self._idle:
            client = self._make()
        else:
            client, timer = self._idle.popitem()  # the last one used: the others may expire
            timer.cancel()
        self._lent.add(client)
        return client

    async def give_back(self, client: httpx.AsyncClient, *, reusable: bool) -> None:
        """Keep the client for another call, or close it: half an answer in a connection serves no other."""
        self._lent.discard(client)
        if reusable:
            loop = asyncio.get_running_loop()
            self._idle[client] = loop.call_later(self._kept_s, self._expire, client)
        else:
            await client.aclose()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client for one call; it is closed if the block raises or is cancelled."""
        client, reusable = self.take(), False
        try:
            yield client
            reusable = True
        finally:
            await self.give_back(client, reusable=reusable)

    async def close(self) -> None:
        """Close all; calls under way fail."""
        for timer in self._idle.values():
            timer.cancel()
        clients = [*self._idle, *self._lent]
        self._idle.clear()
        await asyncio.gather(*self._closing, *(client.aclose() for client in clients))

    def _expire(self, client: httpx.AsyncClient) -> None:
        del self._idle[client]
        closing = asyncio.create_task(client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def until(
    end: float, work: Coroutine[Any, Any, T], ended: Callable[[bool], object] = lambda _: None
) -> T:
    """Return what `work` returns; TimeoutError at `end` (loop's clock), CancelledError when cancelled before.

    The work has a task of its own, and whoever stops waiting cancels it once, however often he is cancelled
    himself: a second cancellation would break off the closing of a connection. He does not wait for it:
    `ended` is called when it is really over, with whether it returned.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: ended(not done.cancelled() and done.exception() is None))
    try:
        async with asyncio.timeout_at(end):
            return await asyncio.shield(task)
    except (asyncio.CancelledError, TimeoutError):
        _cancel(task)
        raise


def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel, and again as long as it has not ended."""
    if not task.done():
        task.cancel()
        task.get_loop().call_later(CLOSING_S, _cancel, task)


# HTTP to an OpenAI-compatible server: slots, retries, deadlines, streams. httpx stays behind this module.

BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0


class _TransientError(Exception):
    """A signal to the retry loop: another attempt may cure it; `error` is what is raised when none does."""

    def __init__(self, error: EigencalError) -> None:
        super().__init__(error.detail)
        self.error = error


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call brought, whether all of it, and how long it waited for a slot."""

    completion: Completion
    missing_reason: Literal["deadline", "error"] | None
    queued_s: float


class CompletionClient:
    """One server, at most `max_concurrency` calls at once; the rest wait in order (see `AdmissionQueue`).

    `timeout_s`: the longest that a request waits for its answers: in line, for a connection, for other tries.
    `max_waiting`: calls in line past which a request is refused.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 120.0,
        connect_timeout_s: float = 5.0,
        max_retries: int = 3,
        max_concurrency: int = 64,
        max_waiting: int = 16,
        proxies_from_env: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = api_base(base_url)
        self._timeout_s = timeout_s
        self._key = api_key
        self._attempts = max_retries + 1
        self._queue = AdmissionQueue(max_concurrency, max_waiting)
        make = partial(
            httpx.AsyncClient,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            # The request bounds a call as a whole: a model may be silent for long before its first byte.
            timeout=httpx.Timeout(None, connect=connect_timeout_s),
            verify=tls(),  # one for all: it takes 20 ms to make
            transport=transport,
            trust_env=proxies_from_env,
        )
        self._connections = Connections(make, kept_s=KEEPALIVE_S)

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._connections.close()

    @contextmanager
    def admitted(
        self, *, deadline_s: float | None = None, calls: int = 1, live: bool = True
    ) -> Iterator[QueuedRequest]:
        """Admit a request that takes so many calls at first; its time begins now. Raises Overloaded.

        `live`: somebody waits for it; what is not (a job's) is never refused.
        """
        now = asyncio.get_running_loop().time()
        has_deadline = deadline_s is not None and deadline_s <= self._timeout_s
        ends = now + min(self._timeout_s, math.inf if deadline_s is None else deadline_s)
        queued = QueuedRequest(ends, has_deadline, live, calls)
        with self._queue.admitted(queued):
            yield queued

    async def complete(self, path: str, body: dict[str, Any], queued: QueuedRequest) -> CallResult:
        """Send one call of an admitted request; streamed (and then maybe partial) when the body says so.

        Raises as the port's `generate`.
        """
        collector = StreamCollector()
        asked = asyncio.get_running_loop().time()
        try:
            permit = await self._queue.permit(queued)
        except TimeoutError:
            raise queued.expired() from None
        completion, failure = await self._completed(path, body, collector, queued, permit)
        if completion is None or not completion.choices:
            raise failure or LLMBadResponse("The LLM server's answer holds no choices.")
        return CallResult(completion, _missing_reason(failure), permit.begun - asked)

    async def _completed(
        self,
        path: str,
        body: dict[str, Any],
        collector: StreamCollector,
        queued: QueuedRequest,
        permit: Permit,
    ) -> tuple[Completion, EigencalError | None]:
        """Return what came, and what kept the rest from coming. The slot is held until all is closed."""

        def ended(whole: bool) -> None:
            permit.release(answered=whole or bool(collector.completion().choices))

        try:
            work = self._with_retries(path, body, collector, queued.ends)
            return await until(queued.ends, work, ended), None
        except TimeoutError:
            return collector.completion(), queued.expired()
        except httpx.RequestError as error:
            return collector.completion(), _broken(error)
        except EigencalError as error:
            return collector.completion(), error

    async def get(self, url: str, timeout_s: float) -> tuple[int, Any]:
        """Return status and JSON (None when it is none) of a GET, which waits for no slot.

        Raises LLMUnavailable.
        """
        try:
            return await until(asyncio.get_running_loop().time() + timeout_s, self._get(url))
        except (httpx.HTTPError, TimeoutError):
            raise LLMUnavailable("The LLM server cannot be reached.") from None
        except LLMBadResponse as error:
            raise LLMUnavailable(error.detail) from None

    async def _get(self, url: str) -> tuple[int, Any]:
        async with self._connections.one() as http, http.stream("GET", url) as response:
            content = await read(response, LIST_BYTES)
        try:
            return response.status_code, json.loads(content)
        except (ValueError, RecursionError):
            return response.status_code, None

    async def _with_retries(
        self, path: str, body: dict[str, Any], collector: StreamCollector, ends: float
    ) -> Completion:
        clock = asyncio.get_running_loop().time
        failures = 0

        def delay_s(error: Exception) -> float | bool:
            nonlocal failures
            if not isinstance(error, _TransientError):
                return False
            delay = _backoff_s(failures, error.error.retry_after_s)
            failures += 1
            # Nobody is there to read what begins after the end; a longer wait is for the caller to take.
            return delay if clock() + delay < ends and delay <= MAX_BACKOFF_S else False

        try:
            async for attempt in stamina.retry_context(on=delay_s, attempts=self._attempts, timeout=None):
                with attempt:
                    return await self._attempt(path, body, collector)
        except _TransientError as failure:
            raise failure.error from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(self, path: str, body: dict[str, Any], collector: StreamCollector) -> Completion:
        async with self._post(path, body) as response:
            if response.status_code != 200:
                raise await _refusal(response, self._key)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return await _read_stream(response, body, collector, self._key)
            try:
                payload = json.loads(await read(response, max_bytes_of(body)))
            except (ValueError, RecursionError):
                raise bad_json() from None
            return parse_completion(payload)

    @asynccontextmanager
    async def _post(self, path: str, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        try:
            async with (
                self._connections.one() as http,
                http.stream("POST", self.base_url + path, json=body) as response,
            ):
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise _TransientError(LLMUnavailable("The LLM server cannot be reached.")) from None


async def _read_stream(
    response: httpx.Response, body: dict[str, Any], collector: StreamCollector, key: str
) -> Completion:
    async for line in lines(response, max_bytes_of(body)):
        if (error := collector.feed(line)) is not None:
            raise error_in_stream(error, key)
    if not collector.done:  # the connection ended without [DONE]: what had not finished is cut
        raise LLMUnavailable("The LLM server broke off its answer.")
    completion = collector.completion()
    if not completion.choices:
        raise LLMBadResponse("The LLM server's answer holds no choices.")
    return completion


async def _refusal(response: httpx.Response, key: str) -> Exception:
    content = await read_beginning(response, REFUSAL_BYTES)
    wait_s = retry_after_s(response)
    error = error_of(response.status_code, content, key, retry_after_s=wait_s)
    return _TransientError(error) if response.status_code in TRY_AGAIN else error


def _missing_reason(failure: EigencalError | None) -> Literal["deadline", "error"] | None:
    if failure is None:
        return None
    return "deadline" if isinstance(failure, DeadlineExceeded) else "error"


def _broken(error: httpx.RequestError) -> EigencalError:
    return LLMUnavailable("The LLM server broke off its answer.")


def _backoff_s(failures: int, retry_after_s: float | None) -> float:
    """Return what the server asked for, or an exponential backoff with full jitter."""
    if retry_after_s is not None:
        return retry_after_s
    return min(MAX_BACKOFF_S, BACKOFF_S * 2.0**failures) * random.uniform(0.5, 1.0)


def api_base(url: str) -> str:
    """Return the URL without trailing slash, with /v1 when it names a bare host; raises ValueError."""
    try:
        parsed, url = httpx.URL(url), url.rstrip("/")
    except httpx.InvalidURL as error:
        raise ValueError(f"The LLM server's URL cannot be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The LLM server's URL must start with http:// or https://.")
    return url if parsed.path.strip("/") else f"{url}/v1"
