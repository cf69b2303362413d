"""What the clients of other servers have in common: certificates, what is tried again, and when."""

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from copy import copy
from http import HTTPStatus

import httpx

from service.errors import EigencalError

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


def tls() -> ssl.SSLContext:
    """Return what httpx checks certificates with: SSL_CERT_FILE or SSL_CERT_DIR where set, else certifi's.

    Made here because httpx would leave out the two along with the environment's proxies.
    """
    return httpx.create_ssl_context(trust_env=True)


def retry_after_s(response: httpx.Response) -> float | None:
    """Return Retry-After where it is a number of seconds, at least 0; dates are rare and left aside."""
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None  # "nan" and "inf" are numbers to Python


# A check that anybody may ask for, without a key: one at a time, and what it found holds for a while.

KEPT_S = 1.0


class SharedCheck:
    """Runs `ask` at most once at a time and once in `kept_s`; everybody gets what it found.

    A caller that leaves neither cancels the check for the others nor leads to a second one beside it. `ask`
    returns when all is well and raises the EigencalError that says what is not; when it has not ended after
    `longest_s`, it is broken off and the finding is `too_late`.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        *,
        longest_s: float,
        too_late: EigencalError,
        kept_s: float = KEPT_S,
    ) -> None:
        self._ask = ask
        self._longest_s = longest_s
        self._too_late = too_late
        self._kept_s = kept_s
        self._latest: asyncio.Task[EigencalError | None] | None = None
        self._ended_at = float("-inf")

    async def __call__(self) -> None:
        """Return when all is well; raises what `ask` raised."""
        failure = await asyncio.shield(self._current())
        if failure is not None:
            raise copy(failure)  # many may raise it: each with a traceback of its own

    async def stop(self) -> None:
        """Break off the check under way; idempotent."""
        latest, self._latest = self._latest, None
        if latest is not None and not latest.done():
            latest.cancel()
            await asyncio.wait({latest})

    def _current(self) -> asyncio.Task[EigencalError | None]:
        """Return the check under way, or the last one while it holds, or a new one."""
        age_s = asyncio.get_running_loop().time() - self._ended_at
        if self._latest is None or (self._latest.done() and age_s > self._kept_s):
            self._latest = asyncio.create_task(self._found())
        return self._latest

    async def _found(self) -> EigencalError | None:
        try:
            async with asyncio.timeout(self._longest_s):
                await self._ask()
        except EigencalError as failure:
            return failure
        except TimeoutError:
            return self._too_late
        finally:
            self._ended_at = asyncio.get_running_loop().time()
        return None
