"""What the clients of LLM and embedding servers share: connections, certificates, retries, health checks."""

import asyncio
import itertools
import math
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from functools import cache
from http import HTTPStatus
from typing import TypeVar

import httpx

from service.errors import EigencalError

T = TypeVar("T")
KEEPALIVE_S = 3.0  # below the 5 s after which uvicorn closes: an idle connection is never taken as it dies
# What may pass by itself. Not 400, which comes again; not 500, which may have been caused by the request.
TRY_AGAIN = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
MAX_RETRY_AFTER_S = 60.0  # a server may ask for more, but may be well again long before
BACKOFF_S = 0.2  # before the second attempt, and twice as long before each further one
MAX_WAIT_S = 5.0
CHECK_KEPT_S = 1.0


@cache
def tls() -> ssl.SSLContext:
    """Return what httpx checks certificates with, SSL_CERT_FILE or SSL_CERT_DIR heeded; made once."""
    return httpx.create_ssl_context(trust_env=True)


def retry_after_s(response: httpx.Response) -> float | None:
    """Return Retry-After in seconds, from 0 to a minute; None where it is missing, or a date (rare)."""
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    # "nan" and "inf" are numbers to Python.
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None


class PassingError(Exception):
    """A failure that another attempt may cure; `error` is raised when none does."""

    def __init__(self, error: EigencalError) -> None:
        super().__init__(error.detail)
        self.error = error


async def with_retries(attempt: Callable[[], Awaitable[T]], *, max_retries: int, ends: float) -> T:
    """Return what `attempt` returns, tried again after a PassingError. `ends`: on the loop's clock."""
    for number in itertools.count():
        try:
            return await attempt()
        except PassingError as failure:
            wait_s = failure.error.retry_after_s
            if wait_s is None:
                wait_s = BACKOFF_S * 2**number * random.uniform(0.5, 1.0)
            # Nobody is there to read what begins after the end; a longer wait is for the caller to take.
            left_s = ends - asyncio.get_running_loop().time()
            if number == max_retries or wait_s > min(MAX_WAIT_S, left_s):
                raise failure.error from None
        await asyncio.sleep(wait_s)
    raise AssertionError("unreachable: the last attempt returns or raises")


class SharedCheck:
    """Runs `ask` one at a time, and once in `CHECK_KEPT_S`: health checks may be asked for without a key.

    `ask` returns when all is well, within its own time, and raises the EigencalError that says what is not.
    A caller that leaves does not cancel it.
    """

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._latest: asyncio.Task[EigencalError | None] | None = None
        self._ended_at = float("-inf")

    async def __call__(self) -> None:
        """Return when all is well; raises what `ask` raised."""
        age_s = asyncio.get_running_loop().time() - self._ended_at
        if self._latest is None or (self._latest.done() and age_s > CHECK_KEPT_S):
            self._latest = asyncio.create_task(self._run())
        if (failure := await asyncio.shield(self._latest)) is not None:
            raise copy(failure)  # many may raise it: each with a traceback of its own

    async def _run(self) -> EigencalError | None:
        try:
            await self._ask()
        except EigencalError as failure:
            return failure
        finally:
            self._ended_at = asyncio.get_running_loop().time()
        return None


class Connections:
    """Lends clients made by `make`, one for each call; after a whole answer a client is kept for another.

    No common pool, which cannot be trusted once calls are cancelled: one that is cancelled while it waits for
    a connection, or just as one has been made, leaves a connection behind that counts as taken for ever
    (httpcore #1093). Here all that a client holds is closed if its call does not end well.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient]) -> None:
        self._make = make
        self._idle: list[tuple[float, httpx.AsyncClient]] = []  # longest first, on the loop's clock
        self._closing: set[asyncio.Task[None]] = set()

    def take(self) -> tuple[httpx.AsyncClient, bool]:
        """Return a client for one call, to be given back, and whether it has served one before."""
        self._drop_idle(asyncio.get_running_loop().time() - KEEPALIVE_S)
        return (self._idle.pop()[1], True) if self._idle else (self._make(), False)

    async def give_back(self, client: httpx.AsyncClient, *, reusable: bool) -> None:
        """Keep the client for another call, or close it: half an answer in a connection serves no other."""
        now = asyncio.get_running_loop().time()
        self._drop_idle(now - KEEPALIVE_S)
        if reusable:
            self._idle.append((now, client))
        else:  # a caller that is cancelled a second time must not break off the closing
            await asyncio.shield(self._close(client))

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client for one call; it is closed if the block raises or is cancelled."""
        (client, _), reusable = self.take(), False
        try:
            yield client
            reusable = True
        finally:
            await self.give_back(client, reusable=reusable)

    async def close(self) -> None:
        """Close those that are not lent."""
        self._drop_idle(float("inf"))
        await asyncio.gather(*self._closing)

    def _drop_idle(self, before: float) -> None:
        while self._idle and self._idle[0][0] <= before:
            self._close(self._idle.pop(0)[1])

    def _close(self, client: httpx.AsyncClient) -> asyncio.Task[None]:
        closing = asyncio.create_task(client.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


def api_base(url: str) -> str:
    """Return the URL without trailing slash, with /v1 when it names a bare host; raises ValueError."""
    try:
        parsed, url = httpx.URL(url), url.rstrip("/")
    except httpx.InvalidURL as error:
        raise ValueError(f"The LLM server's URL cannot be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("The LLM server's URL must start with http:// or https://.")
    return url if parsed.path.strip("/") else f"{url}/v1"
