"""Shared by the clients of LLM and embedding servers: connections, retries, health checks."""

import asyncio
import json
import random
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from email.utils import mktime_tz, parsedate_tz
from typing import TypeVar

import httpx2

from service.addresses import proxy_for, tls
from service.errors import EigencalError
from service.transport import Transport

T = TypeVar("T")
CONNECT_TIMEOUT_S = 5.0
# Transient status codes. 400 is excluded because the same request fails again, 500 because the request may
# have caused it. 520, 522 and 524 are Cloudflare's, 529 is an overloaded server.
TRY_AGAIN = frozenset({408, 409, 425, 429, 502, 503, 504, 520, 522, 524, 529})
# Codes and messages of accounts without credit. Google's quota of a minute reads like OpenAI's of a month.
_NO_CREDIT = re.compile(
    r"insufficient[_ ](?:quota|balance|credit|fund)|billing_(?:not_active|hard_limit)|credit balance"
    r"|exceeded_current_quota|account is (?:not active|suspended)|欠费|余额不足",
    re.IGNORECASE,
)
MAX_RETRY_AFTER_S = 60.0  # the most that is reported to callers: the server may recover long before its own
BACKOFF_S = 0.2  # before the second attempt; doubled before each further attempt
MAX_WAIT_S = 5.0  # a server that asks for a longer wait is not tried again
CHECK_KEPT_S = 1.0


class Connections:
    """HTTP calls to one server, each on a connection of its own (see `Transport`).

    `base`: user and password of the URL take precedence over `api_key`. `silence_s` limits each read and
    each write; None: no limit. `proxies_from_env`: use HTTP_PROXY and the like. `transport` replaces the
    network in tests. Raises ValueError for a SOCKS proxy and for a bad SSL_CERT_FILE.
    """

    def __init__(
        self,
        base: httpx2.URL,
        *,
        api_key: str = "",
        silence_s: float | None = None,
        proxies_from_env: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        # Responses are not compressed: events are read and forwarded as they come.
        self._headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if base.userinfo:
            credentials = b64encode(f"{base.username}:{base.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"
        elif api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = httpx2.Timeout(silence_s, connect=CONNECT_TIMEOUT_S).as_dict()
        self._transport = transport or Transport(tls(), proxy_for(base) if proxies_from_env else None)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: httpx2.URL,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send JSON and yield the response once its head has arrived.

        Redirects are not followed and cookies are not kept. Raises httpx2.TransportError.
        """
        request = httpx2.Request(
            method,
            url,
            headers={**self._headers, **(headers or {})},
            content=content,
            extensions={"timeout": self._timeout},
        )
        response = await self._transport.handle_async_request(request)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close idle connections now, and connections of running calls when the calls end; idempotent."""
        await self._transport.aclose()


# Retries and checks


def retry_after_s(response: httpx2.Response) -> float | None:
    """Return the wait that retry-after-ms or Retry-After (seconds or a date) asks for, 0 to 60 s; or None."""
    retry_after = response.headers.get("retry-after", "")
    for value, unit_s in ((response.headers.get("retry-after-ms", ""), 0.001), (retry_after, 1.0)):
        with suppress(ValueError, OverflowError):
            date = parsedate_tz(value)
            seconds = unit_s * float(value) if date is None else mktime_tz(date) - time.time()
            return min(max(0.0, seconds), MAX_RETRY_AFTER_S)
    return None


def is_out_of_credit(body: bytes) -> bool:
    """Return True for a 429 that stays until somebody pays."""
    return any(map(_NO_CREDIT.search, (body.decode("utf-8", "replace"), error_message(body))))


def error_message(body: bytes) -> str:
    """Return the message of an error: `{"error": {"message"}}`, `{"error": text}`, `{"message"}` or text.

    A parameter that the error names beside its message is added in parentheses.
    """
    text = body.decode("utf-8", "replace").strip()
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = text
    parameter = None
    for key in ("error", "message", "detail"):
        if isinstance(message, dict) and message.get(key):
            parameter = message.get("param") or parameter
            message = message[key]
    message = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    if isinstance(parameter, str) and parameter not in re.findall(r"\w+", message):
        message = f"{message} (parameter: {parameter})"
    # No text of PostgreSQL holds NUL, and no UTF-8 half a surrogate pair.
    return message.replace("\0", "").encode("utf-8", "replace").decode()


class TransientError(Exception):
    """A failure that another attempt may cure; `error` is raised after the last attempt."""

    def __init__(self, error: EigencalError) -> None:
        super().__init__(error.detail)
        self.error = error


async def with_retries(attempt: Callable[[], Awaitable[T]], *, max_retries: int, ends: float) -> T:
    """Return the result of `attempt`, repeated after TransientError until `ends` (on the loop's clock)."""
    number = 0
    while True:
        try:
            return await attempt()
        except TransientError as failure:
            wait_s = failure.error.retry_after_s
            if wait_s is None:
                wait_s = BACKOFF_S * 2**number * random.uniform(0.5, 1.0)
            # Longer waits are left to the caller.
            left_s = ends - asyncio.get_running_loop().time()
            if number == max_retries or wait_s > min(MAX_WAIT_S, left_s):
                raise failure.error from None
        await asyncio.sleep(wait_s)
        number += 1


class HealthProbe:
    """Runs `ask` once at a time and at most once in `CHECK_KEPT_S`: health checks need no key.

    `ask` bounds its own time. It raises an EigencalError if the check fails. A caller that leaves does not
    cancel the check.
    """

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._latest: asyncio.Task[EigencalError | None] | None = None
        self._ended_at = float("-inf")

    async def __call__(self) -> None:
        """Return if the check passes, else raise the error of `ask`."""
        age_s = asyncio.get_running_loop().time() - self._ended_at
        if self._latest is None or (self._latest.done() and age_s > CHECK_KEPT_S):
            self._latest = asyncio.create_task(self._run())
        if (failure := await asyncio.shield(self._latest)) is not None:
            raise copy(failure)  # each of many callers gets a traceback of its own

    async def _run(self) -> EigencalError | None:
        try:
            await self._ask()
        except EigencalError as failure:
            return failure
        finally:
            self._ended_at = asyncio.get_running_loop().time()
        return None
