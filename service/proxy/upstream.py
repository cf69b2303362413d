"""The port to the LLM server for calls that go to it as their callers wrote them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Protocol

import httpx

from service.errors import LLMBadResponse, LLMUnavailable
from service.llm.client import Connections, api_base
from service.remote import KEEPALIVE_S, tls


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the server's own API: `path` below its base, `body` a JSON object's bytes (None: GET)."""

    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


class Reply(Protocol):
    """What the server answers, its body not read yet. To be closed, whatever happened."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return those headers that are about the answer, not about the connection, by lower-case name."""

    @property
    def is_stream(self) -> bool:
        """Tell whether the body is a stream of server-sent events."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, unpacked. Raises LLMUnavailable when it breaks off."""

    async def close(self) -> None:
        """Let go of the connection; a body that has not been read to its end is cut off. Idempotent."""


class Upstream(Protocol):
    """Takes calls as they are: none is put in line, tried again or bounded in time. Cancelling ends one."""

    async def start(self) -> None:
        """Acquire what is needed."""

    async def stop(self) -> None:
        """Release everything; idempotent."""

    async def open(self, call: Call) -> Reply:
        """Return the answer once its head is there, whatever its status.

        Raises LLMUnavailable where the server cannot be reached, and what else keeps it from answering.
        """


# Calls that go to an OpenAI-compatible server as their callers wrote them, and its answers as they come.
#
# Nothing stands in line here, is tried again or is bounded in time: a call fares as it would without us.

# Of the connection, not of the answer; or told anew by whoever sends the answer on.
_NOT_PASSED = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "server",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
# Which pages may read an answer is ours to say: ours come with a key.
_CROSS_ORIGIN = "access-control-"
# What is unpacked here, though it was not asked for; anything else goes on as it is packed.
_UNPACKED = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_REDACTED = b"[redacted]"
MOST_OF_AN_ERROR = 1 << 20
LARGEST_STATUS = 599
SHORTEST_SECRET = 12  # a shorter one is a placeholder, such as "none" or "token", that stands in other words


class HttpReply:
    """Implements `service.proxy.upstream.Reply`. `secret`: not to be told, should an error quote it."""

    def __init__(self, response: httpx.Response, connection: AsyncExitStack, secret: str = "") -> None:
        self._response = response
        self._secret = secret.encode()
        self._unpacks = response.headers.get("content-encoding", "").strip().lower() in _UNPACKED
        self._connection: AsyncExitStack | None = connection
        self._is_whole = False

    @property
    def status(self) -> int:
        """Return the status."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """Return what is passed on, byte for byte: as HTTP has it, not as httpx guesses the encoding."""
        told = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in self._response.headers.raw}
        left_out = _NOT_PASSED | ({"content-encoding"} if self._unpacks else set())
        return {k: v for k, v in told.items() if k not in left_out and not k.startswith(_CROSS_ORIGIN)}

    @property
    def is_stream(self) -> bool:
        """Tell whether it is a stream of events."""
        kind: str = self._response.headers.get("content-type", "")
        return kind.startswith("text/event-stream")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        body = self._response.aiter_bytes() if self._unpacks else self._response.aiter_raw()
        try:
            if self.status >= HTTPStatus.BAD_REQUEST and len(self._secret) >= SHORTEST_SECRET:
                # Whole: a server that refuses our key may quote it, over the edge of two pieces.
                body = _without(self._secret, body)
            async for piece in body:
                yield piece
        except httpx.HTTPError:
            raise LLMUnavailable("The LLM server broke off its answer.") from None
        self._is_whole = True

    async def close(self) -> None:
        """Give the connection back for another call, or close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._is_whole:
            await connection.aclose()
        else:
            # As if it had failed: a connection with half an answer in it serves no other call.
            await connection.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)


async def _without(secret: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    pieces, size = [], 0
    async for piece in body:
        size += len(piece)
        if size > MOST_OF_AN_ERROR:
            raise LLMUnavailable("The LLM server's error is longer than the service takes.")
        pieces.append(piece)
    yield b"".join(pieces).replace(secret, _REDACTED)


def _no_cookies() -> CookieJar:
    """Return a jar that takes none: a client serves many callers, and one's cookie is no other's."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


class HttpUpstream:
    """Implements `service.proxy.upstream.Upstream`.

    Each call has a connection of its own (see `Connections`), so that streams wait for no other to end.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        connect_timeout_s: float = 5.0,
        proxies_from_env: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = api_base(base_url)
        # Not packed: events are to be read, and passed on, as they come.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        make = partial(
            httpx.AsyncClient,
            headers=headers | ({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            timeout=httpx.Timeout(None, connect=connect_timeout_s),
            verify=tls(),
            cookies=_no_cookies(),
            transport=transport,
            trust_env=proxies_from_env,
        )
        self._secret = api_key
        self._connections = Connections(make, kept_s=KEEPALIVE_S)

    @property
    def under_way(self) -> int:
        """Return how many connections are in use."""
        return self._connections.number[0]

    async def start(self) -> None:
        """Nothing to acquire."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def open(self, call: Call) -> HttpReply:
        """Send the call; see the port."""
        reused = self._connections.number[1] > 0
        try:
            return await self._open(call, fresh=False)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # A server closes idle connections at its own time, and may as this call is written to one.
            if reused:
                with contextlib.suppress(httpx.HTTPError):
                    return await self._open(call, fresh=True)
        except httpx.HTTPError:
            pass
        raise LLMUnavailable("The LLM server cannot be reached.")

    async def _open(self, call: Call, *, fresh: bool) -> HttpReply:
        method = "GET" if call.body is None else "POST"
        url = self._base_url + call.path
        async with AsyncExitStack() as connection:
            http = await connection.enter_async_context(self._connections.one(fresh=fresh))
            headers = [(name.encode(), value.encode("latin-1")) for name, value in call.headers.items()]
            sent = http.stream(method, url, content=call.body, headers=headers)
            response = await connection.enter_async_context(sent)
            if response.status_code > LARGEST_STATUS:
                raise LLMBadResponse("The LLM server answered with a status that HTTP does not have.")
            return HttpReply(response, connection.pop_all(), self._secret)
        raise AssertionError("unreachable: the block returns or raises")
