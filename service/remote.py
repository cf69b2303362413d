"""What the clients of LLM and embedding servers share: certificates, what is tried again, health checks."""

import asyncio
import itertools
import math
import random
import ssl
from collections.abc import Awaitable, Callable
from copy import copy
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


def tls() -> ssl.SSLContext:
    """Return what httpx checks certificates with: SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's.

    Made here because httpx would leave out the two along with the environment's proxies.
    """
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
    """Runs `ask` at most once at a time and once in `kept_s`: health checks may be asked for without a key.

    A caller that leaves neither cancels the check for the others nor leads to a second one beside it. `ask`
    returns when all is well, within its own time, and raises the EigencalError that says what is not.
    """

    def __init__(self, ask: Callable[[], Awaitable[object]], *, kept_s: float = CHECK_KEPT_S) -> None:
        self._ask = ask
        self._kept_s = kept_s
        self._latest: asyncio.Task[EigencalError | None] | None = None
        self._ended_at = float("-inf")

    async def __call__(self) -> None:
        """Return when all is well; raises what `ask` raised."""
        age_s = asyncio.get_running_loop().time() - self._ended_at
        if self._latest is None or (self._latest.done() and age_s > self._kept_s):
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
