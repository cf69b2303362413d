"""What the clients of LLM and embedding servers share: connections, certificates, retries, health checks."""

import asyncio
import io
import itertools
import math
import os
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import copy
from functools import cache, partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from aiohttp.client_proto import ResponseHandler

from service.errors import EigencalError

T = TypeVar("T")
CONNECT_TIMEOUT_S = 5.0
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
LONG_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 16


@cache
def tls() -> ssl.SSLContext:
    """Return what certificates are checked with, SSL_CERT_FILE or SSL_CERT_DIR heeded; made once."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)


def retry_after_s(response: aiohttp.ClientResponse) -> float | None:
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


class _Protocol(ResponseHandler):
    """aiohttp's, but for two ways in which a call would wait for a server that has gone mad."""

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Tell whoever reads a body, too, that what came is no HTTP."""
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError(str(exc)))
        super().set_exception(exc, *cause)

    def close(self) -> None:
        """Close the connection, at once where the server does not read the call."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.abort()
        else:
            super().close()


class Connections:
    """Kept connections to the server of a URL, for calls that end with their callers.

    User and password of the URL go before `api_key`. `silence_s`: how long the server may neither read nor
    say anything; None: as long as its caller waits.
    `proxies_from_env`: go through the proxies that HTTP_PROXY and the like name. Raises ValueError for SOCKS.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        silence_s: float | None = None,
        proxies_from_env: bool = False,
    ) -> None:
        # Not packed: events are to be read, and passed on, as they come.
        self._headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if api_key and not urlsplit(url).username:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.silence_s = silence_s
        self._proxy = _proxy_of(url) if proxies_from_env else None
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send JSON, or nothing; return the answer, to be closed, once its head is there.

        A call whose kept connection the server had closed is made once more. Raises aiohttp.ClientError, and
        TimeoutError after `silence_s`.
        """
        if self._session is None:
            self._session = self._opened()
        if self._session.closed:
            raise aiohttp.ClientConnectionError("stopped")
        # In pieces, a long one: it would hold the event loop up.
        in_pieces = content is not None and len(content) > LONG_BYTES
        while True:
            used = dict[str, bool]()
            try:
                async with asyncio.timeout(self.silence_s):
                    return await self._session.request(
                        method,
                        url,
                        data=io.BytesIO(content or b"") if in_pieces else content,
                        headers=headers,
                        allow_redirects=False,
                        trace_request_ctx=used,
                    )
            except aiohttp.ClientConnectionError:
                # A server closes idle connections at its own time, and may as this call is written to one.
                if not used:
                    raise
            except UnicodeError:  # of a host that no name can be
                raise aiohttp.InvalidURL(url) from None

    def _opened(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_kept)
        # What is bounded is the calls: a bound of its own would have them wait unseen.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls())
        protocol: type[ResponseHandler] = _Protocol
        connector._factory = partial(protocol, asyncio.get_running_loop())
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # one serves many callers, and one's cookie is no other's
            headers=self._headers,
            # The request bounds a call as a whole: a model may be silent for long before its first byte.
            # `connect` bounds the look-up of a name and the answer of a proxy, too.
            timeout=aiohttp.ClientTimeout(
                None, connect=2 * CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S
            ),
            auto_decompress=False,
            max_field_size=MAX_HEADER_BYTES,
            proxy=self._proxy,
            trace_configs=[trace],
        )

    async def close(self) -> None:
        """Close all connections; idempotent."""
        if self._session is not None:
            await self._session.close()


async def pieces(response: aiohttp.ClientResponse, silence_s: float | None = None) -> AsyncIterator[bytes]:
    """Yield the body as it comes.

    Raises aiohttp.ClientError where it breaks off, TimeoutError where nothing comes for `silence_s`.
    """
    content = response.content
    try:
        while True:
            async with asyncio.timeout(silence_s):
                piece = await content.readany()
            if not piece:
                return
            yield piece
    except aiohttp.ClientError:
        # aiohttp keeps to itself what came together with the break.
        if left := content._read_nowait(-1):
            yield left
        raise


async def _note_kept(_: object, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx["kept"] = True


def _proxy_of(url: str) -> str | None:
    parsed, proxies = urlsplit(url), getproxies()
    if proxy_bypass(parsed.netloc.rpartition("@")[2]):
        return None
    proxy = (proxies.get(parsed.scheme) or proxies.get("all") or "").strip()
    kind, told, _ = proxy.partition("://")
    if not told:
        return f"http://{proxy}" if proxy else None
    if kind.lower() not in ("http", "https"):
        raise ValueError(f"A proxy of {kind} cannot be used (EIGENCAL_PROXIES_FROM_ENV): one of HTTP can.")
    return proxy


def api_base(url: str) -> str:
    """Return the URL without trailing slash, with /v1 when it names a bare host; raises ValueError."""
    try:
        parsed, url = urlsplit(url), url.rstrip("/")
    except ValueError as error:
        raise ValueError(f"The LLM server's URL cannot be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise ValueError("The LLM server's URL must start with http:// or https://.")
    return url if parsed.path.strip("/") else f"{url}/v1"
