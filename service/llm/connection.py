"""Connections to LLM and embedding servers: addresses, TLS, retries, error messages, health checks."""

import asyncio
import json
import os
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from functools import cache, lru_cache
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address

import certifi
import httpx2

from service.errors import EigencalError

MAX_PORT = 65_535
CONNECT_TIMEOUT_S = 5.0
KEEPALIVE_S = 3.0  # uvicorn closes idle connections after 5 s
# Transient status codes. 400 is excluded because the same request fails again, 500 because the request may
# have caused it. 520, 522 and 524 are Cloudflare's, 529 is an overloaded server.
TRY_AGAIN = frozenset({408, 409, 425, 429, 502, 503, 504, 520, 522, 524, 529})
# Codes of accounts without credit: a 429 that stays until somebody pays.
NO_CREDIT = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "insufficient_credits",
        "billing_not_active",
        "billing_hard_limit_reached",
        "exceeded_current_quota_error",
    }
)
MAX_RETRIES = 3
MAX_RETRY_AFTER_S = 60.0  # the most that is reported to callers: the server may recover long before its own
BACKOFF_S = 0.2  # before the second attempt; doubled before each further attempt
MAX_WAIT_S = 5.0  # a server that asks for a longer wait is not tried again
CHECK_KEPT_S = 1.0


# Addresses


def api_base(url: str, setting: str) -> httpx2.URL:
    """Return the base URL of an OpenAI-compatible API.

    A host without a path gets /v1. An endpoint such as /v1/chat/completions is cut to its base. Any other
    path and the query stay as they are. Raises ValueError; `setting` names the variable in the message.
    """
    if any(character.isspace() for character in url) or not url.isprintable():
        raise ValueError(f"{setting} contains white space or characters that cannot be seen.")
    if "#" in url:
        raise ValueError(f"{setting} contains a fragment (#), which no server receives.")
    try:
        base = httpx2.URL(url)
        base.host.encode("idna")
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ValueError(f"{setting} cannot be read: {error}.") from None
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) > MAX_PORT:
        raise ValueError(f"{setting} must start with http:// or https:// and name a host.")
    path, question_mark, query = base.raw_path.partition(b"?")
    path = path.rstrip(b"/") or b"/v1"
    for suffix in (b"/chat/completions", b"/completions", b"/embeddings"):
        path = path.removesuffix(suffix)
    return base.copy_with(raw_path=(path or b"/") + question_mark + query)


@lru_cache(maxsize=64)
def endpoint(base: httpx2.URL, path: str) -> httpx2.URL:
    """Return the URL of an API path below the base. The query of the path precedes the query of the base."""
    root, _, query = base.raw_path.partition(b"?")
    own_path, _, own_query = path.encode().partition(b"?")
    queries = b"&".join(filter(None, (own_query, query)))
    return base.copy_with(raw_path=root.rstrip(b"/") + own_path + (b"?" + queries if queries else b""))


@cache
def tls() -> ssl.SSLContext:
    """Return the TLS context, which honours SSL_CERT_FILE and SSL_CERT_DIR. Raises ValueError."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    except OSError as error:
        raise ValueError(f"SSL_CERT_FILE={file} cannot be read: {error.strerror or error}.") from None


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address or `localhost`."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # ::ffff:127.0.0.1, the form of an IPv4 caller on a socket for both families.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


# Calls


class Connections:
    """HTTP calls to one server.

    `base`: user and password of the URL take precedence over `api_key`. Servers beyond loopback are reached
    through the proxies of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY). `transport`
    replaces the network in tests. Raises ValueError for a proxy that cannot be used and for a bad
    SSL_CERT_FILE.
    """

    def __init__(
        self,
        base: httpx2.URL,
        *,
        api_key: str = "",
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        # Responses are not compressed: events are read and forwarded as they come.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            self._client = httpx2.AsyncClient(
                headers=headers,
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S
                ),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # keeps no cookie
                verify=tls(),
                trust_env=not is_loopback(base.host),
                transport=transport,
            )
        except (ImportError, httpx2.InvalidURL) as error:
            names = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
            raise ValueError(f"The proxy of {names} cannot be used: {error}") from None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: httpx2.URL,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        silence_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send JSON and yield the response once its head has arrived.

        `silence_s` limits each read and each write; None: no limit. Redirects are not followed and cookies
        are not kept. A call that fails on a kept connection before its response arrives is sent again. Raises
        httpx2.TransportError.
        """
        timeout = httpx2.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
        while not self._client.is_closed:
            watch = _Watch()
            call = self._client.stream(
                method, url, content=content, headers=headers, timeout=timeout, extensions={"trace": watch}
            )
            async with AsyncExitStack() as ending:
                try:
                    response = await ending.enter_async_context(call)
                except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                    if watch.is_new:
                        raise
                    response = None
                if watch.was_there_before:
                    # This server may send extra bytes after every response, so connections are not reused.
                    self._client.headers["Connection"] = "close"
                # Servers may send 408 as they close an idle connection (RFC 9110, 15.5.9).
                elif response and (watch.is_new or response.status_code != HTTPStatus.REQUEST_TIMEOUT):
                    yield response
                    return
        raise httpx2.ConnectError("The connections have been closed.")

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._client.aclose()


@dataclass(slots=True)
class _Watch:
    """A trace of httpx2 that sees whether a call opened a connection, and whether its response is its own.

    A response that is there before the service has waited for it was sent with the response to another call:
    httpx2 keeps a connection even if more bytes have arrived than belong to a response.
    """

    is_new: bool = False
    was_there_before: bool = False
    has_waited: bool = False

    async def __call__(self, event: str, _: Mapping[str, object]) -> None:
        if event.endswith(".connect_tcp.started"):  # "connection", or "socks" through such a proxy
            self.is_new = True
        elif event == "http11.receive_response_headers.started":
            # A response may arrive while its request is written, and then takes one turn of the loop.
            asyncio.get_running_loop().call_soon(setattr, self, "has_waited", True)
        elif event.startswith("http11.receive_response_headers"):
            self.was_there_before = not self.has_waited


# Retries


def retry_after_s(response: httpx2.Response) -> float | None:
    """Return the wait that retry-after-ms or Retry-After (seconds or a date) asks for, 0 to 60 s; or None."""
    retry_after = response.headers.get("retry-after", "")
    for value, unit_s in ((response.headers.get("retry-after-ms", ""), 0.001), (retry_after, 1.0)):
        with suppress(ValueError, OverflowError):
            date = parsedate_tz(value)
            seconds = unit_s * float(value) if date is None else mktime_tz(date) - time.time()
            return min(max(0.0, seconds), MAX_RETRY_AFTER_S)
    return None


async def before_retry(error: EigencalError, number: int, ends: float) -> None:
    """Wait before the next attempt, or raise the error: after the last, or if the wait would be too long.

    number: of retries so far. ends: of all attempts, on the loop's clock.
    """
    wait_s = error.retry_after_s
    if wait_s is None:
        wait_s = BACKOFF_S * 2**number * random.uniform(0.5, 1.0)
    left_s = ends - asyncio.get_running_loop().time()
    if number == MAX_RETRIES or wait_s > min(MAX_WAIT_S, left_s):  # longer waits are left to the caller
        raise error from None
    await asyncio.sleep(wait_s)


# Errors


def is_out_of_credit(body: bytes) -> bool:
    """Return True for an error of an account without credit."""
    with suppress(ValueError, RecursionError):
        error = json.loads(body)
        error = error.get("error", error) if isinstance(error, dict) else None
        return isinstance(error, dict) and not NO_CREDIT.isdisjoint(map(str, error.values()))
    return False


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


# Health


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
