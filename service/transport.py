"""HTTP/1.1 connections to an LLM or embedding server, as a transport of httpx2."""

import asyncio
import select
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import httpcore2
import httpx2

KEEPALIVE_S = 3.0  # uvicorn closes idle connections after 5 s
NOT_KEPT_S = 600.0  # after surplus bytes: calls on kept connections would be sent twice
MAX_UNREAD_BYTES = 256 * 1024


class Transport(httpx2.AsyncBaseTransport):
    """Sends each call on a connection of its own, kept for `KEEPALIVE_S` after its response.

    Unlike httpx2's transport it never uses a connection on which bytes have arrived since its last
    response, and finding an idle connection takes constant time. A call that fails on a kept connection
    before its response arrives is sent once more on a new connection.

    `proxy`: URL of an HTTP proxy.
    """

    def __init__(self, tls: ssl.SSLContext, proxy: str | None = None) -> None:
        self._tls = tls
        self._proxy = httpx2.Proxy(proxy) if proxy else None
        self._idle = deque[tuple[_Connection, float]]()  # the latest at the end
        self._closed = False
        self._keep_from = 0.0  # when connections are kept again, by time.monotonic()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response once its head has arrived. Raises httpx2.TransportError."""
        response = None
        if connection := self._kept():
            with suppress(httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                response = await connection.send(request)
                # Servers may send 408 as they close an idle connection (RFC 9110, 15.5.9).
                if connection.read_ahead or response.status == HTTPStatus.REQUEST_TIMEOUT:
                    connection.socket.close()
                    response = None
            if connection.read_ahead:  # the server may send more than its response each time
                self._keep_from = time.monotonic() + NOT_KEPT_S
        if connection is None or response is None:
            if self._closed:
                raise httpx2.ConnectError("The transport has been closed.")
            connection = _Connection(request.url, self._tls, self._proxy)
            response = await connection.send(request)
        body = _Body(response, lambda: self._release(connection))
        return httpx2.Response(response.status, headers=response.headers, stream=body)

    async def aclose(self) -> None:
        """Close idle connections now, and connections of running calls when the calls end; idempotent."""
        self._closed = True
        self._close_idle()

    def _kept(self) -> "_Connection | None":
        now = time.monotonic()
        while self._idle and self._idle[0][1] < now:
            self._idle.popleft()[0].socket.close()
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.socket.is_idle():
                return connection
            connection.socket.close()
        return None

    def _release(self, connection: "_Connection") -> None:
        self._idle.append((connection, time.monotonic() + KEEPALIVE_S))
        if self._closed or time.monotonic() < self._keep_from:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].socket.close()


class _Connection:
    """A connection to the host of a URL. `read_ahead`: nothing was read for the latest request."""

    def __init__(self, url: httpx2.URL, tls: ssl.SSLContext, proxy: httpx2.Proxy | None) -> None:
        self.socket = _Socket()
        self.read_ahead = False
        self._http: httpcore2.AsyncHTTPConnection | httpcore2.AsyncHTTPProxy
        if proxy is None:
            origin = _core_url(url).origin
            self._http = httpcore2.AsyncHTTPConnection(origin, ssl_context=tls, network_backend=self.socket)
        else:
            self._http = httpcore2.AsyncHTTPProxy(
                _core_url(proxy.url),
                proxy_auth=proxy.raw_auth,
                ssl_context=tls,
                max_connections=1,
                network_backend=self.socket,
            )

    async def send(self, request: httpx2.Request) -> httpcore2.Response:
        """Return the response once its head has arrived. The connection is closed on errors."""
        before = self.socket.num_reads
        content, extensions = request.stream, request.extensions
        sent = httpcore2.Request(
            request.method,
            _core_url(request.url),
            headers=request.headers.raw,
            content=content,
            extensions=extensions,
        )
        try:
            with _httpx2_errors():
                response = await self._http.handle_async_request(sent)
        except BaseException:
            self.socket.close()
            raise
        finally:
            self.read_ahead = self.socket.num_reads == before
        return response


class _Body(httpx2.AsyncByteStream):
    """The body of a response; `release` is called once when it is closed."""

    def __init__(self, response: httpcore2.Response, release: Callable[[], None]) -> None:
        self._response = response
        self._release = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx2_errors():
            async for piece in self._response.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
        self._release()


class _Socket(asyncio.Protocol, httpcore2.AsyncNetworkBackend, httpcore2.AsyncNetworkStream):
    """A TCP connection, with TLS if httpcore2 asks for it.

    The socket is read at all times: bytes that belong to no response are seen, and so is the refusal of a
    server that does not read the whole request.
    """

    def __init__(self) -> None:
        self.num_reads = 0  # by httpcore2
        self._transport: Any = None  # an asyncio.Transport once connected
        self._unread = bytearray()
        self._ended = False
        self._failure: Exception | None = None
        self._is_writable = True
        self._changed = asyncio.Event()

    def is_idle(self) -> bool:
        """Return True if the connection is open and no bytes have arrived since the last response."""
        if self._ended or self._unread or self._transport.is_closing():
            return False
        poll = select.poll()  # the event loop may not have read the latest bytes yet
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection at once; idempotent."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # Interface of httpcore2

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "_Socket":
        """Connect; the last two parameters are not used."""
        with _connect_errors():
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        return self

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Socket":
        """Go on with TLS."""
        with _connect_errors():
            async with asyncio.timeout(timeout):
                self._transport = await asyncio.get_running_loop().start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        return self

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the bytes that have arrived, b"" at the end."""
        self.num_reads += 1
        await self._until(lambda: self._unread or self._ended, timeout, httpcore2.ReadTimeout)
        if not self._unread and self._failure is not None:
            raise httpcore2.ReadError(str(self._failure))
        piece = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        if not self._ended:
            self._transport.resume_reading()
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes. Raises WriteError if the server answers before it has read them.

        httpcore2 then reads the response.
        """
        if self._ended:
            raise httpcore2.WriteError("The connection has been closed.")
        self._transport.write(buffer)
        await self._until(
            lambda: self._is_writable or self._unread or self._ended, timeout, httpcore2.WriteTimeout
        )
        if not self._is_writable:
            raise httpcore2.WriteError("The server has answered before it read the request.")

    async def aclose(self) -> None:
        """Close the connection."""
        self.close()

    def get_extra_info(self, info: str) -> Any:
        """Return asyncio's information; "is_readable" is True if the connection cannot be used again."""
        return not self.is_idle() if info == "is_readable" else self._transport.get_extra_info(info)

    async def _until(
        self, is_ready: Callable[[], object], timeout: float | None, error: type[Exception]
    ) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not is_ready():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise error("The server has been silent for too long.") from None

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the bytes. Reading pauses at `MAX_UNREAD_BYTES`."""
        self._unread += data
        if len(self._unread) > MAX_UNREAD_BYTES:
            self._transport.pause_reading()
        self._changed.set()

    def eof_received(self) -> None:
        """End the connection."""
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._failure = self._failure or exc
        self._ended = True
        self._changed.set()

    def pause_writing(self) -> None:
        """Let writers wait."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._is_writable = True
        self._changed.set()


def _core_url(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


@contextmanager
def _connect_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout("The server did not accept the connection in time.") from error
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error


@contextmanager
def _httpx2_errors() -> Iterator[None]:
    """Raise the errors of httpcore2 as the errors of httpx2 with the same names."""
    try:
        yield
    except (
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.TimeoutException,
    ) as error:
        raise getattr(httpx2, type(error).__name__)(str(error)) from error
