"""Forwards calls to the LLM server unchanged, and its answers as they arrive.

Calls are not retried, except if a kept connection fails before the response arrives. Their time is not
limited while the server sends something. A call behaves as if its caller had sent it to the server.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx2

from service.addresses import api_base, endpoint
from service.errors import DeadlineExceeded, LLMBadResponse, LLMUnavailable
from service.llm.sse import find_events
from service.remote import Connections

# Headers of the server that callers need: the content and the retry time. The others describe the connection,
# the operator's account or the server.
_PASSED_ON = frozenset(
    {
        "allow",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
    }
)
MAX_STATUS = 599
# The default timeout of OpenAI's clients. Without a limit a hung call would keep its permit for ever.
SILENCE_S = 600.0
MAX_WHOLE_BYTES = 8 << 20  # of an answer that is read whole
_ENDED = re.compile(
    rb'(?:^|[\r\n])data:\s*\[DONE\]|"finish_reason"\s*:\s*"(?!"|null")|"type"\s*:\s*"response\.(?:completed|incomplete|failed)"'
)
MAX_END_BYTES = 64  # of a match
_ASKS_FOR_STREAM = re.compile(rb'"stream"\s*:\s*true')
BROKEN_OFF = "The LLM server broke off its answer."
MIN_SECRET_CHARS = 12  # a shorter key is a placeholder, such as "none" or "token", that other text contains


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the server's own API: `path` below its base, `body` a JSON object's bytes or None."""

    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"


class Upstream:
    """Forwards calls unchanged. Cancelling a call ends it.

    A server that neither reads nor sends anything for `silence_s` seconds is treated as hung. Before the head
    of its answer that raises DeadlineExceeded, after it the answer is broken off.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        silence_s: float = SILENCE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base = api_base(base_url, "EIGENCAL_LLM_URL")
        self._secret = api_key.encode() if len(api_key) >= MIN_SECRET_CHARS else b""
        self._connections = Connections(
            self._base,
            api_key=api_key,
            silence_s=silence_s,
            transport=transport,
        )

    async def stop(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def open(self, call: Call) -> "Reply":
        """Return the answer, of any status, as soon as its head has arrived.

        Raises LLMUnavailable if the server cannot be reached, DeadlineExceeded if it does not respond, and
        LLMBadResponse for an answer that is not HTTP.
        """
        url = endpoint(self._base, call.path)
        streams = call.body is not None and _ASKS_FOR_STREAM.search(call.body) is not None
        async with AsyncExitStack() as ending:
            stream = self._connections.stream(call.method, url, call.body, call.headers)
            try:
                response = await ending.enter_async_context(stream)
            except (httpx2.ReadTimeout, httpx2.WriteTimeout):
                raise DeadlineExceeded("The LLM server does not respond.") from None
            except httpx2.TransportError:
                raise LLMUnavailable("The LLM server cannot be reached.") from None
            if response.status_code > MAX_STATUS:
                raise LLMBadResponse("The LLM server answered with a status that does not exist in HTTP.")
            content_type = response.headers.get("content-type", "")
            stream_requested = streams and response.status_code < 300
            try:
                is_stream, body = await find_events(
                    content_type, response.aiter_raw(), stream_requested=stream_requested
                )
            except httpx2.TransportError:
                raise LLMUnavailable(BROKEN_OFF) from None
            return Reply(response, is_stream, body, self._secret, ending.pop_all())
        raise AssertionError("unreachable: the block returns or raises")


class Reply:
    """The server's answer, with its body not read yet. Always call `close`.

    `headers`: only headers about the content, by lower-case name. `is_stream`: the body is a stream of
    server-sent events. `secret` is redacted from the body. `ending` releases the connection.
    """

    def __init__(
        self,
        response: httpx2.Response,
        is_stream: bool,
        body: AsyncIterator[bytes],
        secret: bytes,
        ending: AsyncExitStack,
    ) -> None:
        self._response = response
        self._body = body
        self._ending = ending
        self._secret = secret
        self.status = response.status_code
        self.is_stream = is_stream
        # Latin-1 keeps the bytes of header values unchanged.
        raw = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers.raw}
        self.headers: Mapping[str, str] = {k: v for k, v in raw.items() if k in _PASSED_ON}

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises LLMUnavailable when the server breaks it off.

        A stream that ends with its connection is complete only if its answer has ended.
        """
        body, headers, tail = self._body, self._response.headers, b""
        is_delimited = "content-length" in headers or "transfer-encoding" in headers
        has_ended = is_delimited or not self.is_stream or not 200 <= self.status < 300
        try:
            async for piece in body:
                if not has_ended:
                    has_ended = _ENDED.search(tail + piece) is not None
                    tail = (tail + piece)[-MAX_END_BYTES:]
                yield piece.replace(self._secret, b"[redacted]") if self._secret else piece
        except httpx2.TransportError:
            raise LLMUnavailable(BROKEN_OFF) from None
        if not has_ended:
            raise LLMUnavailable(BROKEN_OFF)

    async def close(self) -> None:
        """Release the connection; idempotent. It is closed if the body was not read to its end."""
        await self._ending.aclose()


async def read_ahead(pieces: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """Return the body and True, or its beginning and False if it is longer than `MAX_WHOLE_BYTES`."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_WHOLE_BYTES:
            return bytes(body), False
    return bytes(body), True
